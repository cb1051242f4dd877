"""Bins of confidence: every sample falls in exactly one.

The paper (following C-TPT) uses 20 equal-width bins, each open below and closed above. Taken
literally that loses a confidence of exactly 0; here the first bin is closed on both sides.

Edges are the float64 numbers nearest to k/bins, so a confidence written as 0.15 lies *on* the edge
3/20. Confidences of lower precision are compared at their own value: the result does not depend on
whether the numbers went through a float64 file.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dtpt.metrics.validation import (
    FloatArray,
    IntArray,
    check_bins,
    check_choice,
    check_confidence,
    check_pair,
)

Closed = Literal["right", "left"]
MassTies = Literal["together", "stable"]


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


def equal_width_bins(
    confidence: npt.ArrayLike, bins: int = 20, *, closed: Closed = "right"
) -> IntArray:
    """Return the equal-width bin (0..bins-1) of each confidence.

    Args:
        confidence: (samples,) in [0, 1].
        bins: number of bins; the paper's diagrams use 20.
        closed: "right" puts a value on an edge into the lower bin (the paper's code), "left" into
            the upper one. Exactly 0 is always in the first bin and exactly 1 in the last.

    Example:
        >>> equal_width_bins([0.0, 0.05, 0.15, 0.951, 1.0]).tolist()
        [0, 0, 2, 19, 19]
        >>> equal_width_bins([0.0, 0.05, 1.0], closed="left").tolist()
        [0, 1, 19]
    """
    return assign_width_bins(check_confidence(confidence), bins, closed=closed)


def assign_width_bins(values: FloatArray, bins: int, *, closed: Closed) -> IntArray:
    """Do what `equal_width_bins` does, on checked values, of which there may be none."""
    check_choice(closed, "closed", choices=("right", "left"))
    inner = width_edges(bins)[1:-1]
    side: Literal["left", "right"] = "left" if closed == "right" else "right"
    return np.searchsorted(inner, values, side=side).astype(np.int64)


def equal_mass_bins(
    confidence: npt.ArrayLike, bins: int = 20, *, ties: MassTies = "together"
) -> IntArray:
    """Return the equal-mass bin of each sample: rank r of n goes to bin floor(r * bins / n).

    With fewer samples than bins every distinct confidence has its own bin.

    Args:
        confidence: (samples,) in [0, 1].
        bins: number of bins.
        ties: "together" keeps equal confidences in one bin, the one of their lowest rank, so that
            sample order does not matter; "stable" splits them in input order, which keeps sizes
            equal within one.

    Example:
        >>> equal_mass_bins([0.9, 0.1, 0.5, 0.5], 2).tolist()
        [1, 0, 0, 0]
        >>> equal_mass_bins([0.9, 0.1, 0.5, 0.5], 2, ties="stable").tolist()
        [1, 0, 0, 1]
    """
    check_choice(ties, "ties", choices=("together", "stable"))
    values = check_confidence(confidence)
    check_bins(bins)
    order = np.argsort(values, kind="stable")
    rank = np.arange(len(values))
    if ties == "together":
        ordered = values[order]
        starts_group = np.concatenate(([True], ordered[1:] != ordered[:-1]))
        rank = np.maximum.accumulate(np.where(starts_group, rank, 0))
    result = np.empty(len(values), dtype=np.int64)
    result[order] = rank * bins // len(values)
    return result


def reliability_bins(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 20, closed: Closed = "right"
) -> ReliabilityBins:
    """Return count, mean confidence and accuracy per equal-width bin.

    Example:
        >>> data = reliability_bins([0.2, 0.4, 0.9], [False, True, True], bins=2)
        >>> data.count.tolist(), data.accuracy.tolist()
        ([2, 1], [0.5, 1.0])
    """
    values, hits = check_pair(confidence, correct)
    member = equal_width_bins(values, bins, closed=closed)
    count = np.bincount(member, minlength=bins)
    size = np.where(count > 0, count, np.nan)  # an empty bin has no mean: NaN
    return ReliabilityBins(
        edges=width_edges(bins),
        count=count,
        mean_confidence=np.bincount(member, weights=values, minlength=bins) / size,
        accuracy=np.bincount(member, weights=hits, minlength=bins) / size,
    )
