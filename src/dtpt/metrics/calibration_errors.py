"""Calibration errors: how far confidence is from accuracy, and what chance alone gives.

Conventions of the paper are the defaults: confidence is the largest softmax probability, 20
equal-width bins open below and closed above, equal-mass bins for the adaptive error, and for the
maximum error the same bins as for the ECE. Taken literally that loses a confidence of exactly 0;
here the first bin is closed on both sides. Edges are the float64 numbers nearest to k/bins, so a
confidence written as 0.15 lies *on* the edge 3/20, and confidences of lower precision are compared
at their own value. All values are fractions.

Binned errors are never zero in a finite sample. With 64 samples in 20 bins, a model whose
confidence is exactly right has an ECE of about 16 %. That noise floor is computed, not simulated:
the model keeps its confidences, every prediction is right with a probability equal to its
confidence, and in each bin the number of right ones follows a Poisson binomial distribution.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_bins,
    check_fraction,
    check_level,
    check_pair,
    check_predictions,
    float64_blocks,
)

# Points of the grid on which smooth_ece integrates; its spacing bounds the resolution.
SMOOTHING_GRID = 2**13
# Bins with more samples are approximated; exact takes a tenth of a second for that many.
MOST_EXACT = 2**15


@dataclass(frozen=True)
class ReliabilityBins:
    """The data of a reliability diagram; all values are fractions."""

    edges: FloatArray  # (bins + 1,) from 0 to 1
    count: IntArray  # (bins,)
    mean_confidence: FloatArray  # (bins,), NaN where the bin is empty
    accuracy: FloatArray  # (bins,), NaN where the bin is empty


def width_edges(bins: int) -> FloatArray:
    """Return the bins + 1 edges k/bins, each the nearest float64."""
    # linspace multiplies by a rounded step and misses some of these by one ulp
    return np.arange(check_bins(bins) + 1) / np.float64(bins)


def reliability_columns(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int
) -> dict[str, list[float]]:
    """Return what a reliability diagram shows of every bin with predictions, as plain lists.

    `chance_low` and `chance_high` bound the accuracy of a perfectly calibrated model.
    """
    data, band = reliability_bins(confidence, correct, bins=bins), calibrated_band(confidence, bins)
    columns = {
        "low": data.edges[:-1],
        "high": data.edges[1:],
        "count": data.count,
        "confidence": data.mean_confidence,
        "accuracy": data.accuracy,
        "chance_low": band.low,
        "chance_high": band.high,
    }
    return {name: values[data.count > 0].tolist() for name, values in columns.items()}


def equal_width_bins(confidence: npt.ArrayLike, bins: int = 20) -> IntArray:
    """Return the equal-width bin (0..bins-1) of each confidence.

    A value on an edge belongs to the lower bin, as in the paper's code; exactly 0 to the first.

    Example:
        >>> equal_width_bins([0.0, 0.05, 0.15, 0.951, 1.0]).tolist()
        [0, 0, 2, 19, 19]
    """
    return assign_width_bins(check_fraction(confidence), bins)


def assign_width_bins(values: FloatArray, bins: int) -> IntArray:
    """Do what `equal_width_bins` does, on checked values, of which there may be none."""
    return np.searchsorted(width_edges(bins)[1:-1], values, side="left").astype(np.int64)


def equal_mass_bins(confidence: npt.ArrayLike, bins: int = 20) -> IntArray:
    """Return the equal-mass bin of each sample: rank r of n goes to bin floor(r * bins / n).

    Equal confidences stay in one bin, the one of their lowest rank, so that sample order does not
    matter. With fewer samples than bins every distinct confidence has its own bin.
    """
    values = check_fraction(confidence)
    check_bins(bins)
    ordered = np.sort(values)
    rank = np.searchsorted(ordered, values, side="left")  # the lowest among equals
    return rank * bins // len(values)


def reliability_bins(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 20
) -> ReliabilityBins:
    """Return count, mean confidence and accuracy per equal-width bin."""
    values, hits = check_pair(confidence, correct)
    member = equal_width_bins(values, bins)
    count = np.bincount(member, minlength=bins)
    size = np.where(count > 0, count, np.nan)  # an empty bin has no mean: NaN
    return ReliabilityBins(
        edges=width_edges(bins),
        count=count,
        mean_confidence=np.bincount(member, weights=values, minlength=bins) / size,
        accuracy=np.bincount(member, weights=hits, minlength=bins) / size,
    )


def ece(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 20) -> float:
    """Return the expected calibration error: the mean of |accuracy - confidence| over bins.

    Each equal-width bin counts with its fraction of the samples.
    """
    values, hits = check_pair(confidence, correct)
    return _binned_error(hits - values, equal_width_bins(values, bins))


def aece(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    bins: int = 20,
    drop_smallest: bool = False,
) -> float:
    """Return the adaptive calibration error: like `ece`, but over bins of equal mass.

    The paper does not state the number of bins; the code of O-TPT has 15. `drop_smallest`
    reproduces that code, which interpolates bin edges between the sorted confidences and leaves the
    smallest confidence(s) in no bin.
    """
    values, hits = check_pair(confidence, correct)
    check_bins(bins)
    if drop_smallest:
        return _aece_without_smallest(values, hits, bins=bins)
    return _binned_error(hits - values, equal_mass_bins(values, bins))


def mce(confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 20) -> float:
    """Return the maximum calibration error: the largest |accuracy - confidence| of a bin.

    Bins are those of `ece`. A bin with a single sample counts fully, as in the code behind the
    paper, so the value is noisy where few samples have a low or a high confidence.
    """
    data = reliability_bins(confidence, correct, bins=bins)
    return float(np.nanmax(np.abs(data.accuracy - data.mean_confidence)))


def classwise_ece(probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, bins: int = 20) -> float:
    """Return the mean over classes of the ECE of "this sample is of class k"."""
    rows, truth = check_predictions(probabilities, labels)
    return float(classwise_errors(rows, truth, bins=bins).mean())


def classwise_errors(probabilities: Probabilities, labels: IntArray, *, bins: int) -> FloatArray:
    """Return the ECE of each class from checked arrays, shape (classes,)."""
    # With many classes nearly all probabilities are in the first bin: only the others are sorted
    # into bins, and the first bin is what remains of the class's total.
    samples, classes = probabilities.shape
    first_edge = width_edges(bins)[1]
    total = np.zeros(classes)
    columns, values = [], []
    for _, block in float64_blocks(probabilities):
        total += block.sum(axis=0)
        large = np.flatnonzero(block >= first_edge)
        columns.append(large % classes)
        values.append(block.ravel()[large])
    value = np.concatenate(values)
    cell = np.concatenate(columns) * bins + assign_width_bins(value, bins)
    gaps = np.bincount(cell, weights=value, minlength=classes * bins).reshape(classes, bins)
    gaps[:, 0] += total - gaps.sum(axis=1)
    p_label = probabilities[np.arange(samples), labels].astype(np.float64)
    np.subtract.at(gaps, (labels, assign_width_bins(p_label, bins)), 1.0)
    return np.asarray(np.abs(gaps).sum(axis=1) / samples)


def smooth_ece(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bandwidth: float | None = None
) -> float:
    """Return the smooth calibration error (smECE) of Błasiok and Nakkiran, ICLR 2024.

    The residuals (correct - confidence) are smoothed over confidence by a Gaussian kernel reflected
    at 0 and 1; the error is the integral of the absolute smoothed residual. It shrinks when the
    bandwidth (the kernel's standard deviation) grows. Without a given bandwidth the value is the
    one that equals its own bandwidth, so nothing has to be chosen. Resolution about 1e-4.
    """
    values, hits = check_pair(confidence, correct)
    left, fraction = grid_cells(values, grid=SMOOTHING_GRID)
    mass = (hits - values) / len(values)
    line = np.zeros((1, SMOOTHING_GRID + 1))
    line[0] += np.bincount(left, weights=mass * (1 - fraction), minlength=SMOOTHING_GRID + 1)
    line[0] += np.bincount(left + 1, weights=mass * fraction, minlength=SMOOTHING_GRID + 1)
    spectrum = mirrored_spectrum(line)
    if bandwidth is None:
        return float(self_consistent_error(spectrum, tolerance=1e-10)[0])
    if not 0 <= bandwidth < np.inf:
        raise MetricError(f"bandwidth is {bandwidth}; expected 0 or more.")
    return float(_smoothed_error(spectrum, np.array([bandwidth]))[0])


def _binned_error(residual: FloatArray, member: IntArray) -> float:
    """Sum |accuracy - confidence| weighted by bin size, which is |sum of residuals| / n."""
    gaps = np.bincount(member, weights=residual)
    return float(np.abs(gaps).sum() / len(residual))


def _aece_without_smallest(values: FloatArray, hits: BoolArray, *, bins: int) -> float:
    count = len(values)
    edges = np.interp(np.linspace(0, count, bins + 1), np.arange(count), np.sort(values))
    member = np.searchsorted(edges, values, side="left") - 1  # (lo, hi]; -1 for the smallest
    kept = member >= 0
    gaps = np.bincount(member[kept], weights=(hits - values)[kept], minlength=bins)
    return float(np.abs(gaps).sum() / count)


# Smooth calibration error, for one set of samples or many resamples. Residuals lie on a grid over
# [0, 1] that is mirrored at both ends into a circle. There a Gaussian kernel multiplies Fourier
# coefficients, so that an error at one bandwidth costs one transform.


def grid_cells(position: FloatArray, *, grid: int) -> tuple[IntArray, FloatArray]:
    """Return the grid point below each position and the fraction that belongs to the next one."""
    scaled = position * grid
    left = np.minimum(scaled.astype(np.int64), grid - 1)
    return left, scaled - left


def mirrored_spectrum(line: FloatArray) -> FloatArray:
    """Return cosine coefficients (rows, grid + 1) of masses on a grid, mirrored at 0 and 1."""
    ends = line.copy()
    ends[:, [0, -1]] *= 2  # the mirror image of an end point lies on itself
    circle = np.concatenate((ends, ends[:, -2:0:-1]), axis=1)  # (rows, 2 * grid)
    return np.fft.rfft(circle, axis=1).real


def self_consistent_error(spectrum: FloatArray, *, tolerance: float) -> FloatArray:
    """Return, for each row, the error that equals its own bandwidth.

    The error shrinks while the bandwidth grows, so there is one such point in [0, 1], and the
    difference of the two bounds the distance to it. Regula falsi, Illinois variant.
    """
    rows = len(spectrum)
    low, high = np.zeros(rows), np.ones(rows)
    at_low, at_high = _smoothed_error(spectrum, low), _smoothed_error(spectrum, high) - 1
    side = np.zeros(rows)  # which end moved last
    middle = low
    for _ in range(100):
        span = np.where(at_low > at_high, at_low - at_high, 1.0)
        middle = low + (high - low) * at_low / span
        value = _smoothed_error(spectrum, middle) - middle
        if (np.abs(value) <= tolerance).all():
            break
        right = value > 0  # the crossing lies to the right
        at_high = np.where(right & (side > 0), at_high / 2, at_high)
        at_low = np.where(~right & (side < 0), at_low / 2, at_low)
        low, at_low = np.where(right, middle, low), np.where(right, value, at_low)
        high, at_high = np.where(right, high, middle), np.where(right, at_high, value)
        side = np.where(right, 1.0, -1.0)
    return middle


def _smoothed_error(spectrum: FloatArray, bandwidth: FloatArray) -> FloatArray:
    """Return the integral of the absolute residual, smoothed at each row's bandwidth, (rows,)."""
    frequency = np.pi * np.arange(spectrum.shape[1])
    kernel = np.exp(-0.5 * np.square(bandwidth[:, None] * frequency))
    smoothed = np.fft.irfft(spectrum * kernel, axis=1)  # (rows, 2 * grid)
    return np.asarray(np.abs(smoothed).sum(axis=1) / 2)  # the circle covers [0, 1] twice


@dataclass(frozen=True)
class CalibratedEce:
    """Moments of the ECE of a perfectly calibrated model; the ECE is a fraction."""

    mean: float
    deviation: float
    skewness: float

    def quantile(self, probability: float) -> float:
        """Return a quantile by the Cornish-Fisher expansion: exact moments, approximate tail."""
        z = NormalDist().inv_cdf(check_level(probability))
        return self.mean + self.deviation * (z + self.skewness * (z**2 - 1) / 6)


@dataclass(frozen=True)
class CalibratedBand:
    """Range of the accuracy of a perfectly calibrated model per bin, (bins,); NaN in empty bins."""

    low: FloatArray
    high: FloatArray


def calibrated_ece(confidence: npt.ArrayLike, *, bins: int = 20) -> CalibratedEce:
    """Return the distribution of the ECE of a perfectly calibrated model with these confidences.

    Its mean is the noise floor; an ECE above its 95 % quantile is significantly above the floor.
    Exact for bins of at most 32,768 samples; a larger bin adds an error of at most one sample.
    """
    values = check_fraction(confidence)
    moments = [_absolute_deviation(part) for _, part in _bins_of(values, bins)]
    variance = sum(second - mean**2 for mean, second, _ in moments)
    third = sum(third - 3 * mean * second + 2 * mean**3 for mean, second, third in moments)
    return CalibratedEce(
        mean=sum(mean for mean, _, _ in moments) / len(values),
        deviation=math.sqrt(max(variance, 0.0)) / len(values),
        skewness=third / variance**1.5 if variance > 1e-12 else 0.0,
    )


def calibrated_band(confidence: npt.ArrayLike, bins: int = 20) -> CalibratedBand:
    """Return the accuracies that a perfectly calibrated model has in each bin.

    In each bin at most 5 % of such models lie below the band and as many above it.
    """
    values = check_fraction(confidence)
    low, high = np.full((2, check_bins(bins)), np.nan)
    for index, part in _bins_of(values, bins):
        ends = _success_quantiles(part, np.array([0.05, 0.95])) / len(part)
        low[index], high[index] = np.clip(ends, 0.0, 1.0)
    return CalibratedBand(low, high)


def _bins_of(values: FloatArray, bins: int) -> Iterator[tuple[int, FloatArray]]:
    """Yield index and confidences of each occupied bin."""
    member = equal_width_bins(values, bins)
    order = np.argsort(member, kind="stable")
    indices, starts = np.unique(member[order], return_index=True)
    yield from zip(indices.tolist(), np.split(values[order], starts[1:]), strict=True)


def success_distribution(probabilities: FloatArray) -> FloatArray:
    """Return the probability of 0, 1, ..., n successes in independent trials, shape (n + 1,).

    Generating functions 1 - p + p z are multiplied in pairs, pairs of pairs and so on, by Fourier
    transforms: n log² n steps. The rounding error of an entry stays below 1e-14.
    """
    # scipy.stats.poisson_binom takes n² steps: 2.4 s for 8,000 trials, this 2 ms (2026)
    count = len(probabilities)
    padded = np.zeros(1 << max(count - 1, 0).bit_length())  # a trial that never succeeds is neutral
    padded[:count] = probabilities
    factors = np.stack((1 - padded, padded), axis=1)  # (factors, degree + 1)
    while len(factors) > 1:
        length = 2 * factors.shape[1] - 1
        size = 1 << (length - 1).bit_length()
        spectrum = np.fft.rfft(factors, n=size, axis=1)
        product = np.fft.irfft(spectrum[0::2] * spectrum[1::2], n=size, axis=1)
        factors = product[:, :length]
    return np.asarray(np.clip(factors[0, : count + 1], 0.0, 1.0))  # rounding may fall below 0


def _absolute_deviation(probabilities: FloatArray) -> tuple[float, float, float]:
    """Return the first three moments of |successes - expected successes|.

    Above `MOST_EXACT` trials they are those of a normal distribution. Its mean deviation differs
    from the exact one by at most sum(p q (p² + q²)) / sum(p q) <= 1 trial (the mean central limit
    theorem with constant one), which is 3e-5 of that many trials.
    """
    variance = float(np.sum(probabilities * (1 - probabilities)))
    if len(probabilities) > MOST_EXACT:
        mean = math.sqrt(2 * variance / math.pi)
        return mean, variance, 2 * variance * mean
    mass = success_distribution(probabilities)
    distance = np.abs(np.arange(len(mass)) - probabilities.sum())
    return float(mass @ distance), variance, float(mass @ distance**3)


def _success_quantiles(probabilities: FloatArray, levels: FloatArray) -> FloatArray:
    """Return, for each level, the smallest number of successes that is reached with at least it."""
    if len(probabilities) > MOST_EXACT:
        spread = math.sqrt(np.sum(probabilities * (1 - probabilities)))
        z = [NormalDist().inv_cdf(level) for level in levels]
        return np.asarray(np.round(probabilities.sum() + spread * np.array(z)))
    reached = np.cumsum(success_distribution(probabilities))
    return np.searchsorted(reached, levels - 1e-12).astype(np.float64)
