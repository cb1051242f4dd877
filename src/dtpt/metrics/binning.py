"""Bins of confidence: every sample falls in exactly one.

The paper (following C-TPT) uses 20 equal-width bins, each open below and closed above. Taken
literally that loses a confidence of exactly 0; here the first bin is closed on both sides.

Edges are the float64 numbers nearest to k/bins, so a confidence written as 0.15 lies *on* the edge
3/20. Confidences of lower precision are compared at their own value: the result does not depend on
whether the numbers went through a float64 file.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.metrics.validation import (
    FloatArray,
    IntArray,
    check_bins,
    check_confidence,
    check_pair,
)


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


def equal_width_bins(confidence: npt.ArrayLike, bins: int = 20) -> IntArray:
    """Return the equal-width bin (0..bins-1) of each confidence.

    A value on an edge belongs to the lower bin, as in the paper's code; exactly 0 to the first.

    Example:
        >>> equal_width_bins([0.0, 0.05, 0.15, 0.951, 1.0]).tolist()
        [0, 0, 2, 19, 19]
    """
    return assign_width_bins(check_confidence(confidence), bins)


def assign_width_bins(values: FloatArray, bins: int) -> IntArray:
    """Do what `equal_width_bins` does, on checked values, of which there may be none."""
    return np.searchsorted(width_edges(bins)[1:-1], values, side="left").astype(np.int64)


def equal_mass_bins(confidence: npt.ArrayLike, bins: int = 20) -> IntArray:
    """Return the equal-mass bin of each sample: rank r of n goes to bin floor(r * bins / n).

    Equal confidences stay in one bin, the one of their lowest rank, so that sample order does not
    matter. With fewer samples than bins every distinct confidence has its own bin.
    """
    values = check_confidence(confidence)
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
