"""Split a Brier score into calibration and refinement by isotonic regression.

The best non-decreasing map from confidence to accuracy is fitted to the same samples. What it gains
is the calibration part, what remains the refinement part: how well confidence separates right from
wrong once its scale does not matter. No bins are chosen. The map knows the answers, so that in a
small sample it gains a little even for a perfectly calibrated model.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.metrics.validation import BoolArray, FloatArray, check_pair


@dataclass(frozen=True)
class BrierParts:
    """The Brier score of the confidence and its two parts; calibration + refinement = score.

    Attributes:
        score: mean of (correct - confidence)², from 0 to 1.
        calibration: what a perfect monotone recalibration would gain.
        refinement: what would remain.
    """

    score: float
    calibration: float
    refinement: float


def top_brier_parts(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> BrierParts:
    """Return the Brier score of "the prediction is right" and its parts.

    Example:
        >>> parts = top_brier_parts([0.9, 0.9, 0.5, 0.5], [True, True, True, False])
        >>> round(parts.score, 3), round(parts.calibration, 3), round(parts.refinement, 3)
        (0.13, 0.005, 0.125)
    """
    values, hits = check_pair(confidence, correct)
    score = float(((hits - values) ** 2).mean())
    refinement = float(((hits - isotonic_fit(values, hits)) ** 2).mean())
    return BrierParts(score, max(score - refinement, 0.0), refinement)


def isotonic_fit(confidence: FloatArray, correct: BoolArray) -> FloatArray:
    """Return the non-decreasing function of confidence that is nearest to correctness, (samples,).

    Pool adjacent violators: equal confidences are one block from the start; a block whose mean is
    not above that of its predecessor is merged into it.

    Example:
        >>> isotonic_fit(np.array([0.1, 0.2, 0.3]), np.array([False, True, False])).tolist()
        [0.0, 0.5, 0.5]
    """
    levels, place, size = np.unique(confidence, return_inverse=True, return_counts=True)
    hits = np.bincount(place, weights=correct, minlength=len(levels))
    block_hits: list[float] = []
    block_sizes: list[int] = []
    lengths: list[int] = []  # distinct confidences in each block
    for own_hits, own_size in zip(hits.tolist(), size.tolist(), strict=True):
        length = 1
        while block_hits and block_hits[-1] * own_size >= own_hits * block_sizes[-1]:
            own_hits += block_hits.pop()
            own_size += block_sizes.pop()
            length += lengths.pop()
        block_hits.append(own_hits)
        block_sizes.append(own_size)
        lengths.append(length)
    fitted = np.repeat(np.array(block_hits) / np.array(block_sizes), lengths)
    return np.asarray(fitted[place])
