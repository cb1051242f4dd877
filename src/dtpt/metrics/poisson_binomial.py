"""The number of successes in independent trials with unequal probabilities.

It is the number of right answers that a perfectly calibrated model has among some samples: each is
right with a probability equal to its confidence. The distribution is exact, up to rounding, for as
many as 32,768 trials; beyond that a normal distribution stands for it.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from dtpt.metrics.validation import FloatArray

# More trials than this are approximated; exact takes a tenth of a second for that many.
MOST_EXACT = 2**15


@dataclass(frozen=True)
class Deviation:
    """Moments of |successes - expected successes|, in trials.

    Attributes:
        mean: of the absolute deviation.
        second: mean of its square, the variance of the successes.
        third: mean of its cube.
    """

    mean: float
    second: float
    third: float


def success_distribution(probabilities: FloatArray) -> FloatArray:
    """Return the probability of 0, 1, ..., n successes, shape (n + 1,).

    Generating functions 1 - p + p z are multiplied in pairs, pairs of pairs and so on, by Fourier
    transforms: n log² n steps. The rounding error of an entry stays below 1e-14.

    Example:
        >>> success_distribution(np.array([0.5, 0.5, 1.0])).round(12).tolist()
        [0.0, 0.25, 0.5, 0.25]
    """
    count = len(probabilities)
    padded = np.zeros(1 << max(count - 1, 0).bit_length())  # a trial that never succeeds is neutral
    padded[:count] = probabilities
    factors = np.stack((1 - padded, padded), axis=1)  # (factors, degree + 1)
    while len(factors) > 1:
        length = 2 * factors.shape[1] - 1
        size = 1 << (length - 1).bit_length()
        spectrum = np.fft.rfft(factors, n=size, axis=1)
        product = np.fft.irfft(spectrum[0::2] * spectrum[1::2], n=size, axis=1)
        factors = product[:, :length]
    return np.asarray(np.clip(factors[0, : count + 1], 0.0, 1.0))  # rounding may fall below 0


def absolute_deviation(probabilities: FloatArray) -> Deviation:
    """Return moments of the distance between the number of successes and its expectation.

    Above 32,768 trials they are those of a normal distribution. Its mean deviation differs from the
    exact one by at most sum(p q (p² + q²)) / sum(p q) <= 1 trial (the mean central limit theorem
    with constant one), which is 3e-5 of that many trials.

    Example:
        >>> absolute_deviation(np.array([0.5, 0.5])).mean
        0.5
    """
    variance = float(np.sum(probabilities * (1 - probabilities)))
    if len(probabilities) > MOST_EXACT:
        mean = math.sqrt(2 * variance / math.pi)
        return Deviation(mean, variance, 2 * variance * mean)
    weight = success_distribution(probabilities)
    distance = np.abs(np.arange(len(weight)) - probabilities.sum())
    mean, third = weight @ distance, weight @ distance**3
    return Deviation(float(mean), variance, float(third))


def success_quantiles(probabilities: FloatArray, shares: FloatArray) -> FloatArray:
    """Return, for each share, the smallest number of successes that is reached with at least it.

    Example:
        >>> success_quantiles(np.full(4, 0.5), np.array([0.05, 0.95])).tolist()
        [0.0, 4.0]
    """
    if len(probabilities) > MOST_EXACT:
        spread = math.sqrt(np.sum(probabilities * (1 - probabilities)))
        points = [NormalDist().inv_cdf(share) for share in shares]
        return np.asarray(np.round(probabilities.sum() + spread * np.array(points)))
    reached = np.cumsum(success_distribution(probabilities))
    return np.searchsorted(reached, shares - 1e-12).astype(np.float64)
