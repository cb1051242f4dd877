"""What a perfectly calibrated model would show: the part of an ECE that is chance.

Binned calibration errors are never zero in a finite sample. With 64 samples in 20 bins, a model
whose confidence is exactly right has an ECE of about 16 %. Here that floor is computed, not
simulated: the model keeps its confidences, every answer is right with a probability equal to its
confidence, and in each bin the number of right answers follows a Poisson binomial distribution.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dtpt.metrics.binning import Closed, equal_width_bins
from dtpt.metrics.poisson_binomial import Deviation, absolute_deviation, success_quantiles
from dtpt.metrics.validation import FloatArray, check_bins, check_confidence, check_level


@dataclass(frozen=True)
class CalibratedEce:
    """The distribution of the ECE of a perfectly calibrated model.

    Attributes:
        mean: the expected ECE, a fraction.
        deviation: its standard deviation.
        skewness: its third standardised moment.
    """

    mean: float
    deviation: float
    skewness: float

    def quantile(self, share: float) -> float:
        """Return the ECE that a share of such models stays below.

        By the Cornish-Fisher expansion to the third moment; exact moments, approximate tail.

        Example:
            >>> CalibratedEce(mean=0.1, deviation=0.02, skewness=0.0).quantile(0.5)
            0.1
        """
        point = NormalDist().inv_cdf(check_level(share))
        return self.mean + self.deviation * (point + self.skewness * (point**2 - 1) / 6)


@dataclass(frozen=True)
class CalibratedBand:
    """Where the accuracy of a perfectly calibrated model lies in each bin; NaN in empty bins.

    Attributes:
        low: (bins,) lower end.
        high: (bins,) upper end.
    """

    low: FloatArray
    high: FloatArray


def ece_floor(confidence: npt.ArrayLike, *, bins: int = 20, closed: Closed = "right") -> float:
    """Return the expected ECE of a perfectly calibrated model with these confidences.

    Exact for bins of at most 32,768 samples; larger bins add an error of at most one sample each.

    Args:
        confidence: (samples,) in [0, 1].
        bins: equal-width bins, as in `ece`.
        closed: which end of a bin belongs to it, as in `ece`.

    Example:
        >>> ece_floor([0.75, 0.75])
        0.28125
        >>> ece_floor([1.0, 1.0, 1.0])
        0.0
    """
    return calibrated_ece(confidence, bins=bins, closed=closed).mean


def calibrated_ece(
    confidence: npt.ArrayLike, *, bins: int = 20, closed: Closed = "right"
) -> CalibratedEce:
    """Return the distribution of the ECE of a perfectly calibrated model with these confidences.

    An ECE above its 95 % point is more than chance.

    Example:
        >>> found = calibrated_ece([0.75, 0.75])
        >>> found.mean, round(found.deviation, 4)
        (0.28125, 0.121)
    """
    values = check_confidence(confidence)
    parts = [absolute_deviation(part) for _, part in _bins_of(values, bins, closed=closed)]
    variance = sum(part.second - part.mean**2 for part in parts)
    third = sum(_third_cumulant(part) for part in parts)
    return CalibratedEce(
        mean=sum(part.mean for part in parts) / len(values),
        deviation=math.sqrt(max(variance, 0.0)) / len(values),
        skewness=third / variance**1.5 if variance > 1e-12 else 0.0,
    )


def calibrated_band(
    confidence: npt.ArrayLike, bins: int = 20, *, closed: Closed = "right", level: float = 0.9
) -> CalibratedBand:
    """Return the accuracies that a perfectly calibrated model has in each bin.

    In each bin at most (1 - level) / 2 of such models lie below the band and as many above it; with
    the default these are the 5 and 95 % points. It is what to draw behind a reliability diagram.

    Example:
        >>> band = calibrated_band([0.75] * 4 + [1.0], 2)
        >>> band.low.tolist(), band.high.tolist()
        ([nan, 0.4], [nan, 1.0])
    """
    values = check_confidence(confidence)
    tail = (1 - check_level(level)) / 2
    low, high = np.full((2, check_bins(bins)), np.nan)
    for place, part in _bins_of(values, bins, closed=closed):
        ends = success_quantiles(part, np.array([tail, 1 - tail])) / len(part)
        low[place], high[place] = np.clip(ends, 0.0, 1.0)
    return CalibratedBand(low, high)


def _bins_of(values: FloatArray, bins: int, *, closed: Closed) -> Iterator[tuple[int, FloatArray]]:
    """Yield number and confidences of each occupied bin."""
    member = equal_width_bins(values, bins, closed=closed)
    order = np.argsort(member, kind="stable")
    places, starts = np.unique(member[order], return_index=True)
    for place, part in zip(places, np.split(values[order], starts[1:]), strict=True):
        yield int(place), part


def _third_cumulant(part: Deviation) -> float:
    return part.third - 3 * part.mean * part.second + 2 * part.mean**3
