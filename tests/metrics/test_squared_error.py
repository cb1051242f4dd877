"""The squared calibration error: no bias, also by clusters, and draws of the right spread."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

from dtpt.metrics import METRICS, Conventions, Predictions
from dtpt.metrics.resampling import resampled_counts
from dtpt.metrics.squared_error import SquaredError


def plain(residual: np.ndarray, bins: np.ndarray, clusters: np.ndarray) -> float:
    """The definition, pair by pair."""
    total = 0.0
    for bin_ in np.unique(bins):
        inside = np.flatnonzero(bins == bin_)
        pairs = [(i, j) for i, j in itertools.permutations(inside, 2) if clusters[i] != clusters[j]]
        if pairs:
            total += (
                len(inside) / len(bins) * np.mean([residual[i] * residual[j] for i, j in pairs])
            )
    return total


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_mean_product_of_residuals_of_different_clusters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    residual, bins = rng.normal(size=40), rng.integers(6, size=40)
    clusters = rng.integers(15, size=40)
    clusters = np.unique(clusters, return_inverse=True)[1]
    found = SquaredError(residual, bins, clusters=clusters).value
    assert found == pytest.approx(plain(residual, bins, clusters), abs=1e-13)


def test_a_bin_of_one_cluster_counts_as_nothing() -> None:
    made = Predictions.from_confidence([0.9, 0.9, 0.3], [0, 0, 0], clusters=["a", "a", "b"])
    assert METRICS["squared_ce"].value(made, Conventions()) == 0.0


def simulate(rng: np.random.Generator, clusters: int, *, slope: float) -> Predictions:
    codes = np.repeat(np.arange(clusters), 6)
    shared = rng.normal(size=(2, clusters))[:, codes]
    logit = 1.2 * (0.8 * shared[0] + 0.6 * rng.normal(size=len(codes))) + 0.4
    luck = 0.9 * shared[1] + 0.436 * rng.normal(size=len(codes))
    confidence = 1 / (1 + np.exp(-slope * logit))
    return Predictions.from_confidence(
        confidence, ndtr(luck) < 1 / (1 + np.exp(-logit)), clusters=codes
    )


@pytest.mark.parametrize("slope", [1.0, 1.6])
def test_it_is_unbiased_and_its_draws_have_its_spread(slope: float) -> None:
    rng, metric = np.random.default_rng(0), METRICS["squared_ce"]
    truth = metric.value(simulate(rng, 20_000, slope=slope), Conventions())
    values, errors = [], []
    for _ in range(300):
        made = simulate(rng, 80, slope=slope)
        bins = np.searchsorted(np.arange(1, 20) / 20, made.confidence)
        error = SquaredError(made.correct - made.confidence, bins, clusters=made.cluster_codes)
        counts = np.concatenate(list(resampled_counts([80], 200, generator=rng)))
        values.append(error.value)
        errors.append(error.draws(counts).std())
    spread = float(np.std(values))
    assert np.mean(values) == pytest.approx(truth, abs=3 * spread / 300**0.5)
    assert spread * 0.85 < np.mean(errors) < spread * 1.35


def test_clusters_that_are_ignored_bias_it() -> None:
    rng, metric = np.random.default_rng(1), METRICS["squared_ce"]
    with_clusters, without = [], []
    for _ in range(100):
        made = simulate(rng, 80, slope=1.0)
        alone = Predictions.from_confidence(made.confidence, made.correct)
        with_clusters.append(metric.value(made, Conventions()))
        without.append(metric.value(alone, Conventions()))
    assert abs(np.mean(with_clusters)) < 3 * np.std(with_clusters) / 10
    assert np.mean(without) > 5 * np.std(without) / 10
