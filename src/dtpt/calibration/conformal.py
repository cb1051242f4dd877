"""Prediction sets with a promised share of hits (split conformal prediction).

Let s be the score of the true class of n labelled pictures, and q the k-th smallest of them with
k = ⌈(n + 1) · coverage⌉. The set of a new picture holds every class that scores at most q. If the
new picture and the n are exchangeable, the rank of its true class among all n + 1 scores is
uniform, so the set misses it with a probability of at most 1 - coverage: whatever the model,
whatever the score. Ties only add classes. The promise is about the average over draws of the
labelled pictures and of the new one, not about each kind of picture by itself.
"""

import math

import numpy as np

from dtpt.calibration.scores import FloatArray
from dtpt.errors import PromiseError

_ROUNDING = 1e-9  # 0.9 · 10 is 9


def least_pictures(coverage: float) -> int:
    """Return how many labelled pictures a level of coverage needs at least.

    Example:
        >>> least_pictures(0.9), least_pictures(0.95), least_pictures(0.99)
        (9, 19, 99)
    """
    return math.ceil(coverage / (1 - coverage) - _ROUNDING)


def score_limit(scores: FloatArray, coverage: float) -> float:
    """Return the largest score q that a set of that coverage lets in.

    Args:
        scores: (n,) of the true classes of labelled pictures.
        coverage: the share of new pictures whose set shall hold the true class.

    Raises:
        PromiseError: n pictures cannot promise that much.

    Example:
        >>> score_limit(np.arange(1, 10) / 10, 0.9), score_limit(np.arange(1, 10) / 10, 0.5)
        (0.9, 0.5)
    """
    rank = math.ceil((len(scores) + 1) * coverage - _ROUNDING)
    if rank > len(scores):
        raise PromiseError(
            f"{len(scores)} labelled pictures cannot promise a coverage of {100 * coverage:g} %: "
            f"that needs at least {least_pictures(coverage)} beside those for the temperature."
        )
    return float(np.partition(scores, rank - 1)[rank - 1])
