"""One difference of two methods: its interval, its p-value, and corrections for many of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.metrics.binomial import (
    binomial_interval,
    binomial_upper_bounds,
    mcnemar,
    student_quantile,
    student_tail,
)


@dataclass(frozen=True)
class Difference:
    """A difference, first minus second, with interval and two-sided p-value of "none"."""

    estimate: float
    low: float
    high: float
    p: float


def student_difference(estimate: float, error: float, *, freedom: int, level: float) -> Difference:
    """Return estimate ± t × standard error and the p-value of the same t.

    Example:
        >>> found = student_difference(0.03, 0.01, freedom=100, level=0.95)
        >>> round(found.low, 4), round(found.high, 4), round(found.p, 4)
        (0.0102, 0.0498, 0.0034)
    """
    if error <= 1e-12:  # rounding: the difference is the same in every draw
        return Difference(estimate, estimate, estimate, float(abs(estimate) <= 1e-12))
    half = student_quantile(level, freedom) * error
    p = student_tail(estimate / error, freedom)
    return Difference(estimate, estimate - half, estimate + half, p)


def accuracy_difference(
    plain: Difference, wins: int, *, losses: int, n: int, level: float
) -> Difference:
    """Return a difference of accuracies with McNemar's p-value and an interval that agrees with it.

    The interval is the wider of the plain one and one from exact bounds of both rates of pictures
    that only one method has right (few such pictures have no normal spread). Where it contradicts
    the test about 0, its end at 0 moves to the bound that belongs to the test: the share of the
    first method among the pictures that only one has right.

    Args:
        plain: the difference with an interval from its standard error.
        wins: pictures that only the first method has right.
        losses: pictures that only the second method has right.
        n: all pictures.
        level: of the interval.

    Example:
        >>> plain = student_difference(0.08, 0.028, freedom=99, level=0.95)
        >>> found = accuracy_difference(plain, 9, losses=1, n=100, level=0.95)
        >>> round(found.low, 3), round(found.high, 3), round(found.p, 3)
        (0.015, 0.155, 0.021)
    """
    p = mcnemar(wins, losses)
    low, high = _bounds_from_rates(wins, losses, n=n, level=level)
    low, high = min(low, plain.low), max(high, plain.high)
    if p >= 1 - level:
        return Difference(plain.estimate, min(low, 0.0), max(high, 0.0), p)
    share_low, share_high = binomial_interval(wins, wins + losses, level=level)
    if wins > losses and low <= 0:
        low = max((2 * share_low - 1) * (wins + losses) / n, math.ulp(0.0))
    elif wins < losses and high >= 0:
        high = min((2 * share_high - 1) * (wins + losses) / n, -math.ulp(0.0))
    return Difference(plain.estimate, low, high, p)


def _bounds_from_rates(wins: int, losses: int, *, n: int, level: float) -> tuple[float, float]:
    """Return bounds of a difference of two rates from the exact bounds of each.

    The distances of the bounds from the rates are added as squares, as variances would be.
    """
    counts = np.array([wins, n - wins, losses, n - losses])
    distance = binomial_upper_bounds(counts, n, level=(1 + level) / 2) - counts / n
    win_above, win_below, loss_above, loss_below = distance.tolist()
    middle = (wins - losses) / n
    return middle - math.hypot(win_below, loss_above), middle + math.hypot(win_above, loss_below)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the order given.

    Calling everything at most 0.05 a difference errs at all with a probability of at most 0.05.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(value) for value in adjusted]
