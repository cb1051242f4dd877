"""The noise floor of the ECE: what a perfectly calibrated model shows."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.errors import MetricError
from dtpt.metrics import calibrated_band, calibrated_ece, calibration_errors, ece
from dtpt.metrics.calibration_errors import success_distribution

cheap = settings(max_examples=200, deadline=None, database=None)
SIZES = (64, 512, 5_000)


def ece_floor(confidence, **conventions) -> float:
    return calibrated_ece(confidence, **conventions).mean


def all_outcomes(probabilities: list[float]) -> list[tuple[tuple[bool, ...], float]]:
    """Every pattern of successes with its probability."""
    found = []
    for outcome in itertools.product((False, True), repeat=len(probabilities)):
        chances = [p if hit else 1 - p for p, hit in zip(probabilities, outcome, strict=True)]
        found.append((outcome, math.prod(chances)))
    return found


@cheap
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_distribution_of_successes_equals_the_sum_over_all_outcomes(chances: list[float]) -> None:
    expected = np.zeros(len(chances) + 1)
    for outcome, weight in all_outcomes(chances):
        expected[sum(outcome)] += weight
    assert success_distribution(np.array(chances)) == pytest.approx(expected, abs=1e-14)


@cheap
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 6))
def test_floor_and_spread_equal_those_over_all_outcomes(chances: list[float], bins: int) -> None:
    values = [(ece(chances, hits, bins=bins), w) for hits, w in all_outcomes(chances)]
    mean = sum(value * weight for value, weight in values)
    variance = sum((value - mean) ** 2 * weight for value, weight in values)
    found = calibrated_ece(chances, bins=bins)
    assert found.mean == pytest.approx(mean, abs=1e-12)
    assert found.deviation == pytest.approx(math.sqrt(variance), abs=1e-6)


def test_distribution_of_many_successes_is_that_of_one_trial_after_the_other() -> None:
    chances = np.random.default_rng(0).beta(4, 2, size=700)
    slow = np.array([1.0])
    for p in chances:
        slow = np.convolve(slow, [1 - p, p])
    assert success_distribution(chances) == pytest.approx(slow, abs=1e-14)
    distance = np.abs(np.arange(701) - chances.sum())
    assert 700 * ece_floor(chances, bins=1) == pytest.approx(slow @ distance, rel=1e-12)


@pytest.mark.parametrize("shape", [(4, 2), (50, 0.01), (1, 1)])
def test_large_bins_stay_within_the_stated_error(monkeypatch, shape: tuple[float, float]) -> None:
    chances = np.random.default_rng(1).beta(*shape, size=3_000)
    exact = 3_000 * ece_floor(chances, bins=1)
    monkeypatch.setattr(calibration_errors, "MOST_EXACT", 1_000)
    rough = 3_000 * ece_floor(chances, bins=1)
    p, q = chances, 1 - chances
    bound = (p * q * (p**2 + q**2)).sum() / (p * q).sum()
    assert bound <= 1
    assert 0 < abs(rough - exact) <= bound


@pytest.mark.parametrize("size", SIZES)
def test_ece_above_the_floor_of_a_calibrated_model_averages_to_zero(size: int) -> None:
    rng = np.random.default_rng(size)
    repeats = 400
    excess = []
    for _ in range(repeats):
        confidence = rng.beta(4, 2, size=size)
        correct = rng.uniform(size=size) < confidence
        excess.append(ece(confidence, correct) - ece_floor(confidence))
    error = np.std(excess) / math.sqrt(repeats)
    assert abs(np.mean(excess)) < 3 * error
    assert ece_floor(confidence) > 10 * error  # without the floor the mean would stand out


@pytest.mark.parametrize("size", [64, 512])
def test_a_calibrated_model_exceeds_the_95_percent_point_in_one_of_twenty(size: int) -> None:
    rng = np.random.default_rng(size)
    confidence = rng.beta(4, 2, size=size)
    limit = calibrated_ece(confidence).quantile(0.95)
    above = [ece(confidence, rng.uniform(size=size) < confidence) > limit for _ in range(2_000)]
    assert 0.035 < np.mean(above) < 0.065


def test_floor_shrinks_with_samples_and_is_zero_for_certain_models() -> None:
    rng = np.random.default_rng(0)
    floors = [ece_floor(rng.beta(4, 2, size=size)) for size in (64, 256, 1024)]
    assert floors == pytest.approx([floors[0], floors[0] / 2, floors[0] / 4], rel=0.2)
    assert 0.14 < floors[0] < 0.18
    assert ece_floor([1.0, 1.0, 0.0]) == 0


def test_floor_follows_the_bins_of_the_ece() -> None:
    assert ece_floor([0.05, 0.15], bins=20) == pytest.approx((0.095 + 0.255) / 2)
    assert ece_floor([0.4, 0.6], bins=1) < ece_floor([0.4, 0.6], bins=2)
    assert ece_floor([0.5, 0.4], bins=2) == ece_floor([0.5, 0.4], bins=1)  # the edge is below


def test_band_holds_ninety_percent_of_calibrated_models_in_every_bin() -> None:
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.2, 1, size=400)
    band = calibrated_band(confidence, 10)
    assert np.isnan(band.low[:2]).all()
    inside = np.zeros(10)
    member = np.clip(np.ceil(confidence * 10).astype(int) - 1, 0, 9)
    count = np.bincount(member, minlength=10)
    for _ in range(500):
        hits = np.bincount(member, weights=rng.uniform(size=400) < confidence, minlength=10)
        fraction = hits[2:] / count[2:]
        inside[2:] += (band.low[2:] <= fraction) & (fraction <= band.high[2:])
    assert (inside[2:] / 500 > 0.87).all()
    assert (band.low[2:] < band.high[2:]).all()


def test_band_of_large_bins_is_normal(monkeypatch) -> None:
    confidence = np.random.default_rng(0).uniform(0.5, 1, size=2_000)
    exact = calibrated_band(confidence, 2)
    monkeypatch.setattr(calibration_errors, "MOST_EXACT", 100)
    rough = calibrated_band(confidence, 2)
    assert rough.low[1] == pytest.approx(exact.low[1], abs=1.5 / 2_000)
    assert rough.high[1] == pytest.approx(exact.high[1], abs=1.5 / 2_000)


def test_bad_confidences_bins_and_levels_are_refused() -> None:
    with pytest.raises(MetricError, match=r"confidence\[1\] is 2"):
        ece_floor([0.5, 2])
    with pytest.raises(MetricError, match="bins is 0"):
        ece_floor([0.5], bins=0)
    with pytest.raises(MetricError, match="level is 1"):
        calibrated_ece([0.5]).quantile(1.0)
