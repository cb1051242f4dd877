"""What a study measures, and the differences of its methods by pair."""

from collections.abc import Mapping, Sequence

import numpy as np

from dtpt.metrics import Comparison, PooledPredictions, compare_table

MEASURED = ("accuracy", "signed_gap", "brier", "ece_above_floor", "aurc")
"""What a study measures: little or no bias from binning, and all that a reader may care for."""


def differences(
    answers: Mapping[str, PooledPredictions],
    pairs: Sequence[tuple[str, str]],
    *,
    metrics: Sequence[str] = MEASURED,
) -> dict[tuple[str, str], tuple[Comparison, ...]]:
    """Return the paired differences, first minus second, corrected for all of them together."""
    generator = np.random.default_rng(0)
    by_pair: dict[tuple[str, str], tuple[Comparison, ...]] = dict.fromkeys(pairs, ())
    for one in compare_table(answers, pairs, generator=generator, metrics=metrics):
        by_pair[one.first, one.second] += (one,)
    return by_pair
