"""Accuracy and the two proper scores, Brier and negative log-likelihood."""

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    Probabilities,
    check_correct,
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


def brier(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the Brier score: mean over samples of the squared error summed over classes (0 to 2).

    Example:
        >>> round(brier([[0.7, 0.3], [0.4, 0.6]], [0, 0]), 3)
        0.45
    """
    return float(brier_losses(*check_predictions(probabilities, labels)).mean())


def brier_losses(probabilities: Probabilities, labels: IntArray) -> FloatArray:
    """Return each sample's Brier score from checked arrays, shape (samples,).

    Example:
        >>> brier_losses(np.array([[0.7, 0.3]]), np.array([1])).round(3).tolist()
        [0.98]
    """
    squares = np.empty(len(labels))
    for part, block in float64_blocks(probabilities):
        squares[part] = np.vecdot(block, block)
    own = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return np.asarray(np.maximum(squares - 2 * own + 1, 0.0))  # rounding may fall below 0


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
    return float(nll_losses(*check_predictions(probabilities, labels), floor=floor).mean())


def nll_losses(probabilities: Probabilities, labels: IntArray, *, floor: float) -> FloatArray:
    """Return each sample's negative log-likelihood from checked arrays, shape (samples,).

    Example:
        >>> nll_losses(np.array([[1.0, 0.0]]), np.array([1]), floor=1e-12).round(2).tolist()
        [27.63]
    """
    if not 0 <= floor < 1:
        raise MetricError(f"floor is {floor}; expected 0 <= floor < 1.")
    own = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    with np.errstate(divide="ignore"):  # floor=0 asks for infinity
        return np.asarray(-np.log(np.clip(own, floor, 1.0)), dtype=np.float64)
