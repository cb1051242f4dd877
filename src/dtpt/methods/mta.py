"""MTA: a robust mean of the views' features, found by mean shift.

It finds a mode m of the views' unit features f_i, and weights y of the views that belong to it;
views support each other when their predictions p_i agree:

    h_i² = ½ · mean squared distance of f_i to the nearest 30 % of the other views
    d_i  = exp( -‖f_i - m‖² / 2 h_i² )
    y    = softmax( (d + λ_q · P Pᵀ y) / λ_y ),      λ_q = 4, λ_y = 0.2
    m    = Σ_i y_i d_i f_i / ‖·‖

alternating, at most five steps for y and five for m, five times over, from m = f_0. The mode is
classified. No gradient and no text pass: a problem of N × N numbers. `mta:published` has the views
of the paper and its code, which are without AugMix on every set.
"""

from collections.abc import Callable
from dataclasses import replace

from dtpt.methods.base import Look, Method, Tensor
from dtpt.methods.tpt import at_least_float32
from dtpt.methods.zero_shot import class_logits

NEAREST = 0.3
AFFINITY = 4.0  # λ_q
SHARPNESS = 0.2  # λ_y
ROUNDS = STEPS = 5
TOLERANCE = 1e-6  # a step shorter than this ends an alternation


def mode_logits(views: Tensor, text: Tensor, *, logit_scale: float) -> Tensor:
    """Return the logits (C,) of the mode of (N, D) view features."""
    views, text = at_least_float32(views), at_least_float32(text)
    p = class_logits(views, text, logit_scale=logit_scale).softmax(dim=-1)  # (N, C)
    mode = find_mode(views, affinity=p @ p.T)
    return class_logits(mode, text, logit_scale=logit_scale)


def find_mode(views: Tensor, *, affinity: Tensor) -> Tensor:
    """Return the mode (D,) of unit features (N, D) under their (N, N) affinity."""
    spread = squared_bandwidths(views)
    weights, mode = views.new_full((len(views),), 1 / len(views)), views[0]

    def density(point: Tensor) -> Tensor:  # (N,)
        return (-(views - point).square().sum(dim=-1) / (2 * spread)).exp()

    def weigh(y: Tensor) -> Tensor:
        return ((near + AFFINITY * (affinity @ y)) / SHARPNESS).softmax(dim=-1)

    def shift(point: Tensor) -> Tensor:
        moved = (weights * density(point)) @ views  # (D,)
        length: Tensor = moved.norm()
        return moved / length.clamp_min(1e-12)

    for _ in range(ROUNDS):
        near = density(mode)
        weights = _repeat(weigh, weights)
        mode = _repeat(shift, mode)
    return mode


def _repeat(update: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    for _ in range(STEPS):
        before, value = value, update(value)
        if float((value - before).norm()) < TOLERANCE:
            break
    return value


def squared_bandwidths(views: Tensor) -> Tensor:
    """Return h² (N,) of each view; one view alone gets 1."""
    others = len(views) - 1
    if others < 1:
        return views.new_ones(1)
    squares = (views[:, None] - views[None]).square().sum(dim=-1)  # (N, N)
    nearest = max(1, int(NEAREST * others))
    closest = squares.sort(dim=1).values[:, 1 : nearest + 1]  # without the view itself
    return (closest.mean(dim=1) / 2).clamp_min(1e-12)


MTA = Method(
    "mta",
    "mode of the views' features by mean shift",
    parameter="nothing",
    read_out=mode_logits,
    look=Look("MTA", "#17919a", "<", (0, (8, 2)), "//"),
)
MTA_PUBLISHED = replace(
    MTA,
    name="mta:published",
    summary="MTA on its own views, without AugMix",
    augmix=False,
    look=Look("MTA published", "#6cbfc5", "<", (0, (1, 1)), "//|"),
)
