"""Zero-shot CLIP (section 3): no tuning at all.

    p_c = softmax_c( τ · cos(t_c, v) )

with t_c the text feature of "a photo of a [class]." and v the feature of the original view.
"""

from dtpt.methods.base import Look, Method, Tensor


def class_logits(image: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """Return τ·cos for one image (D,) or several (N, D) against (C, D); all are unit vectors."""
    return logit_scale * (image @ text.T)


ZERO_SHOT = Method(
    "zero-shot",
    "CLIP as it is",
    parameter="nothing",
    look=Look("Zero-shot", "#85898f", "o", "-", ""),
)
