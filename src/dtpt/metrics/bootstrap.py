"""Bootstrap intervals: resample the test set, recompute, take quantiles.

Samples are drawn with replacement from an explicit generator. Calibration errors are biased upwards
in small samples, and those of resamples twice so: their draws can all lie above the estimate.
Therefore draws are *centred* before their quantiles are taken (draw - mean of the draws +
estimate), so that every interval contains its estimate and shows spread, not bias.

The interval covers the sampling of the test set only, not seeds or training.
"""

from collections.abc import Callable, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from dtpt.metrics.predictions import Conventions, Predictions
from dtpt.metrics.resampling import Resamples, resampled_counts, sort_samples
from dtpt.metrics.table import METRICS, metrics_with
from dtpt.metrics.validation import (
    FloatArray,
    IntArray,
    check_count,
    check_level,
    check_resamples,
)


class Interval(BaseModel):
    """A confidence interval, in the metric's unit (fractions).

    Example:
        >>> Interval(low=0.1, high=0.2).high
        0.2
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    high: float


def bootstrap_statistic(
    statistic: Callable[[IntArray], float],
    count: int,
    *,
    generator: np.random.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Return the interval of any statistic of resampled sample indices.

    One Python call per resample; `bootstrap_intervals` is much faster for what it knows.

    Example:
        >>> values = np.array([0.0, 1.0, 1.0, 1.0])
        >>> rng = np.random.default_rng(0)
        >>> found = bootstrap_statistic(lambda i: values[i].mean(), 4, generator=rng, resamples=200)
        >>> found.low < 0.75 < found.high
        True
    """
    check_count(count, "count")
    check_resamples(resamples)
    draws = np.array([statistic(generator.integers(count, size=count)) for _ in range(resamples)])
    return centred_interval(draws, statistic(np.arange(count)), level=level)


def bootstrap_intervals(
    predictions: Predictions,
    metrics: Sequence[str] | None = None,
    *,
    generator: np.random.Generator,
    conventions: Conventions | None = None,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Return intervals of metrics by key.

    Args:
        predictions: what is resampled.
        metrics: keys; `None` for all that the predictions allow and `resampled_metrics` names.
        generator: the source of all randomness.
        conventions: bins and ties.
        resamples: number of resamples.
        level: coverage of the interval.

    Example:
        >>> made = Predictions.from_confidence([0.9, 0.8, 0.7], [1, 1, 0])
        >>> rng = np.random.default_rng(0)
        >>> found = bootstrap_intervals(made, ["accuracy"], generator=rng, resamples=100)
        >>> found["accuracy"].high
        1.0
    """
    chosen = conventions or Conventions()
    draws = bootstrap_draws(
        predictions, metrics, generator=generator, conventions=chosen, resamples=resamples
    )
    return {
        key: centred_interval(values, METRICS[key].value(predictions, chosen), level=level)
        for key, values in draws.items()
    }


def bootstrap_draws(
    predictions: Predictions,
    metrics: Sequence[str] | None = None,
    *,
    generator: np.random.Generator,
    conventions: Conventions | None = None,
    resamples: int = 1000,
) -> dict[str, FloatArray]:
    """Return what `bootstrap_intervals` summarises: each metric for each resample.

    Samples are drawn by their position in the input, so that two methods on the same samples with
    equally seeded generators see the same draws, whatever their confidences.

    Example:
        >>> made = Predictions.from_confidence([0.9, 0.8], [1, 0])
        >>> rng = np.random.default_rng(0)
        >>> bootstrap_draws(made, generator=rng, resamples=5)["accuracy"].shape
        (5,)
    """
    check_resamples(resamples)
    chosen = conventions or Conventions()
    keys = resampled_metrics(predictions, chosen) if metrics is None else tuple(metrics)
    samples = sort_samples(predictions, chosen)
    chunks = [
        {key: METRICS[key].draws(part) for key in keys}
        for part in (
            Resamples(samples, drawn)
            for drawn in resampled_counts([len(predictions)], resamples, generator=generator)
        )
    ]
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in keys}


def resampled_metrics(predictions: Predictions, conventions: Conventions) -> tuple[str, ...]:
    """Return the keys of the metrics that can be resampled.

    Resampling knows the default conventions for ties only: better no interval than a wrong one.

    Example:
        >>> made = Predictions.from_confidence([0.9], [1])
        >>> "aurc" in resampled_metrics(made, Conventions(aurc_ties="stable"))
        False
    """
    unknown: set[str] = set()
    if conventions.drop_smallest or conventions.aece_ties != "together":
        unknown.add("aece")
    if conventions.aurc_ties != "average":
        unknown |= {"aurc", "augrc"}
    return tuple(
        metric.key
        for metric in metrics_with(known=predictions.known)
        if metric.has_resamples and metric.key not in unknown
    )


def centred_interval(draws: FloatArray, estimate: float, *, level: float) -> Interval:
    """Return the central interval that holds `level` of the draws after centring on the estimate.

    It contains the estimate, and it stays within 0 to 1 where the estimate and all draws do.

    Example:
        >>> centred_interval(np.arange(101.0), 40.0, level=0.5)
        Interval(low=15.0, high=65.0)
    """
    shift = estimate - draws.mean()
    tail = (1 - check_level(level)) / 2
    low, high = np.quantile(draws, [tail, 1 - tail]) + shift
    least = 0.0 if min(estimate, draws.min()) >= 0 else -np.inf
    most = 1.0 if max(estimate, draws.max()) <= 1 else np.inf
    return Interval(low=np.clip(low, least, estimate), high=np.clip(high, estimate, most))
