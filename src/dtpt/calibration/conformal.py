"""Split conformal prediction: nonconformity scores of classes, and the score that a set admits.

Let s be the score of the true class of n labelled images, and q the k-th smallest of them with
k = ⌈(n + 1) · coverage⌉. The prediction set of a new image holds every class that scores at most q.
If the new image and the n are exchangeable, the rank of its true class among all n + 1 scores is
uniform, so the set misses it with a probability of at most 1 - coverage, whatever the model and the
score. Ties only add classes. The guarantee is marginal: an average over draws of the labelled
images and of the new one, not for each class or kind of image.

It holds only if a new image is scored exactly as the labelled ones were. So every score starts from
log-probabilities as a run stores them (float16, three digits), and is rounded to nine decimals, so
that equal votes stay equal on every machine.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import CalibrationError

FloatArray = npt.NDArray[np.float64]
Stored = npt.NDArray[np.float16]

# A probability of 0 (no view voted for the class) counts as 1e-12, as in the log-likelihood.
LOG_FLOOR = float(np.log(1e-12))
DIGITS = 9
_ROUNDING = 1e-9  # 0.9 · 10 is 9


def as_stored(log_probabilities: npt.ArrayLike) -> Stored:
    """Return (n, C) log-probabilities with the digits that a run keeps, none below log 1e-12."""
    rows = np.asarray(log_probabilities)
    if rows.ndim != 2 or rows.shape[1] < 2 or np.isnan(rows).any():
        raise CalibrationError(
            f"Expected log-probabilities (images, classes) without NaN, got shape {rows.shape}."
        )
    return rows if rows.dtype == np.float16 else np.clip(rows, LOG_FLOOR, 0.0).astype(np.float16)


def calibrated_probabilities(log_probabilities: npt.ArrayLike, temperature: float) -> FloatArray:
    """Return softmax(log p / T) of every row (n, C)."""
    shifted = as_stored(log_probabilities).astype(np.float64) / temperature
    p = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    return np.asarray((p / p.sum(axis=1, keepdims=True)).round(DIGITS))


def lac_scores(probabilities: FloatArray) -> FloatArray:
    """Return 1 - p of every class (n, C).

    Least ambiguous classifier: the smallest sets on average, at the cost of lower coverage on
    difficult images.
    """
    return np.asarray(1 - probabilities)


def aps_scores(probabilities: FloatArray, *, ranked: bool = False) -> FloatArray:
    """Return, for every class (n, C), the mass of the classes that are more probable.

    Adaptive prediction sets, without randomisation: the same image always gets the same set. The
    most probable class scores 0, so no set is empty; classes of equal probability have equal
    scores. `ranked`: the classes of every row are in order of falling probability.

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
    """Return the classes of every row (n, C) by falling value."""
    return np.argsort(-values, axis=1, kind="stable")


def _mass_above(ordered: FloatArray) -> FloatArray:
    """Return the sum before each of the falling numbers of a row, without those equal to it."""
    above = np.cumsum(ordered, axis=1)
    above -= ordered
    above[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0.0
    return np.asarray(np.minimum(np.maximum.accumulate(above, axis=1), 1.0))  # but for rounding


def least_images(coverage: float) -> int:
    """Return the smallest number of labelled images that allows a coverage.

    Example:
        >>> least_images(0.9), least_images(0.95), least_images(0.99)
        (9, 19, 99)
    """
    return math.ceil(coverage / (1 - coverage) - _ROUNDING)


def score_limit(scores: FloatArray, coverage: float) -> float:
    """Return the largest score q that a set of that coverage admits.

    Example:
        >>> score_limit(np.arange(1, 10) / 10, 0.9), score_limit(np.arange(1, 10) / 10, 0.5)
        (0.9, 0.5)
    """
    rank = math.ceil((len(scores) + 1) * coverage - _ROUNDING)
    if rank > len(scores):
        raise CalibrationError(
            f"{len(scores)} labelled images are too few for a coverage of {100 * coverage:g} %: it "
            f"needs at least {least_images(coverage)} beside those for the temperature."
        )
    return float(np.partition(scores, rank - 1)[rank - 1])
