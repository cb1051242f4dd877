"""Exact binomial tails and bounds, McNemar's test, and Student's t; SciPy computes them.

SciPy is imported inside the functions: `import dtpt` and `--help` must not load it.
"""

import functools

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.validation import FloatArray, check_level


def binomial_cdf(
    successes: npt.ArrayLike, trials: npt.ArrayLike, *, probability: npt.ArrayLike
) -> FloatArray:
    """Return the probability of at most that many successes, for arrays that broadcast."""
    from scipy.special import betainc

    count, total = _check_counts(successes, trials)
    p = np.asarray(probability, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise MetricError(f"probability is {p.tolist()}; expected 0 to 1.")
    count, total, p = np.broadcast_arrays(count, total, p)
    tail = betainc(np.maximum(total - count, 1), count + 1, 1 - p)
    return np.where(count < total, tail, 1.0)


def binomial_upper_bound(
    errors: npt.ArrayLike, n: npt.ArrayLike, *, level: float = 0.95
) -> FloatArray:
    """Return the exact one-sided upper bound (Clopper-Pearson) of a rate of `errors` in `n`.

    Whatever the true rate is, the bound lies below it with a probability of at most 1 - level.
    Arrays broadcast; numbers give an array without dimensions.
    """
    from scipy.special import betaincinv

    count, total = _check_counts(errors, n)
    bound = betaincinv(count + 1, np.maximum(total - count, 1), check_level(level))
    return np.where(count < total, bound, 1.0)


def rate_upper_bound(rate: float, n: float, *, level: float) -> float:
    """Return the same bound for a rate in an effective number of trials, not always whole."""
    from scipy.special import betaincinv

    count = rate * n
    return 1.0 if n - count < 1e-9 else float(betaincinv(count + 1, n - count, check_level(level)))


def binomial_interval(successes: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval (Clopper-Pearson) of a rate."""
    one_sided = (1 + check_level(level)) / 2
    above = binomial_upper_bound([successes, n - successes], n, level=one_sided)
    return 1 - float(above[1]), float(above[0])


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p-value of "both methods are right equally often".

    Only samples that exactly one method has right count; under the hypothesis each of them is a
    fair coin.
    """
    fewer, total = min(only_first, only_second), only_first + only_second
    if total == 0:
        return 1.0
    return min(1.0, 2 * float(binomial_cdf(fewer, total, probability=0.5)))


@functools.lru_cache(maxsize=64)  # a table of comparisons needs one value many times
def student_quantile(level: float, freedom: float) -> float:
    """Return t such that a Student variable lies within ±t with probability `level`."""
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, (1 - check_level(level)) / 2))


def student_tail(t: float, freedom: float) -> float:
    """Return the two-sided p-value of t."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def _check_counts(
    part: npt.ArrayLike, whole: npt.ArrayLike
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    parts, wholes = np.broadcast_arrays(np.asarray(part), np.asarray(whole))
    if parts.dtype.kind not in "iu" or wholes.dtype.kind not in "iu":
        raise MetricError(
            f"Counts have dtypes {parts.dtype} and {wholes.dtype}; expected whole numbers."
        )
    valid = (parts >= 0) & (parts <= wholes) & (wholes > 0)
    if not valid.all():
        index = int(np.argmin(valid))
        raise MetricError(
            f"Invalid count {parts.flat[index]} of {wholes.flat[index]}; expected 0 to n, n >= 1."
        )
    return parts.astype(np.int64), wholes.astype(np.int64)
