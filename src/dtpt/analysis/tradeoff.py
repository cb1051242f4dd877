"""Null controls: does a regulariser do more than a smaller step?

TPT with smaller learning rates traces a curve from zero-shot to TPT in the plane of accuracy and
overconfidence. A method that lies above this curve is more accurate at the same overconfidence than
a shorter step would be; one on it only takes less of TPT's step. Distances are measured at the
method's own signed gap, along a straight line between the neighbouring points of the curve, and get
intervals by drawing pictures again, the same draws for the curve and for the method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.errors import MetricError
from dtpt.metrics import PooledPredictions, centred_interval
from dtpt.metrics.comparison import check_paired
from dtpt.metrics.resampling import resampled_counts
from dtpt.metrics.validation import FloatArray

FEWEST_POINTS = 2


@dataclass(frozen=True)
class CurveDistance:
    """How far a method lies above the curve of smaller steps; all numbers are fractions.

    Attributes:
        method: its label.
        accuracy: of the method.
        signed_gap: mean confidence minus accuracy.
        curve_accuracy: what a smaller step reaches at the same signed gap.
        distance: accuracy minus that.
        low: lower end of the interval of the distance.
        high: upper end.
        level: of this interval, after the correction for the number of methods.
        inside: whether the curve reaches this signed gap; beyond its ends the end counts.
    """

    method: str
    accuracy: float
    signed_gap: float
    curve_accuracy: float
    distance: float
    low: float
    high: float
    level: float
    inside: bool


@dataclass(frozen=True)
class _Points:
    """Accuracy and signed gap of some methods, for every draw: each (draws, methods)."""

    accuracy: FloatArray
    gap: FloatArray


def curve_distances(
    curve: Sequence[PooledPredictions],
    methods: Mapping[str, PooledPredictions],
    *,
    generator: np.random.Generator,
    resamples: int = 2000,
    level: float = 0.95,
) -> tuple[CurveDistance, ...]:
    """Measure how far methods lie above the curve that smaller steps trace.

    Args:
        curve: zero-shot, TPT with smaller learning rates, and TPT, on the same pictures.
        methods: what is compared with the curve, by label, on the same pictures.
        generator: the source of all randomness.
        resamples: draws of the pictures.
        level: probability that all intervals together are right (Bonferroni).

    Raises:
        MetricError: fewer than two points, no method, or other pictures.
    """
    if len(curve) < FEWEST_POINTS or not methods:
        raise MetricError("A curve needs two points, and a method to compare with it.")
    everyone = [*curve, *methods.values()]
    for other in everyone[1:]:
        check_paired(everyone[0], other)
    own = level if len(methods) == 1 else 1 - (1 - level) / len(methods)
    found = _measure(everyone, np.ones((1, len(everyone[0]))))
    sizes = [count for _, count in everyone[0].sets]
    parts = [
        _measure(everyone, counts)
        for counts in resampled_counts(sizes, resamples, generator=generator)
    ]
    drawn = _Points(
        np.concatenate([part.accuracy for part in parts]),
        np.concatenate([part.gap for part in parts]),
    )
    return tuple(
        _distance(label, len(curve), column, found=found, drawn=drawn, level=own)
        for column, label in enumerate(methods, start=len(curve))
    )


def _measure(everyone: Sequence[PooledPredictions], counts: FloatArray) -> _Points:
    """Return accuracy and signed gap of every method under (draws, pictures) counts."""
    total = counts.sum(axis=1, keepdims=True)
    right = np.stack([np.mean([s.correct for s in m.seeds], axis=0) for m in everyone], axis=1)
    sure = np.stack([np.mean([s.confidence for s in m.seeds], axis=0) for m in everyone], axis=1)
    accuracy = counts @ right / total  # (draws, pictures) @ (pictures, methods)
    return _Points(accuracy, counts @ sure / total - accuracy)


def _distance(
    label: str, points: int, column: int, *, found: _Points, drawn: _Points, level: float
) -> CurveDistance:
    estimate = float(_above(found, points, column)[0])
    draws = _above(drawn, points, column)
    interval = centred_interval(draws, estimate=estimate, level=level)
    accuracy, gap = float(found.accuracy[0, column]), float(found.gap[0, column])
    reached = found.gap[0, :points]
    return CurveDistance(
        method=label,
        accuracy=accuracy,
        signed_gap=gap,
        curve_accuracy=accuracy - estimate,
        distance=estimate,
        low=interval.low,
        high=interval.high,
        level=level,
        inside=bool(reached.min() <= gap <= reached.max()),
    )


def _above(points: _Points, curve: int, column: int) -> FloatArray:
    """Return accuracy minus the curve's accuracy at the same signed gap, for every draw."""
    order = np.argsort(points.gap[:, :curve], axis=1, kind="stable")
    gaps = np.take_along_axis(points.gap[:, :curve], order, axis=1)
    heights = np.take_along_axis(points.accuracy[:, :curve], order, axis=1)
    level = [
        np.interp(gap, x, y) for gap, x, y in zip(points.gap[:, column], gaps, heights, strict=True)
    ]
    return np.asarray(points.accuracy[:, column] - np.array(level))
