"""The noise floor of the ECE: what a perfectly calibrated model would show.

Binned calibration errors are never zero in a finite sample. With 64 samples in 20 bins, a model
whose confidence is exactly right has an ECE of about 16 %. That floor is computed, not simulated:
the model keeps its confidences, every prediction is right with a probability equal to its
confidence, and in each bin the number of right ones follows a Poisson binomial distribution.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dtpt.metrics.binning import equal_width_bins
from dtpt.metrics.validation import FloatArray, check_bins, check_confidence, check_level

# Bins with more samples are approximated; exact takes a tenth of a second for that many.
MOST_EXACT = 2**15


@dataclass(frozen=True)
class CalibratedEce:
    """Moments of the ECE of a perfectly calibrated model; the ECE is a fraction."""

    mean: float
    deviation: float
    skewness: float

    def quantile(self, probability: float) -> float:
        """Return a quantile by the Cornish-Fisher expansion: exact moments, approximate tail."""
        z = NormalDist().inv_cdf(check_level(probability))
        return self.mean + self.deviation * (z + self.skewness * (z**2 - 1) / 6)


@dataclass(frozen=True)
class CalibratedBand:
    """Range of the accuracy of a perfectly calibrated model per bin, (bins,); NaN in empty bins."""

    low: FloatArray
    high: FloatArray


def calibrated_ece(confidence: npt.ArrayLike, *, bins: int = 20) -> CalibratedEce:
    """Return the distribution of the ECE of a perfectly calibrated model with these confidences.

    Its mean is the noise floor; an ECE above its 95 % quantile is significantly above the floor.
    Exact for bins of at most 32,768 samples; a larger bin adds an error of at most one sample.
    """
    values = check_confidence(confidence)
    moments = [_absolute_deviation(part) for _, part in _bins_of(values, bins)]
    variance = sum(second - mean**2 for mean, second, _ in moments)
    third = sum(third - 3 * mean * second + 2 * mean**3 for mean, second, third in moments)
    return CalibratedEce(
        mean=sum(mean for mean, _, _ in moments) / len(values),
        deviation=math.sqrt(max(variance, 0.0)) / len(values),
        skewness=third / variance**1.5 if variance > 1e-12 else 0.0,
    )


def calibrated_band(confidence: npt.ArrayLike, bins: int = 20) -> CalibratedBand:
    """Return the accuracies that a perfectly calibrated model has in each bin.

    In each bin at most 5 % of such models lie below the band and as many above it.
    """
    values = check_confidence(confidence)
    low, high = np.full((2, check_bins(bins)), np.nan)
    for index, part in _bins_of(values, bins):
        ends = _success_quantiles(part, np.array([0.05, 0.95])) / len(part)
        low[index], high[index] = np.clip(ends, 0.0, 1.0)
    return CalibratedBand(low, high)


def _bins_of(values: FloatArray, bins: int) -> Iterator[tuple[int, FloatArray]]:
    """Yield index and confidences of each occupied bin."""
    member = equal_width_bins(values, bins)
    order = np.argsort(member, kind="stable")
    indices, starts = np.unique(member[order], return_index=True)
    yield from zip(indices.tolist(), np.split(values[order], starts[1:]), strict=True)


def success_distribution(probabilities: FloatArray) -> FloatArray:
    """Return the probability of 0, 1, ..., n successes in independent trials, shape (n + 1,).

    Generating functions 1 - p + p z are multiplied in pairs, pairs of pairs and so on, by Fourier
    transforms: n log² n steps. The rounding error of an entry stays below 1e-14.
    """
    # scipy.stats.poisson_binom takes n² steps: 2.4 s for 8,000 trials, this 2 ms (2026)
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


def _absolute_deviation(probabilities: FloatArray) -> tuple[float, float, float]:
    """Return the first three moments of |successes - expected successes|.

    Above `MOST_EXACT` trials they are those of a normal distribution. Its mean deviation differs
    from the exact one by at most sum(p q (p² + q²)) / sum(p q) <= 1 trial (the mean central limit
    theorem with constant one), which is 3e-5 of that many trials.
    """
    variance = float(np.sum(probabilities * (1 - probabilities)))
    if len(probabilities) > MOST_EXACT:
        mean = math.sqrt(2 * variance / math.pi)
        return mean, variance, 2 * variance * mean
    mass = success_distribution(probabilities)
    distance = np.abs(np.arange(len(mass)) - probabilities.sum())
    return float(mass @ distance), variance, float(mass @ distance**3)


def _success_quantiles(probabilities: FloatArray, levels: FloatArray) -> FloatArray:
    """Return, for each level, the smallest number of successes that is reached with at least it."""
    if len(probabilities) > MOST_EXACT:
        spread = math.sqrt(np.sum(probabilities * (1 - probabilities)))
        z = [NormalDist().inv_cdf(level) for level in levels]
        return np.asarray(np.round(probabilities.sum() + spread * np.array(z)))
    reached = np.cumsum(success_distribution(probabilities))
    return np.searchsorted(reached, levels - 1e-12).astype(np.float64)
