"""Bootstrap: metrics of resampled predictions, computed without making the resamples.

Whole clusters are drawn: samples of one cluster are not independent. A resample is kept as how
often each cluster was drawn. With the samples sorted once by confidence, bins, ties and ranks are
runs of neighbours, and every metric of a resample is a few passes over its counts; thousands of
resamples take seconds. The intervals cover the sampling of clusters, and of views with them; not
the model, the prompt or the training.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from pydantic import BaseModel, ConfigDict

from dtpt.metrics.calibration_errors import (
    assign_width_bins,
    grid_cells,
    mirrored_spectrum,
    self_consistent_error,
)
from dtpt.metrics.predictions import Conventions, Predictions
from dtpt.metrics.squared_error import SquaredError
from dtpt.metrics.table import metrics_with
from dtpt.metrics.validation import FloatArray, IntArray, check_level

# Counts held at a time; bounds memory to some tens of megabytes whatever the sizes.
CHUNK = 2**20
# Grid of the smooth calibration error: coarser than for one value, because draws show spread only.
SMOOTHING_GRID = 2**9
SMOOTHING_TOLERANCE = 1e-6


class Interval(BaseModel):
    """A confidence interval, in the metric's unit (fractions)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    high: float


def centred_interval(draws: FloatArray, estimate: float, *, level: float) -> Interval:
    """Return the central interval that holds `level` of the draws after centring on the estimate.

    Calibration errors of resamples are biased upwards: their draws can all lie above the estimate.
    The centred interval contains the estimate and shows spread, not bias; it stays within 0 to 1
    where the estimate and all draws do.
    """
    shift = estimate - draws.mean()
    tail = (1 - check_level(level)) / 2
    low, high = np.quantile(draws, [tail, 1 - tail]) + shift
    least = 0.0 if min(estimate, draws.min()) >= 0 else -np.inf
    most = 1.0 if max(estimate, draws.max()) <= 1 else np.inf
    return Interval(low=np.clip(low, least, estimate), high=np.clip(high, estimate, most))


def resampled_metrics(predictions: Predictions, conventions: Conventions) -> tuple[str, ...]:
    """Return the keys of the metrics that can be resampled.

    Resampling supports the default conventions for ties only: no interval rather than a wrong one.
    """
    unsupported: set[str] = set()
    if conventions.drop_smallest:
        unsupported.add("aece")
    if conventions.aurc_ties != "average":
        unsupported |= {"aurc", "augrc"}
    return tuple(
        metric.key
        for metric in metrics_with(known=predictions.known)
        if metric.has_resamples and metric.key not in unsupported
    )


def resampled_counts(
    sizes: Sequence[int], resamples: int, *, generator: np.random.Generator, samples: int = 0
) -> Iterator[FloatArray]:
    """Yield (rows, clusters) arrays: how often each cluster was drawn, in chunks of bounded size.

    Clusters are drawn with replacement within each stratum (`sizes`); positions count over all
    strata. `samples` (by default one per cluster) bounds the chunks, on whose size the numbers do
    not depend.
    """
    count = sum(sizes)
    size_at = np.repeat(sizes, sizes)
    start_at = np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = max(1, CHUNK // max(count, samples))
    for first in range(0, resamples, rows):
        height = min(rows, resamples - first)
        drawn = start_at + generator.integers(size_at, size=(height, count))
        drawn += np.arange(height)[:, None] * count  # one range of numbers per resample
        counts = np.bincount(drawn.ravel(), minlength=height * count)
        yield counts.reshape(height, count).astype(np.float64)


class SortedSamples:
    """What all resamples of some predictions share, sorted by descending confidence."""

    def __init__(self, predictions: Predictions, conventions: Conventions) -> None:
        order = np.argsort(-predictions.confidence, kind="stable")  # (n,) original indices
        hits = predictions.correct[order]
        self.clusters = predictions.cluster_codes[order]
        self.confidence = predictions.confidence[order]
        self.wrong = (~hits).astype(np.float64)  # (n,) 1 for an error
        self.residual: FloatArray = hits - self.confidence
        self.losses = {  # (n,) values whose mean is a metric, by its key
            metric.key: metric.per_sample(predictions, conventions)[order]
            for metric in metrics_with(known=predictions.known)
            if metric.per_sample is not None
        }
        # first sample of each occupied equal-width bin, and of each group of equal confidence
        self.bins = assign_width_bins(self.confidence, conventions.bins)
        self.bin_starts = _run_starts(self.bins)
        self.tie_starts = _run_starts(self.confidence)
        self.aece_bins = conventions.mass_bins

    @cached_property
    def squared_error(self) -> SquaredError:
        return SquaredError(self.residual, self.bins, clusters=self.clusters)


def _run_starts(values: FloatArray | IntArray) -> IntArray:
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))


class Resamples:
    """Some resamples of sorted samples; every property has one entry per resample, (rows,).

    Args:
        samples: What all resamples share.
        drawn: How often each cluster was drawn, (rows, clusters).
    """

    def __init__(self, samples: SortedSamples, drawn: FloatArray) -> None:
        self.samples = samples
        self.drawn = drawn
        self.counts = drawn[:, samples.clusters]  # (rows, n)
        self.total = self.counts.sum(axis=1)  # clusters may differ in size

    def mean(self, key: str) -> FloatArray:
        """Return the mean of one of the samples' losses."""
        return np.asarray(self.counts @ self.samples.losses[key] / self.total)

    @cached_property
    def weighted(self) -> FloatArray:
        """Residuals as often as drawn, (rows, n)."""
        return self.counts * self.samples.residual

    @cached_property
    def gaps(self) -> FloatArray:
        """Absolute sum of the residuals of each occupied bin, (rows, occupied bins)."""
        return np.abs(np.add.reduceat(self.weighted, self.samples.bin_starts, axis=1))

    @cached_property
    def tie_sizes(self) -> FloatArray:
        """Samples of each group of equal confidence, (rows, groups)."""
        return self._per_tie(self.counts)

    def _per_tie(self, values: FloatArray) -> FloatArray:
        starts = self.samples.tie_starts
        if len(starts) == values.shape[1]:  # no ties: nothing to add up
            return values
        return np.asarray(np.add.reduceat(values, starts, axis=1))

    @property
    def ece(self) -> FloatArray:
        return np.asarray(self.gaps.sum(axis=1) / self.total)

    @property
    def mce(self) -> FloatArray:
        sizes = np.add.reduceat(self.counts, self.samples.bin_starts, axis=1)
        return np.asarray((self.gaps / np.maximum(sizes, 1)).max(axis=1))

    @property
    def ece_above_floor(self) -> FloatArray:
        """ECE minus an approximate floor.

        A bin's mean absolute deviation is taken for that of a normal distribution, or for 2 V where
        the variance V is small. The approximation shifts all resamples alike.
        """
        chance = self.samples.confidence * (1 - self.samples.confidence)
        variance = np.add.reduceat(self.counts * chance, self.samples.bin_starts, axis=1)
        floor = np.minimum(2 * variance, np.sqrt(2 / np.pi * variance)).sum(axis=1)
        return np.asarray(self.ece - floor / self.total)

    @property
    def absolute_gap(self) -> FloatArray:
        """Absolute gap, linear around the estimate.

        The absolute value of a draw would fold the spread of a gap near 0 and understate it.
        """
        sign = np.sign(self.samples.losses["signed_gap"].mean()) or 1.0
        return np.asarray(sign * self.mean("signed_gap"))

    @property
    def squared_ce(self) -> FloatArray:
        return self.samples.squared_error.draws(self.drawn)

    @property
    def aece(self) -> FloatArray:
        """Adaptive calibration error: tie groups go to the equal-mass bin of their lowest rank."""
        rows, bins = len(self.counts), self.samples.aece_bins
        reached = np.cumsum(self.tie_sizes, axis=1).astype(np.int64)
        total = self.total.astype(np.int64)[:, None]
        rank = total - reached  # ascending: 0 = least confident
        member = np.minimum(rank * bins // total, bins - 1)  # of groups nobody drew: rank n
        member += np.arange(rows)[:, None] * bins
        gaps = self._per_tie(self.weighted)
        sums = np.bincount(member.ravel(), weights=gaps.ravel(), minlength=rows * bins)
        return np.asarray(np.abs(sums.reshape(rows, bins)).sum(axis=1) / self.total)

    @cached_property
    def _tie_errors(self) -> tuple[FloatArray, FloatArray]:
        """Errors of each tie group, and errors up to and including it, both (rows, groups)."""
        wrong = self._per_tie(self.counts * self.samples.wrong)
        return wrong, np.cumsum(wrong, axis=1)

    @property
    def aurc(self) -> FloatArray:
        """Area under the risk-coverage curve.

        Inside a group of m samples with e errors, after a samples with E errors, the expected risks
        (E + j e/m) / (a + j), j = 1..m, sum to e + (E - a e/m) (H(a+m) - H(a)).
        """
        sizes, (wrong, errors) = self.tie_sizes, self._tie_errors
        reached = np.cumsum(sizes, axis=1)
        before = reached - sizes
        surplus = (errors - wrong) - before * (wrong / np.maximum(sizes, 1))
        harmonic = np.concatenate(([0.0], np.cumsum(1 / np.arange(1, self.total.max() + 1))))
        sums = harmonic[reached.astype(np.int64)]
        width = np.diff(sums, axis=1, prepend=0.0)  # a group starts where its predecessor ended
        return np.asarray((wrong + surplus * width).sum(axis=1) / self.total)

    @property
    def augrc(self) -> FloatArray:
        wrong, errors = self._tie_errors
        area = self.tie_sizes * (errors - wrong / 2)
        return np.asarray(area.sum(axis=1) / self.total**2)

    @property
    def smooth_ece(self) -> FloatArray:
        """Smooth calibration error, on a coarse grid."""
        left, fraction = grid_cells(self.samples.confidence, grid=SMOOTHING_GRID)
        starts = _run_starts(left)
        both = np.add.reduceat(self.weighted, starts, axis=1)
        upper = np.add.reduceat(self.weighted * fraction, starts, axis=1)
        line = np.zeros((len(self.counts), SMOOTHING_GRID + 1))
        line[:, left[starts]] = both - upper
        line[:, left[starts] + 1] += upper
        spectrum = mirrored_spectrum(line / self.total[:, None])
        return self_consistent_error(spectrum, tolerance=SMOOTHING_TOLERANCE)
