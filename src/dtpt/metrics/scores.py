"""Scores of predictions: accuracy, confidence, Brier score and its parts, log-likelihood."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_confidence,
    check_correct,
    check_pair,
    check_predictions,
    float64_blocks,
)


def accuracy(correct: npt.ArrayLike) -> float:
    """Return the fraction of correct predictions."""
    return float(check_correct(correct).mean())


def mean_confidence(confidence: npt.ArrayLike) -> float:
    """Return the mean confidence."""
    return float(check_confidence(confidence).mean())


def signed_gap(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Return mean confidence minus accuracy: above 0 for an overconfident model.

    It has no bins and no bias, but over- and underconfidence cancel each other.

    Example:
        >>> signed_gap([0.5, 1.0], [True, False])
        0.25
    """
    values, hits = check_pair(confidence, correct)
    return float(values.mean() - hits.mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the Brier score: mean over samples of the squared error summed over classes (0 to 2).

    Example:
        >>> round(brier([[0.7, 0.3], [0.4, 0.6]], [0, 0]), 3)
        0.45
    """
    rows, truth = check_predictions(probabilities, labels)
    return float(brier_losses(label_probability(rows, truth), sum_of_squares(rows)).mean())


def brier_losses(p_label: FloatArray, sum_squares: FloatArray) -> FloatArray:
    """Return each sample's Brier score from its label's probability and its sum of squares."""
    return np.asarray(np.maximum(sum_squares - 2 * p_label + 1, 0.0))  # rounding may fall below 0


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, floor: float = 1e-12) -> float:
    """Return the mean negative log-likelihood in nats.

    Args:
        probabilities: (samples, classes).
        labels: (samples,) class indices.
        floor: smaller probabilities of the label are raised to it, because a half-precision softmax
            underflows to 0; with 0 such a sample makes the result infinite.

    Example:
        >>> round(nll([[0.7, 0.3], [0.4, 0.6]], [0, 0]), 4)
        0.6365
    """
    p_label = label_probability(*check_predictions(probabilities, labels))
    return float(nll_losses(p_label, floor=floor).mean())


def nll_losses(p_label: FloatArray, *, floor: float) -> FloatArray:
    """Return each sample's negative log-likelihood from the probability of its label."""
    if not 0 <= floor < 1:
        raise MetricError(f"floor is {floor}; expected 0 <= floor < 1.")
    with np.errstate(divide="ignore"):  # floor=0 means infinity
        return np.asarray(-np.log(np.clip(p_label, floor, 1.0)), dtype=np.float64)


@dataclass(frozen=True)
class BrierParts:
    """The Brier score of the confidence and its two parts; calibration + refinement = score."""

    score: float  # mean of (correct - confidence)², from 0 to 1
    calibration: float  # what a perfect monotone recalibration would gain
    refinement: float  # what would remain


def top_brier_parts(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> BrierParts:
    """Split the Brier score of "the prediction is right" into calibration and refinement.

    The best non-decreasing map from confidence to accuracy (isotonic regression) is fitted to the
    same samples; no bins are chosen. The map knows the labels, so that in a small sample it gains a
    little even for a perfectly calibrated model.

    Example:
        >>> parts = top_brier_parts([0.9, 0.9, 0.5, 0.5], [True, True, True, False])
        >>> round(parts.score, 3), round(parts.calibration, 3), round(parts.refinement, 3)
        (0.13, 0.005, 0.125)
    """
    from scipy.optimize import isotonic_regression

    values, hits = check_pair(confidence, correct)
    # equal confidences are one point of the map
    distinct, group, size = np.unique(values, return_inverse=True, return_counts=True)
    accuracy_at = np.bincount(group, weights=hits, minlength=len(distinct)) / size
    fitted = isotonic_regression(accuracy_at, weights=size).x[group]  # (samples,)
    score = float(((hits - values) ** 2).mean())
    refinement = float(((hits - fitted) ** 2).mean())
    return BrierParts(score, max(score - refinement, 0.0), refinement)


def top_prediction(probabilities: Probabilities, labels: IntArray) -> tuple[FloatArray, BoolArray]:
    """Return confidence and correctness from checked arrays; of equal classes the first counts."""
    prediction = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(len(labels)), prediction].astype(np.float64)
    return np.minimum(confidence, 1.0), prediction == labels


def label_probability(probabilities: Probabilities, labels: IntArray) -> FloatArray:
    """Return the probability of each sample's label from checked arrays, shape (samples,)."""
    return probabilities[np.arange(len(labels)), labels].astype(np.float64)


def sum_of_squares(probabilities: Probabilities) -> FloatArray:
    """Return each sample's sum over classes of the squared probabilities, shape (samples,)."""
    squares = np.empty(len(probabilities))
    for part, block in float64_blocks(probabilities):
        squares[part] = np.vecdot(block, block)
    return squares
