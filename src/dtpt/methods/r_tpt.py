"""R-TPT: tune by the mean of the entropies, then weigh views by how much they resemble others.

The loss is the reading of equation 1 that the paper prints (mean of the entropies of the confident
views). The prediction weighs the tuned logits z_i of all views by how close each is to others:

    s_i = mean of the 20 largest cosines of view i to other views
    z   = Σ_i softmax(s / 0.01)_i · z_i
"""

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.tpt import at_least_float32
from dtpt.methods.zero_shot import class_logits

NEIGHBOURS = 20
TEMPERATURE = 0.01


def neighbour_weights(views: Tensor) -> Tensor:
    """Return the weight (N,) of each of (N, D) unit view features; they sum to one."""
    views = at_least_float32(views)
    others = len(views) - 1
    if others < 1:
        return views.new_ones(len(views))
    itself = views.new_ones(len(views)).diag().bool()
    cosines = (views @ views.T).masked_fill(itself, -2.0)  # (N, N)
    nearest = cosines.topk(min(NEIGHBOURS, others), dim=-1).values
    return (nearest.mean(dim=-1) / TEMPERATURE).softmax(dim=-1)


def weighted_logits(views: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """Return the weighted mean (C,) of the logits of (N, D) views."""
    logits = at_least_float32(class_logits(views, text, logit_scale=logit_scale))  # (N, C)
    return neighbour_weights(views) @ logits


R_TPT = Method(
    "r-tpt",
    "mean of entropies; views weighed by their neighbours",
    entropy="mean-of",
    read_out=weighted_logits,
    look=Look("R-TPT", "#8a6d3b", "8", (0, (4, 1, 1, 1, 1, 1)), "**"),
)
