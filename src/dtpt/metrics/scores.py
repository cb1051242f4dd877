"""Scores of predictions: accuracy, confidence, Brier score and its parts, log-likelihood."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_pair,
    check_predictions,
    float64_blocks,
)

# Smaller probabilities of the label count as this: a half-precision softmax underflows to 0.
NLL_FLOOR = 1e-12


def signed_gap(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Return mean confidence minus accuracy: above 0 for an overconfident model.

    It has no bins and no bias, but over- and underconfidence cancel each other.
    """
    values, hits = check_pair(confidence, correct)
    return float(values.mean() - hits.mean())


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the Brier score: the mean squared error summed over classes (0 to 2)."""
    rows, truth = check_predictions(probabilities, labels)
    return float(brier_losses(label_probability(rows, truth), sum_of_squares(rows)).mean())


def brier_losses(p_label: FloatArray, sum_squares: FloatArray) -> FloatArray:
    """Return each sample's Brier score from its label's probability and its sum of squares."""
    return np.asarray(np.maximum(sum_squares - 2 * p_label + 1, 0.0))  # rounding may fall below 0


def nll(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the mean negative log-likelihood in nats."""
    return float(nll_losses(label_probability(*check_predictions(probabilities, labels))).mean())


def nll_losses(p_label: FloatArray) -> FloatArray:
    """Return each sample's negative log-likelihood from the probability of its label."""
    return np.asarray(-np.log(np.clip(p_label, NLL_FLOOR, 1.0)), dtype=np.float64)


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
