"""How often guarantees hold for new clusters, when the images of a run are the population.

Clusters are drawn independently from those of a data set, calibrations are fitted to them, and what
they state is compared with the truth: coverage and error rate over the whole data set. Procedures:

    by image    every image counts as independent, whatever its cluster
    by cluster  what `dtpt calibrate` does
    one image   the same, but sets too use only one image of each cluster
    betting     the same, but the test of a threshold uses all images: by betting on cluster means

Betting: under the hypothesis that the error rate exceeds the target ε, D = ε · (accepted images) -
(accepted and wrong images), each divided by the size of the cluster, has a mean below 0. Wealth
that is multiplied by 1 + λ D for every cluster, with λ chosen from earlier clusters, then exceeds
1 / δ with a probability of at most δ (Ville's inequality).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import measuring
from benchmarks.measuring import Listed
from dtpt.calibration import Fit, LabelledPredictions, Targets, fit
from dtpt.calibration.checking import evaluate_fit
from dtpt.calibration.fitting import TEMPERATURE_FRACTION, Scored, one_per_cluster
from dtpt.calibration.selective import threshold_sequence
from dtpt.runs import open_run
from dtpt.runs.calibrate import labelled_predictions, one_cell

FloatArray = npt.NDArray[np.float64]
LARGEST_BET = 0.95  # of the wealth


def guarantees(
    run: Path,
    /,
    *,
    method: str = "zero-shot",
    dataset: str | None = None,
    clusters: Listed = "80,160,640",
    error: float = 0.2,
    draws: int = 400,
    seed: int = 0,
) -> measuring.Row:
    """Measure how often calibrations on drawn clusters keep what they state.

    Args:
        run: A finished run with clusters, such as of OpenMoji.
        method: Of the run.
        dataset: Of the run, if it has several.
        clusters: Numbers of labelled clusters.
        error: Target error rate, at 95 % confidence.
        draws: Calibrations for each row.
        seed: Of the draws.
    """
    with open_run(run) as opened:
        cell = one_cell(opened, method, dataset=dataset)
        _, rows = labelled_predictions(opened, cell)
    population, targets = rows.ranked(), Targets(error=error)
    found = []
    for count in measuring.whole_numbers(clusters, "--clusters"):
        generator = np.random.default_rng(seed)
        outcomes = [
            _outcomes(
                population,
                _drawn(population, count, generator=generator),
                targets=targets,
                generator=generator,
            )
            for _ in range(draws)
        ]
        for procedure in outcomes[0]:
            columns = np.array([outcome[procedure] for outcome in outcomes])  # (draws, 4)
            found.append({"clusters": count, "procedure": procedure} | _summary(columns, error))
    facts = {"dataset": cell.dataset, "images": len(rows), "population": rows.cluster_count}
    return {**facts, "method": method, "error": error, "draws": draws, "rows": found}


def _summary(columns: FloatArray, error: float) -> measuring.Row:
    coverage, size, acceptance, rate = columns.T
    return {
        "coverage": float(coverage.mean()),
        "coverage_sd": float(coverage.std()),
        "size": float(size.mean()),
        "with_threshold": float((acceptance > 0).mean()),
        "accepted": float(acceptance.mean()),
        "above_error": float((rate > error).mean()),
    }


def _drawn(
    population: LabelledPredictions, count: int, *, generator: np.random.Generator
) -> LabelledPredictions:
    """Draw whole clusters; one that is drawn twice is two clusters."""
    order = np.argsort(population.clusters, kind="stable")
    sizes = np.bincount(population.clusters)
    parts = np.split(order, np.cumsum(sizes)[:-1])
    chosen = generator.integers(len(parts), size=count)
    taken = population.take(np.concatenate([parts[k] for k in chosen]))
    clusters = np.repeat(np.arange(count), sizes[chosen])
    one = one_per_cluster(clusters, generator.random(count))
    return replace(taken, clusters=clusters, chosen=one)


def _outcomes(
    population: LabelledPredictions,
    rows: LabelledPredictions,
    *,
    targets: Targets,
    generator: np.random.Generator,
) -> dict[str, tuple[float, ...]]:
    """Return coverage, size, acceptance and error rate over the population, by procedure."""
    fits = dict(_fits(rows, targets, generator=generator))
    outcomes: dict[str, tuple[float, ...]] = {}
    for name, fitted in fits.items():
        truth = evaluate_fit(fitted, population)
        rate = truth.error if truth.accepted.any() else 0.0
        outcomes[name] = (truth.coverage, truth.mean_size, truth.acceptance, rate)
    return outcomes


def _fits(
    rows: LabelledPredictions, targets: Targets, *, generator: np.random.Generator
) -> Iterator[tuple[str, Fit]]:
    mixed = generator.permutation(len(rows))
    alone = replace(
        rows.take(mixed), clusters=np.arange(len(rows)), chosen=np.ones(len(rows), np.bool_)
    )
    yield "by image", fit(*_parts(alone), targets=targets)
    first, second = _parts(rows)
    fitted = fit(first, second, targets=targets)
    yield "by cluster", fitted
    yield "one image", fit(first, second.take(second.chosen), targets=targets)
    threshold = _betting_threshold(first, second, temperature=fitted.temperature, targets=targets)
    yield "betting", fitted.model_copy(update={"threshold": threshold})


def _parts(rows: LabelledPredictions) -> tuple[LabelledPredictions, LabelledPredictions]:
    first = rows.clusters < TEMPERATURE_FRACTION * (rows.clusters.max() + 1)
    return rows.take(first), rows.take(~first)


def _betting_threshold(
    first: LabelledPredictions, second: LabelledPredictions, *, temperature: float, targets: Targets
) -> float | None:
    early, late = (Scored.of(part, temperature).confidence for part in (first, second))
    level, error = targets.confidence, targets.error
    thresholds = threshold_sequence(early, second.cluster_count, error=error, level=level)
    accepted = late >= thresholds[:, None]  # (J, n)
    gains = (error * accepted - (accepted & second.wrong)) * second.weights
    by_cluster = np.array([np.bincount(second.clusters, row) for row in gains])  # (J, clusters)
    passed = _largest_wealth(by_cluster[:, second.clusters.min() :], error) >= 1 / (1 - level)
    count = int(np.argmin(np.append(passed, False)))  # before the first failure
    return float(thresholds[count - 1]) if count else None


def _largest_wealth(gains: FloatArray, error: float) -> FloatArray:
    """Return the largest wealth on the way, of bets by mean and spread of the gains so far."""
    thresholds, _ = gains.shape
    total, squares = np.full(thresholds, error / 2), np.full(thresholds, error * (1 - error) / 2)
    wealth = largest = np.ones(thresholds)
    for count, gain in enumerate(gains.T, start=1):
        mean = total / count
        bet = np.clip(mean / (squares / count + mean**2), 0, LARGEST_BET / (1 - error))
        wealth = wealth * (1 + bet * gain)
        largest = np.maximum(largest, wealth)
        total, squares = total + gain, squares + gain**2
    return largest
