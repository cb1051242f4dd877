"""VTE: the mean *feature* of the confident views, classified once.

    v̄ = Σ_{i∈K} v_i / ‖Σ_{i∈K} v_i‖,   p = softmax( τ · cos(t_c, v̄) )

with K the 10 % of the views that have the lowest entropy. No gradient and no text pass.
"""

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.tpt import at_least_float32, select_confident
from dtpt.methods.zero_shot import class_logits

FRACTION = 0.1


def mean_feature(views: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """Return the logits (C,) of the normalised mean of the confident (N, D) views."""
    views, text = at_least_float32(views), at_least_float32(text)
    logits = class_logits(views, text, logit_scale=logit_scale)  # (N, C)
    centre = views[select_confident(logits, FRACTION)].mean(dim=0)  # (D,)
    centre = centre / centre.norm().clamp_min(1e-12)
    return class_logits(centre, text, logit_scale=logit_scale)


VTE = Method(
    "vte",
    "mean feature of the 10 % most confident views",
    parameter="nothing",
    read_out=mean_feature,
    look=Look("VTE", "#7a8f2a", ">", (0, (6, 2)), "||"),
)
