"""Split conformal prediction: nonconformity scores of classes, and the score that a set admits.

Labelled images come in m clusters; images of one cluster may depend on each other in any way. Let s
be the score of the true class of an image, and let each score weigh 1 / size of its cluster. The
limit q is the smallest score at which the weights of all scores up to it reach (m + 1) · coverage.
The prediction set of a new image holds every class that scores at most q.

If a new cluster and the m are exchangeable, then a random image of the new cluster is missed with
a probability of at most 1 - coverage, whatever the model and the score. Let F be the mean of the
m + 1 clusters' distributions of scores, and Q its quantile at the coverage. Q does not depend on
the order of the clusters, so a random image of each of them scores at most Q equally often: with a
probability of at least the coverage. And q is at least Q: it is the same quantile with all scores
of the new cluster moved to infinity. With one image per cluster q is the usual k-th smallest score,
k = ⌈(m + 1) · coverage⌉. Ties only add classes. The guarantee is marginal: an average over draws of
the labelled clusters and of the new one, not for each class or kind of image.

Class-conditional (Mondrian) sets have one limit per class, from the labelled images of that class;
then the same argument holds within each class.

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


def cluster_weights(clusters: npt.NDArray[np.int64]) -> FloatArray:
    """Return 1 / size of its cluster for every image (n,); `clusters` numbers them.

    Example:
        >>> cluster_weights(np.array([4, 4, 0])).tolist()
        [0.5, 0.5, 1.0]
    """
    return np.asarray(1 / np.bincount(clusters)[clusters])


def least_clusters(coverage: float) -> int:
    """Return the smallest number of labelled clusters that allows a coverage.

    Example:
        >>> least_clusters(0.9), least_clusters(0.95), least_clusters(0.99)
        (9, 19, 99)
    """
    return math.ceil(coverage / (1 - coverage) - _ROUNDING)


def score_limit(scores: FloatArray, weights: FloatArray, *, coverage: float) -> float:
    """Return the largest score q that a set of that coverage admits.

    Args:
        scores: (n,) of the true classes.
        weights: (n,) `cluster_weights`; their sum is the number of clusters.
        coverage: target.

    Example:
        >>> scores = np.arange(1, 10) / 10
        >>> [score_limit(scores, np.ones(9), coverage=level) for level in (0.9, 0.5)]
        [0.9, 0.5]
    """
    clusters = round(weights.sum())
    needed = (clusters + 1) * coverage - _ROUNDING
    if needed > clusters:
        what = "images" if clusters == len(scores) else "clusters of labelled images"
        raise CalibrationError(
            f"{clusters} {what} are too few for a coverage of {100 * coverage:g} %: it needs at "
            f"least {least_clusters(coverage)} beside those for the temperature."
        )
    order = np.argsort(scores, kind="stable")
    last = np.searchsorted(np.cumsum(weights[order]), needed)
    return float(scores[order[min(last, len(order) - 1)]])  # the sum of weights is rounded


def class_limits(
    scores: FloatArray,
    labels: npt.NDArray[np.int64],
    *,
    clusters: npt.NDArray[np.int64],
    classes: int,
    coverage: float,
) -> FloatArray:
    """Return one limit per class (C,); 1, which admits every image, where clusters are too few."""
    limits, least, most = np.ones(classes), least_clusters(coverage), 0
    for label in np.unique(labels):
        own = labels == label
        weights = cluster_weights(clusters[own])
        count = round(weights.sum())
        most = max(most, count)
        if count >= least:
            limits[label] = score_limit(scores[own], weights, coverage=coverage)
    if most < least:
        raise CalibrationError(
            f"No class has labelled images of more than {most} clusters; a coverage of "
            f"{100 * coverage:g} % of each class needs {least} beside those for the temperature."
        )
    return limits
