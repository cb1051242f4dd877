"""From log-probabilities to calibrated probabilities, and to how odd each class would be.

A promise holds only if a new picture is scored exactly as the labelled ones were. So every score
starts from log-probabilities as a run stores them (float16, three digits), and is rounded to nine
decimals, so that equal votes stay equal on every machine.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import PromiseError

FloatArray = npt.NDArray[np.float64]
Stored = npt.NDArray[np.float16]

# A probability of 0 (no view voted for the class) counts as 1e-12, as in the log-likelihood.
LOG_FLOOR = float(np.log(1e-12))
DIGITS = 9


def as_stored(log_probabilities: npt.ArrayLike) -> Stored:
    """Return (n, C) log-probabilities with the digits that a run keeps, none below log 1e-12.

    Doing it twice does no harm.

    Raises:
        PromiseError: the shape is another, or a number is NaN.

    Example:
        >>> as_stored([[-0.123456, -np.inf]]).tolist()
        [[-0.12347412109375, -27.625]]
    """
    rows = np.asarray(log_probabilities)
    if rows.ndim != 2 or rows.shape[1] < 2 or np.isnan(rows).any():
        raise PromiseError(
            f"Expected log-probabilities (pictures, classes) without NaN, got {rows.shape}."
        )
    return rows if rows.dtype == np.float16 else np.clip(rows, LOG_FLOOR, 0.0).astype(np.float16)


def calibrated(log_probabilities: npt.ArrayLike, temperature: float) -> FloatArray:
    """Return softmax(log p / T) of every row (n, C).

    Example:
        >>> calibrated(np.log([[0.8, 0.2]]), 2.0).round(2).tolist()
        [[0.67, 0.33]]
    """
    shifted = as_stored(log_probabilities).astype(np.float64) / temperature
    weight = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    return np.asarray((weight / weight.sum(axis=1, keepdims=True)).round(DIGITS))


def lac_scores(probabilities: FloatArray) -> FloatArray:
    """Return 1 - p of every class (n, C): the less probable, the odder.

    "LAC" is short for least ambiguous classifier: among sets of one level these are the smallest
    on average, at the cost of fewer hits on difficult pictures.

    Example:
        >>> lac_scores(np.array([[0.75, 0.25]])).tolist()
        [[0.25, 0.75]]
    """
    return np.asarray(1 - probabilities)


def aps_scores(probabilities: FloatArray, *, ranked: bool = False) -> FloatArray:
    """Return, for every class (n, C), the mass of the classes that are more probable.

    Adaptive prediction sets, without randomness: the same picture always gets the same set. The
    most probable class scores 0, so no set is empty; classes of equal probability share a score.

    Args:
        probabilities: (n, C).
        ranked: whether the classes of every row stand in the order of falling probability.

    Example:
        >>> aps_scores(np.array([[0.25, 0.5, 0.25, 0.0]])).tolist()
        [[0.5, 0.0, 0.5, 1.0]]
    """
    if ranked:
        return _mass_above(probabilities)
    order = falling(probabilities)
    above = _mass_above(np.take_along_axis(probabilities, order, axis=1))
    scores = np.empty_like(above)
    np.put_along_axis(scores, order, above, axis=1)
    return scores


def falling(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int64]:
    """Return the classes of every row (n, C) by falling value.

    Example:
        >>> falling(np.array([[0.2, 0.5, 0.3]])).tolist()
        [[1, 2, 0]]
    """
    return np.argsort(-values, axis=1, kind="stable")


def _mass_above(ordered: FloatArray) -> FloatArray:
    """Return the sum of what stands before each of the falling numbers of a row, equals apart."""
    above = np.cumsum(ordered, axis=1)
    above -= ordered
    above[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0.0
    return np.asarray(np.minimum(np.maximum.accumulate(above, axis=1), 1.0))  # but for rounding
