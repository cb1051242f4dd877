"""A-TPT: maximise the angle between each class and its nearest neighbour.

    L_A-TPT = L_TPT - λ · 1/C Σ_i min_{j≠i} arccos( t̄_i · t̄_j )

Not in the paper; a peer of it. λ = 80 (fine-grained), 10 (shifts). Its two released scripts have
opposite signs: the one for shifts maximises the angle, as its paper says and `a-tpt` does; the one
for fine-grained sets *minimises* it, with λ = 80. `a-tpt:released` is the latter, on any set.
"""

from dataclasses import replace

from dtpt.methods.base import PROTOCOLS, Look, Tensor, regularised
from dtpt.methods.tpt import at_least_float32

# arccos has an infinite slope at ±1: two classes with the same name must not give NaN.
MARGIN = 1e-6


def negative_nearest_angle(text: Tensor) -> Tensor:
    """Return minus the mean angle (radians) of each class to its nearest other class."""
    text = at_least_float32(text)
    if len(text) < 2:
        return text.sum() * 0.0  # a single class has no neighbour
    cosines = text @ text.T  # (C, C)
    itself = text.new_ones(len(text)).diag().bool()
    nearest = cosines.masked_fill(itself, -2.0).amax(dim=-1)
    return -nearest.clamp(-1.0 + MARGIN, 1.0 - MARGIN).acos().mean()


def nearest_angle(text: Tensor) -> Tensor:
    """Return the mean angle itself, which the script for fine-grained sets minimises."""
    return -negative_nearest_angle(text)


A_TPT = regularised(
    "a-tpt",
    negative_nearest_angle,
    lambda_={"fine-grained": 80.0, "natural-shifts": 10.0},
    summary="angular diversity (nearest class)",
    grid=(1, 2, 5, 10, 20, 40, 80, 160),
    look=Look("A-TPT", "#c2951a", "v", (0, (7, 2, 1, 2)), "++++"),
)
A_TPT_RELEASED = replace(
    A_TPT,
    name="a-tpt:released",
    regulariser=nearest_angle,
    lambdas=dict.fromkeys(PROTOCOLS, 80.0),
    summary="A-TPT's released script, which minimises the angle",
    look=Look("A-TPT released", "#e0bf66", "v", (0, (1, 3)), "+"),
)
