"""One sentence on the calibration of a model, from two tests.

* Is it over- or underconfident? The interval of the signed gap must exclude 0.
* Is its calibration error more than chance? The ECE must lie above the 95 % point of the ECE of a
  perfectly calibrated model with the same confidences.

Of perfectly calibrated models, each test accuses about one in twenty.
"""

import math

import numpy.typing as npt

from dtpt.metrics.binomial import student_quantile
from dtpt.metrics.calibration import ece
from dtpt.metrics.floor import calibrated_ece
from dtpt.metrics.predictions import Conventions, Predictions
from dtpt.metrics.resampling import Interval
from dtpt.metrics.scores import signed_gap
from dtpt.metrics.validation import check_level, check_pair


def gap_interval(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, *, level: float = 0.95
) -> Interval:
    """Return the interval of the signed gap: mean confidence - accuracy ± t × standard error.

    The variance is taken to be at least what chance gives a perfectly calibrated model, so that a
    handful of right answers proves nothing. One sample alone allows every gap.

    Example:
        >>> found = gap_interval([0.9] * 50, [True] * 25 + [False] * 25)
        >>> round(found.low, 3), round(found.high, 3)
        (0.256, 0.544)
    """
    values, hits = check_pair(confidence, correct)
    if len(values) == 1:
        return Interval(low=-1.0, high=1.0)
    variance = max((values - hits).var(ddof=1), (values * (1 - values)).mean())
    half = student_quantile(check_level(level), len(values) - 1) * math.sqrt(variance / len(values))
    gap = signed_gap(values, hits)
    return Interval(low=gap - half, high=gap + half)


def calibration_verdict(
    predictions: Predictions, conventions: Conventions | None = None, *, level: float = 0.95
) -> str:
    """Say in one sentence whether confidence can be taken for accuracy; points are percent.

    Example:
        >>> made = Predictions.from_confidence([0.9] * 50, [True] * 25 + [False] * 25)
        >>> print(calibration_verdict(made))
        Overconfident by 40.0 points [25.6, 54.4]; ECE 40.0 %, chance alone gives 3.3 %.
    """
    chosen = conventions or Conventions()
    pair = predictions.confidence, predictions.correct
    error = ece(*pair, bins=chosen.bins, closed=chosen.closed)
    chance = calibrated_ece(predictions.confidence, bins=chosen.bins, closed=chosen.closed)
    gap = _gap_words(signed_gap(*pair), gap_interval(*pair, level=level))
    if error <= chance.quantile(level):
        return (
            f"{gap}; the calibration error (ECE {100 * error:.1f} %) is what chance alone gives at "
            f"this size ({100 * chance.mean:.1f} %)."
        )
    return f"{gap}; ECE {100 * error:.1f} %, chance alone gives {100 * chance.mean:.1f} %."


def _gap_words(gap: float, interval: Interval) -> str:
    low, high = 100 * interval.low, 100 * interval.high
    if low > 0:
        return f"Overconfident by {100 * gap:.1f} points [{low:.1f}, {high:.1f}]"
    if high < 0:
        return f"Underconfident by {-100 * gap:.1f} points [{-high:.1f}, {-low:.1f}]"
    return (
        f"Neither over- nor underconfident on average ({100 * gap:+.1f} points "
        f"[{low:+.1f}, {high:+.1f}])"
    )
