"""The temperature that makes predictions most likely: one number fitted to labelled samples."""

import math

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.validation import (
    FloatArray,
    IntArray,
    Probabilities,
    check_labels,
    check_same_length,
    float64_blocks,
    read_array,
)

# Where every answer is right the best temperature is 0, where confidence misleads it is infinite.
LEAST, MOST = 0.01, 100.0
# A probability of 0 counts as 1e-12, as in the negative log-likelihood.
LOG_FLOOR = float(np.log(1e-12))


def fit_temperature(log_probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the T that minimises the mean negative log-likelihood of softmax(log p / T).

    The loss is convex in 1/T: Newton's method inside a bracket finds its only minimum. Where there
    is none between 0.01 and 100 (all answers right, or confidence without value) the nearer bound
    is returned.

    Args:
        log_probabilities: (samples, classes) log-probabilities or logits; only differences within a
            row matter. Minus infinity counts as the logarithm of 1e-12.
        labels: (samples,) integers.

    Raises:
        MetricError: for NaN, wrong shapes or labels, naming the first sample at fault.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(4000, 5))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> round(fit_temperature(3 * logits, labels), 1)
        3.0
    """
    rows = _check_logits(log_probabilities)
    truth = check_labels(labels, classes=rows.shape[1])
    check_same_length(len(rows), len(truth), names=("log_probabilities", "labels"))
    if _derivatives(rows, truth, inverse=1.0) == (0.0, 0.0):
        return 1.0  # all rows are flat: every temperature is as good
    if _derivatives(rows, truth, inverse=1 / MOST)[0] >= 0:
        return MOST
    if _derivatives(rows, truth, inverse=1 / LEAST)[0] <= 0:
        return LEAST
    return 1 / _root_of_slope(rows, truth)


def _root_of_slope(rows: Probabilities, labels: IntArray) -> float:
    """Return the inverse temperature at which the loss is flat, known to lie between the bounds."""
    low, high, inverse = 1 / MOST, 1 / LEAST, 1.0
    for _ in range(100):
        slope, curvature = _derivatives(rows, labels, inverse=inverse)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        newton = inverse - slope / curvature if curvature > 0 else math.inf
        # the bracket spans four powers of ten: its middle is the geometric one
        following = newton if low <= newton <= high else math.sqrt(low * high)
        if abs(following - inverse) <= 1e-9 * inverse:
            break
        inverse = following
    return following


def _derivatives(rows: Probabilities, labels: IntArray, *, inverse: float) -> tuple[float, float]:
    """Return slope and curvature of the mean loss in the inverse temperature."""
    slope, curvature = np.empty(len(rows)), np.empty(len(rows))
    for part, block in float64_blocks(rows):
        values = _shifted(block)
        weight = np.exp(inverse * values)
        weight /= weight.sum(axis=1, keepdims=True)
        mean = np.vecdot(weight, values)
        slope[part] = mean - values[np.arange(len(values)), labels[part]]
        curvature[part] = np.vecdot(weight, (values - mean[:, None]) ** 2)
    return float(slope.mean()), float(curvature.mean())


def _shifted(rows: FloatArray) -> FloatArray:
    """Return rows whose largest value is 0, with minus infinity raised to a finite floor."""
    values: FloatArray = rows - rows.max(axis=1, keepdims=True)
    absent = np.isneginf(values)
    if absent.any():
        least = np.where(absent, 0.0, values).min(axis=1, keepdims=True)
        values = np.where(absent, np.minimum(least, LOG_FLOOR), values)
    return values


def _check_logits(values: npt.ArrayLike) -> Probabilities:
    array = read_array(values, "log_probabilities", dimensions=2)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    good = np.isfinite(array.max(axis=1)) & ~np.isnan(array.min(axis=1))
    if not good.all():
        row = int(np.argmin(good))
        raise MetricError(
            f"log_probabilities[{row}] holds NaN, infinity or no finite value; expected logarithms "
            "of probabilities."
        )
    return array
