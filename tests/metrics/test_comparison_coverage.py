"""Comparisons hold what they state on simulated methods whose true differences are known.

An image has a difficulty that both methods feel; each has noise of its own. A method is right with
a probability that its confidence states honestly when `boast` is (1, 0), and boastfully otherwise.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.intervals import PAIRS, clustered, covered, true_differences
from dtpt.metrics import (
    COMPARED,
    METRICS,
    Comparison,
    Conventions,
    PooledPredictions,
    Predictions,
    compare_table,
    pool,
)

HONEST = (1.0, 0.0)
BOASTS = ((1.5, 0.2), (1.2, 0.0))  # slope and shift of the logit of the confidence


def compare(
    first: PooledPredictions, second: PooledPredictions, **options
) -> tuple[Comparison, ...]:
    methods = {"first": first, "second": second}
    return compare_table(methods, [("first", "second")], **options)


def squash(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def simulate(
    rng: np.random.Generator,
    count: int,
    *,
    boasts: Sequence[tuple[float, float]] = BOASTS,
    skills: Sequence[float] = (0.0, 0.1),
    shared: float = 0.8,
    noise: float = 0.3,
) -> list[Predictions]:
    """One method per boast; they share the luck of an image with probability `shared`."""
    ease, luck = rng.normal(size=count), rng.uniform(size=count)
    methods = []
    for (slope, shift), skill in zip(boasts, skills, strict=True):
        logit = 1.2 * (ease + noise * rng.normal(size=count)) + 0.4 + skill
        own = np.where(rng.uniform(size=count) < shared, luck, rng.uniform(size=count))
        correct = own < squash(logit)
        confidence = np.maximum(squash(slope * logit + shift), 0.05)
        rest = 1 - confidence
        methods.append(
            Predictions.from_confidence(
                confidence,
                correct,
                p_label=np.where(correct, confidence, rest * rng.uniform(size=count)),
                sum_squares=confidence**2 + 0.4 * rest**2,
            )
        )
    return methods


def in_sets(made: Predictions, *, count: int = 2) -> PooledPredictions:
    """Cut the images into data sets."""
    parts = np.array_split(np.arange(len(made)), count)
    return pool(
        {
            f"set {k}": [
                Predictions.from_confidence(
                    made.confidence[part],
                    made.correct[part],
                    p_label=made.p_label[part],
                    sum_squares=made.sum_squares[part],
                )
            ]
            for k, part in enumerate(parts)
        }
    )


def true_difference(metric: str, boasts: Sequence[tuple[float, float]]) -> float:
    many = simulate(np.random.default_rng(99), 200_000, boasts=boasts)
    first, second = (METRICS[metric].value(made, Conventions()) for made in many)
    return first - second


def simulated_intervals(
    metrics: Sequence[str], *, size: int, draws: int, boasts: Sequence[tuple[float, float]]
) -> dict[str, np.ndarray]:
    """Estimate, low and high of each metric at 95 %, one row per draw."""
    rng = np.random.default_rng(size)
    found: dict[str, list[tuple[float, float, float]]] = {key: [] for key in metrics}
    level = 1 - 0.05 * len(metrics)  # undo the correction: each interval has 95 %
    for _ in range(draws):
        first, second = (in_sets(made) for made in simulate(rng, size, boasts=boasts))
        for one in compare(
            first, second, generator=rng, metrics=metrics, resamples=200, level=level
        ):
            assert one.level == pytest.approx(0.95)
            found[one.metric].append((one.estimate, one.low, one.high))
    return {key: np.array(rows) for key, rows in found.items()}


def coverage(rows: np.ndarray, truth: float) -> float:
    return float(((rows[:, 1] <= truth) & (truth <= rows[:, 2])).mean())


def test_paired_intervals_cover_the_true_difference_in_95_percent() -> None:
    metrics = ("accuracy", "signed_gap", "brier", "aurc")
    found = simulated_intervals(metrics, size=300, draws=400, boasts=BOASTS)
    for key, rows in found.items():
        reached = coverage(rows, true_difference(key, BOASTS))
        assert 0.93 <= reached <= 0.97, (key, reached)


def false_alarms(*, size: int, tables: int, metrics: Sequence[str], honest: bool) -> float:
    """Fraction of tables of three equal methods against a fourth in which anything is separated."""
    rng = np.random.default_rng(size)
    alarms = 0
    boasts = [HONEST if honest else BOASTS[0]] * 4
    for _ in range(tables):
        made = simulate(rng, size, boasts=boasts, skills=[0.0] * 4)
        methods = {f"m{k}": in_sets(one) for k, one in enumerate(made)}
        pairs = [(f"m{k}", "m0") for k in (1, 2, 3)]
        found = compare_table(methods, pairs, generator=rng, metrics=metrics, resamples=200)
        alarms += any(comparison.significant for comparison in found)
    return alarms / tables


@pytest.mark.parametrize("honest", [True, False])
def test_equal_methods_are_significantly_different_in_at_most_5_percent_of_tables(
    honest: bool,
) -> None:
    metrics = [key for key in COMPARED if key != "smooth_ece"]  # the slow test has it
    assert false_alarms(size=100, tables=150, metrics=metrics, honest=honest) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 1_000])
def test_equal_methods_are_not_significantly_different_with_all_metrics_either(size: int) -> None:
    assert false_alarms(size=size, tables=50, metrics=COMPARED, honest=True) <= 0.05


def test_different_methods_are_significantly_different_once_there_are_enough_images() -> None:
    rng = np.random.default_rng(0)
    first, second = (in_sets(made) for made in simulate(rng, 4_000, skills=(0.0, 0.3)))
    found = {one.metric: one for one in compare(first, second, generator=rng)}
    assert found["accuracy"].better == "second"
    assert found["absolute_gap"].better == "second"
    assert found["squared_ce"].better == "second"
    assert found["brier"].better == "second"


@pytest.mark.parametrize(
    ("pair", "average", "seeds"),
    [
        ("both overconfident", "datasets", 1),
        ("both overconfident", "images", 3),
        ("one calibrated", "datasets", 3),
    ],
)
def test_intervals_over_clusters_cover_the_true_difference(
    pair: str, average: str, seeds: int
) -> None:
    """Two sets of 60 clusters of six; docs/calibration.md has larger simulations."""
    rng, boasts = np.random.default_rng([seeds, len(average)]), PAIRS[pair]
    truth, icc = true_differences(rng, boasts)
    assert 0.4 < icc < 0.6
    hits = [
        covered(
            [clustered(rng, 60, boasts=boasts, seeds=seeds) for _ in range(2)],
            truth,
            rng=rng,
            average=average,
        )
        for _ in range(100)
    ]
    for key in COMPARED:
        assert np.mean([one[key] for one in hits]) >= 0.88, key  # three deviations below 0.95


def test_intervals_that_ignore_clusters_do_not_cover() -> None:
    rng, hits = np.random.default_rng(0), []
    boasts = (HONEST, HONEST)
    for _ in range(100):
        made = [
            pool(
                {
                    "": [
                        Predictions.from_confidence(
                            p.confidence, p.correct, p_label=p.p_label, sum_squares=p.sum_squares
                        )
                    ]
                }
            )
            for (p,) in clustered(rng, 60, boasts=boasts)
        ]
        (found,) = compare(*made, generator=rng, metrics=["nll"], resamples=150)
        hits.append(not found.significant)
    assert np.mean(hits) < 0.85
