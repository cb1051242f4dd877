"""Calibration errors: how far confidence is from accuracy. All values are fractions.

Conventions of the paper are the defaults: confidence is the largest softmax probability, 20
equal-width bins open below and closed above, equal-mass bins for the adaptive error, and for the
maximum error the same bins as for the ECE.
"""

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.binning import (
    Closed,
    MassTies,
    assign_width_bins,
    equal_mass_bins,
    equal_width_bins,
    reliability_bins,
    width_edges,
)
from dtpt.metrics.smoothing import (
    mirrored_spectrum,
    self_consistent_error,
    shared_cells,
    smoothed_error,
)
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_bins,
    check_choice,
    check_pair,
    check_predictions,
    float64_blocks,
)

# Points of the grid on which smooth_ece integrates; its spacing bounds the resolution.
SMOOTHING_GRID = 2**13


def ece(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 20, closed: Closed = "right"
) -> float:
    """Return the expected calibration error, the mean of |accuracy - confidence| over bins.

    Each equal-width bin counts with its share of the samples.

    Example:
        >>> round(ece([0.8, 0.8, 0.6, 0.3], [True, True, False, False]), 3)
        0.325
    """
    values, hits = check_pair(confidence, correct)
    return _binned_error(hits - values, equal_width_bins(values, bins, closed=closed))


def aece(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    bins: int = 20,
    ties: MassTies = "together",
    drop_smallest: bool = False,
) -> float:
    """Return the adaptive calibration error: like `ece`, but over bins of equal mass.

    Args:
        confidence: (samples,) in [0, 1].
        correct: (samples,) whether the prediction was right.
        bins: number of bins. The paper does not state it; the code of O-TPT has 15.
        ties: see `equal_mass_bins`.
        drop_smallest: reproduce O-TPT's code, which interpolates bin edges between the sorted
            confidences and leaves the smallest confidence(s) in no bin. Ignores `ties`.

    Example:
        >>> round(aece([0.9, 0.1, 0.5, 0.5], [True, False, True, False], bins=2), 3)
        0.05
    """
    values, hits = check_pair(confidence, correct)
    check_bins(bins)
    if drop_smallest:
        return _aece_without_smallest(values, hits, bins=bins)
    return _binned_error(hits - values, equal_mass_bins(values, bins, ties=ties))


def mce(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 20, closed: Closed = "right"
) -> float:
    """Return the maximum calibration error: the largest |accuracy - confidence| of a bin.

    Bins are those of `ece`. A bin with a single sample counts fully, as in the code behind the
    paper, so the value is noisy where few samples have a low or a high confidence.

    Example:
        >>> round(mce([0.8, 0.8, 0.6, 0.3], [True, True, False, False]), 3)
        0.6
    """
    data = reliability_bins(confidence, correct, bins=bins, closed=closed)
    return float(np.nanmax(np.abs(data.accuracy - data.mean_confidence)))


def classwise_ece(
    probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    bins: int = 20,
    closed: Closed = "right",
) -> float:
    """Return the mean over classes of the ECE of "this sample is of class k".

    Example:
        >>> round(classwise_ece([[0.7, 0.3], [0.6, 0.4]], [0, 1], bins=4), 3)
        0.15
    """
    rows, truth = check_predictions(probabilities, labels)
    return float(classwise_errors(rows, truth, bins=bins, closed=closed).mean())


def classwise_errors(
    probabilities: Probabilities, labels: IntArray, *, bins: int, closed: Closed
) -> FloatArray:
    """Return the ECE of each class from checked arrays, shape (classes,).

    With many classes nearly all probabilities are in the first bin: only the others are sorted
    into bins, and the first bin is what remains of the class's total.

    Example:
        >>> p, y = np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1])
        >>> classwise_errors(p, y, bins=2, closed="right").round(3).tolist()
        [0.4, 0.4]
    """
    check_choice(closed, "closed", choices=("right", "left"))
    samples, classes = probabilities.shape
    first_edge = width_edges(bins)[1]
    total = np.zeros(classes)
    places, values = [], []
    for _, block in float64_blocks(probabilities):
        total += block.sum(axis=0)
        found = np.flatnonzero(block >= first_edge)
        places.append(found % classes)
        values.append(block.ravel()[found])
    value = np.concatenate(values)
    cell = np.concatenate(places) * bins + assign_width_bins(value, bins, closed=closed)
    gaps = np.bincount(cell, weights=value, minlength=classes * bins).reshape(classes, bins)
    gaps[:, 0] += total - gaps.sum(axis=1)
    own = probabilities[np.arange(samples), labels].astype(np.float64)
    np.subtract.at(gaps, (labels, assign_width_bins(own, bins, closed=closed)), 1.0)
    return np.asarray(np.abs(gaps).sum(axis=1) / samples)


def smooth_ece(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bandwidth: float | None = None
) -> float:
    """Return the smooth calibration error (smECE) of Błasiok and Nakkiran, ICLR 2024.

    The residuals (correct - confidence) are smoothed over confidence by a Gaussian kernel reflected
    at 0 and 1; the error is the integral of the absolute smoothed residual. It shrinks when the
    bandwidth grows, and the reported value is the one that equals its own bandwidth, so no bin or
    width has to be chosen. Resolution about 1e-4.

    Args:
        confidence: (samples,) in [0, 1].
        correct: (samples,) whether the prediction was right.
        bandwidth: standard deviation of the kernel; `None` for the self-consistent one.

    Example:
        >>> round(smooth_ece([0.5, 0.5, 0.5], [True, True, True]), 6)
        0.5
    """
    values, hits = check_pair(confidence, correct)
    left, share = shared_cells(values, grid=SMOOTHING_GRID)
    mass = (hits - values) / len(values)
    line = np.zeros((1, SMOOTHING_GRID + 1))
    line[0] += np.bincount(left, weights=mass * (1 - share), minlength=SMOOTHING_GRID + 1)
    line[0] += np.bincount(left + 1, weights=mass * share, minlength=SMOOTHING_GRID + 1)
    spectrum = mirrored_spectrum(line)
    if bandwidth is None:
        return float(self_consistent_error(spectrum, tolerance=1e-10)[0])
    if not 0 <= bandwidth < np.inf:
        raise MetricError(f"bandwidth is {bandwidth}; expected 0 or more.")
    return float(smoothed_error(spectrum, np.array([bandwidth]))[0])


def _binned_error(residual: FloatArray, member: IntArray) -> float:
    """Sum |accuracy - confidence| weighted by bin share, which is |sum of residuals| / n."""
    gaps = np.bincount(member, weights=residual)
    return float(np.abs(gaps).sum() / len(residual))


def _aece_without_smallest(values: FloatArray, hits: BoolArray, *, bins: int) -> float:
    count = len(values)
    edges = np.interp(np.linspace(0, count, bins + 1), np.arange(count), np.sort(values))
    member = np.searchsorted(edges, values, side="left") - 1  # (lo, hi]; -1 for the smallest
    kept = member >= 0
    gaps = np.bincount(member[kept], weights=(hits - values)[kept], minlength=bins)
    return float(np.abs(gaps).sum() / count)
