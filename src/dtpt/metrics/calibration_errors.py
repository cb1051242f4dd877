"""Calibration errors: how far confidence is from accuracy. All values are fractions.

Conventions of the paper are the defaults: confidence is the largest softmax probability, 20
equal-width bins open below and closed above, equal-mass bins for the adaptive error, and for the
maximum error the same bins as for the ECE.
"""

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.binning import (
    assign_width_bins,
    equal_mass_bins,
    equal_width_bins,
    reliability_bins,
    width_edges,
)
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_bins,
    check_pair,
    check_predictions,
    float64_blocks,
)

# Points of the grid on which smooth_ece integrates; its spacing bounds the resolution.
SMOOTHING_GRID = 2**13


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
