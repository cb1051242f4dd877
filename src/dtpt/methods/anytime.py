"""Anytime read-out: take views batch by batch, and stop once the answer is stable.

After 1, 8, 16, 32, 48, ... views the read-out gives an answer p. The first count after which the
top class is the same as one count before, and its probability differs by less than a tolerance,
gives the prediction. The rule needs no label, and each count is a border between the batches in
which views are encoded, so the prediction has the bits of the same method with that many views.

Any read-out without tuning can stop this way: `+anytime=0.05` sets the tolerance. The image tower
takes nearly all of the time of such methods, and views that are not needed are not encoded.
"""

from collections.abc import Callable
from dataclasses import replace

from dtpt.errors import MethodError
from dtpt.methods.base import Look, Modifier, Tensor
from dtpt.methods.mean_views import MEAN_VIEWS

TOLERANCE = 0.1
FIRST, STEP = 8, 16  # see `dtpt.clip.model.view_batches`


def stops(count: int) -> list[int]:
    """Return after how many of `count` views an answer is looked at.

    Example:
        >>> stops(40), stops(5)
        ([1, 8, 16, 32, 40], [1, 5])
    """
    return [stop for stop in (1, FIRST, *range(STEP, count, STEP)) if stop < count] + [count]


def first_stable(read: Callable[[int], Tensor], count: int, *, tolerance: float) -> int | None:
    """Return after how many views the answer is stable; None if it is not after `count`.

    `read` gives the logits (C,) from the first so many views.
    """
    top, confidence = -1, 0.0
    for stop in stops(count):
        p = read(stop).softmax(dim=-1)
        before = top, confidence
        top = int(p.argmax())
        confidence = float(p[top])
        if top == before[0] and abs(confidence - before[1]) < tolerance:
            return stop
    return None


def stop_within(tolerance: float) -> Modifier:
    """Return the modifier `+anytime=<tolerance>`."""
    if not 0 < tolerance <= 1:
        raise MethodError(f"The tolerance must be above 0 and at most 1, got {tolerance:g}.")
    return Modifier(
        f"anytime={tolerance:g}", f"anytime, tolerance {tolerance:g}", tolerance=tolerance
    )


MEAN_VIEWS_ANYTIME = replace(
    MEAN_VIEWS,
    name="mean-views:anytime",
    summary="mean-views, views encoded until the answer is stable",
    tolerance=TOLERANCE,
    look=Look("Mean of views, anytime", "#e58ab4", "h", (0, (3, 1)), "oo."),
)
