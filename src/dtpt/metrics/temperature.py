"""Temperature scaling: one number fitted to labelled samples by maximum likelihood."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.predictions import Predictions
from dtpt.metrics.scores import NLL_FLOOR
from dtpt.metrics.validation import (
    FloatArray,
    IntArray,
    Probabilities,
    check_labels,
    check_same_length,
    float64_blocks,
    read_array,
)

Part = tuple[Probabilities, IntArray]  # log-probabilities (samples, classes) and labels

# Where every prediction is right the best temperature is 0; for useless confidence it is infinite.
LEAST, MOST = 0.01, 100.0
# Logarithm of a probability of 0.
LOG_FLOOR = float(np.log(NLL_FLOOR))


def fit_temperature(
    log_probabilities: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    weights: FloatArray | None = None,
) -> float:
    """Return the T that minimises the mean negative log-likelihood of softmax(log p / T).

    The loss is convex in 1/T: Newton's method inside a bracket finds its only minimum. Where there
    is none between 0.01 and 100 the nearer bound is returned. Logits will do: only differences
    within a row (samples, classes) matter. Minus infinity counts as the logarithm of 1e-12.
    With `weights` (samples,) the mean is weighted.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(4000, 5))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> round(fit_temperature(3 * logits, labels), 1)
        3.0
    """
    return fit_shared_temperature([(log_probabilities, labels)], weights=weights)


def fit_shared_temperature(
    parts: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]],
    *,
    weights: FloatArray | None = None,
) -> float:
    """Return the one T that fits several data sets together; they may differ in their classes."""
    checked = [_check_part(*part) for part in parts]
    if not checked:
        raise MetricError("Fitting a temperature needs at least one data set.")
    if _derivatives(checked, weights, inverse=1.0) == (0.0, 0.0):
        return 1.0  # all rows are flat: the likelihood does not depend on the temperature
    if _derivatives(checked, weights, inverse=1 / MOST)[0] >= 0:
        return MOST
    if _derivatives(checked, weights, inverse=1 / LEAST)[0] <= 0:
        return LEAST
    return 1 / _root_of_slope(checked, weights)


def tempered(
    log_probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, temperature: float
) -> Predictions:
    """Return the predictions softmax(log p / T); they allow all but classwise metrics."""
    rows, truth = _check_part(log_probabilities, labels)
    confidence, p_label, squares = np.empty((3, len(rows)))
    correct = np.empty(len(rows), dtype=np.bool_)
    for part, block in float64_blocks(rows):
        p = np.exp(_shifted(block) / temperature)
        p /= p.sum(axis=1, keepdims=True)
        top = p.argmax(axis=1)
        row = np.arange(len(p))
        confidence[part], p_label[part] = p[row, top], p[row, truth[part]]
        squares[part], correct[part] = np.vecdot(p, p), top == truth[part]
    return Predictions.from_confidence(confidence, correct, p_label=p_label, sum_squares=squares)


def _check_part(log_probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Part:
    rows = read_array(log_probabilities, "log_probabilities", dimensions=2)
    if rows.dtype.kind != "f":
        rows = rows.astype(np.float64)
    valid = np.isfinite(rows.max(axis=1)) & ~np.isnan(rows.min(axis=1))
    if not valid.all():
        raise MetricError(
            f"log_probabilities[{int(np.argmin(valid))}] has NaN, infinity or no finite value; "
            "expected logarithms of probabilities."
        )
    truth = check_labels(labels, classes=rows.shape[1])
    check_same_length(len(rows), len(truth), names=("log_probabilities", "labels"))
    return rows, truth


def _root_of_slope(parts: Sequence[Part], weights: FloatArray | None) -> float:
    """Return the inverse temperature at which the loss is flat; it must lie between the bounds."""
    low, high, inverse = 1 / MOST, 1 / LEAST, 1.0
    for _ in range(100):
        slope, curvature = _derivatives(parts, weights, inverse=inverse)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        newton = inverse - slope / curvature if curvature > 0 else math.inf
        # the bracket spans four powers of ten: its middle is the geometric one
        following = newton if low <= newton <= high else math.sqrt(low * high)
        if abs(following - inverse) <= 1e-9 * inverse:
            break
        inverse = following
    return following


def _derivatives(
    parts: Sequence[Part], weights: FloatArray | None, *, inverse: float
) -> tuple[float, float]:
    """Return slope and curvature of the mean loss in the inverse temperature."""
    slopes, curvatures = [], []
    for rows, labels in parts:
        for part, block in float64_blocks(rows):
            values = _shifted(block)
            p = np.exp(inverse * values)
            p /= p.sum(axis=1, keepdims=True)
            mean = np.vecdot(p, values)
            slopes.append(mean - values[np.arange(len(values)), labels[part]])
            curvatures.append(np.vecdot(p, (values - mean[:, None]) ** 2))
    means = (np.average(np.concatenate(part), weights=weights) for part in (slopes, curvatures))
    slope, curvature = map(float, means)
    return slope, curvature


def _shifted(rows: FloatArray) -> FloatArray:
    """Return rows whose largest value is 0, with minus infinity raised to a finite floor."""
    values: FloatArray = rows - rows.max(axis=1, keepdims=True)
    absent = np.isneginf(values)
    if absent.any():
        least = np.where(absent, 0.0, values).min(axis=1, keepdims=True)
        values = np.where(absent, np.minimum(least, LOG_FLOOR), values)
    return values
