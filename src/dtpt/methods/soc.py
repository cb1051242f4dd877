"""SoC: pull similar classes apart less than dissimilar ones. Our reading.

    L_SoC = L_TPT + λ · mean over i≠j of Huber_δ( t̄_i · t̄_j )
    Huber_δ(x) = x²/2 if |x| <= δ, else δ (|x| - δ/2)

Not in the paper; a peer of it (CVPR 2026, arXiv 2601.08617). Known to us: a Huber loss on the Gram
matrix of the text features beside TPT's loss, so that unlike classes are pushed apart in proportion
to their cosine, and like classes with a bounded force. Not known: δ, λ, and the authors' code. What
we chose:

* δ is the mean |cosine| of all pairs before tuning. "Like" then means more alike than pairs are on
  average, for any model: the cosines of one model can all lie above any fixed number.
* The mean over pairs, so that λ does not depend on the number of classes.
* λ by strength, because a first step only knows signs: 300 and 30 decide about as many of them as
  O-TPT, its nearest relative, does with its published 18 and 2 (for the embedded model; see
  docs/methods.md). `soc@auto=0.9` sets the strength directly.
"""

from dtpt.methods.base import Look, Tensor, regularised
from dtpt.methods.tpt import at_least_float32


def huber_gram(text: Tensor, initial: Tensor) -> Tensor:
    """Return the mean Huber loss of the cosines of (C, D) features; δ is from the initial ones."""
    text = at_least_float32(text)
    if len(text) < 2:
        return text.sum() * 0.0  # a single class has no pair
    delta = _pairs(at_least_float32(initial.detach())).mean()
    cosines = _pairs(text)
    capped = cosines.clamp(max=delta)
    return (capped * (cosines - capped / 2)).mean()  # x²/2 below δ, δ(x - δ/2) above


def _pairs(text: Tensor) -> Tensor:
    """Return |t_i · t_j| of all pairs i≠j of (C, D) features."""
    others = ~text.new_ones(len(text)).diag().bool()
    return (text @ text.T)[others].abs()  # (C (C - 1),)


SOC = regularised(
    "soc",
    anchored=huber_gram,
    lambda_={"fine-grained": 300.0, "natural-shifts": 30.0},
    summary="our reading of SoC: Huber loss on cosines of classes",
    grid=(10, 30, 100, 300, 1000, 3000),
    look=Look("SoC (our reading)", "#5a7d5a", "p", (0, (2, 1)), "xo"),
)
