"""Numbers of a study with their intervals: of one method, and of the difference of two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.metrics import (
    METRICS,
    Comparison,
    Conventions,
    PooledPredictions,
    bootstrap_draws,
    centred_interval,
    compare_table,
)

MEASURED = ("accuracy", "signed_gap", "brier", "ece_above_floor", "aurc")
"""What a study measures: little or no bias from binning, and all that a reader may care for."""
RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over draws of the pictures, as fractions."""

    value: float
    low: float
    high: float


def estimates(
    answers: PooledPredictions, metrics: Sequence[str] = MEASURED, *, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """Return metrics of one method with their intervals; several seeds are averaged.

    Example:
        >>> from dtpt.metrics import Predictions, pool
        >>> made = pool({"dtd": [Predictions.from_confidence([0.9, 0.4, 0.8], [1, 0, 1])]})
        >>> found = estimates(made, ["accuracy"])["accuracy"]
        >>> round(found.value, 3), found.low <= found.value <= found.high
        (0.667, True)
    """
    draws = [
        bootstrap_draws(seed, metrics, generator=np.random.default_rng(0), resamples=resamples)
        for seed in answers.seeds  # the same draws of pictures under every seed
    ]
    found = {}
    for key in metrics:
        value = METRICS[key].value
        mean = float(np.mean([value(seed, Conventions()) for seed in answers.seeds]))
        interval = centred_interval(np.mean([d[key] for d in draws], axis=0), mean, level=0.95)
        found[key] = Estimate(mean, interval.low, interval.high)
    return found


def differences(
    answers: Mapping[str, PooledPredictions],
    pairs: Sequence[tuple[str, str]],
    *,
    metrics: Sequence[str] = MEASURED,
    resamples: int = RESAMPLES,
) -> dict[tuple[str, str], tuple[Comparison, ...]]:
    """Return the paired differences, first minus second, corrected for all of them together."""
    found = compare_table(
        answers,
        pairs,
        generator=np.random.default_rng(0),
        metrics=metrics,
        resamples=resamples,
    )
    by_pair: dict[tuple[str, str], tuple[Comparison, ...]] = dict.fromkeys(pairs, ())
    for one in found:
        by_pair[one.first, one.second] += (one,)
    return by_pair
