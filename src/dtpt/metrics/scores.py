"""Scores that are means over samples: accuracy, confidence, Brier, negative log-likelihood."""

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
    """Return the share of correct predictions.

    Example:
        >>> accuracy([True, True, False, True])
        0.75
    """
    return float(check_correct(correct).mean())


def confidence_and_correct(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[FloatArray, BoolArray]:
    """Return the largest probability of each sample and whether its class is the label.

    Of equal probabilities the first class is the prediction.

    Example:
        >>> confidence, correct = confidence_and_correct([[0.7, 0.3], [0.4, 0.6]], [0, 0])
        >>> confidence.tolist(), correct.tolist()
        ([0.7, 0.6], [True, False])
    """
    return top_prediction(*check_predictions(probabilities, labels))


def top_prediction(probabilities: Probabilities, labels: IntArray) -> tuple[FloatArray, BoolArray]:
    """Do what `confidence_and_correct` does, on checked arrays.

    Example:
        >>> top_prediction(np.array([[0.7, 0.3]]), np.array([1]))[1].tolist()
        [False]
    """
    prediction = probabilities.argmax(axis=1)
    confidence = probabilities[np.arange(len(labels)), prediction].astype(np.float64)
    return np.minimum(confidence, 1.0), prediction == labels


def mean_confidence(confidence: npt.ArrayLike) -> float:
    """Return the mean confidence.

    Example:
        >>> mean_confidence([0.5, 1.0])
        0.75
    """
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
    losses = brier_losses(label_probability(rows, truth), squares_of_rows(rows))
    return float(losses.mean())


def brier_losses(p_label: FloatArray, sum_squares: FloatArray) -> FloatArray:
    """Return each sample's Brier score from its label's probability and its sum of squares.

    Example:
        >>> brier_losses(np.array([0.3]), np.array([0.58])).round(3).tolist()
        [0.98]
    """
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
    own = label_probability(*check_predictions(probabilities, labels))
    return float(nll_losses(own, floor=floor).mean())


def nll_losses(p_label: FloatArray, *, floor: float) -> FloatArray:
    """Return each sample's negative log-likelihood from the probability of its label.

    Example:
        >>> nll_losses(np.array([0.0]), floor=1e-12).round(2).tolist()
        [27.63]
    """
    if not 0 <= floor < 1:
        raise MetricError(f"floor is {floor}; expected 0 <= floor < 1.")
    with np.errstate(divide="ignore"):  # floor=0 asks for infinity
        return np.asarray(-np.log(np.clip(p_label, floor, 1.0)), dtype=np.float64)


def label_probability(probabilities: Probabilities, labels: IntArray) -> FloatArray:
    """Return the probability of each sample's label from checked arrays, shape (samples,).

    Example:
        >>> label_probability(np.array([[0.7, 0.3]]), np.array([1])).tolist()
        [0.3]
    """
    return probabilities[np.arange(len(labels)), labels].astype(np.float64)


def squares_of_rows(probabilities: Probabilities) -> FloatArray:
    """Return each sample's sum over classes of the squared probabilities, shape (samples,).

    Example:
        >>> squares_of_rows(np.array([[0.5, 0.5]])).tolist()
        [0.5]
    """
    squares = np.empty(len(probabilities))
    for part, block in float64_blocks(probabilities):
        squares[part] = np.vecdot(block, block)
    return squares
