"""Dominant dimensions, dimension profiles and the modality gap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.analysis.features import RunningProfile, modality_gap


def analysed(values):
    running = RunningProfile(np.shape(values)[-1])
    running.add(values)
    return running.result()


@pytest.mark.parametrize("spike", [0.9, -0.9])
def test_a_planted_dimension_is_found_with_its_sign(features, spike):
    values = features(40, 64, spike=(17, spike))
    found = analysed(values).dominant
    assert (found.index, np.sign(found.mean)) == (17, np.sign(spike))
    assert found.consistency == 1.0
    assert found.mean == pytest.approx(values[:, 17].mean())
    assert found.norm_fraction == pytest.approx((values[:, 17] ** 2).mean())  # unit vectors
    assert found.norm_fraction > 0.3
    assert found.runner_up != 17
    assert found.runner_up_absolute < found.mean_absolute


def test_consistency_is_the_fraction_of_rows_that_agree():
    values = np.zeros((10, 5))
    values[:7, 2] = 1.0
    values[7:, 4] = 1.0
    found = analysed(values).dominant
    assert (found.index, found.consistency) == (2, 0.7)
    assert found.runner_up == 4


def test_profile_has_the_quantiles_of_every_dimension(features):
    values = features(101, 8, seed=5)
    profile = analysed(values).profile
    assert profile.rows == profile.quantile_rows == 101
    ordered = np.sort(values, axis=0)
    np.testing.assert_allclose(profile.median, ordered[50])
    np.testing.assert_allclose(profile.low, ordered[5])
    np.testing.assert_allclose(profile.high, ordered[95])
    np.testing.assert_array_equal(profile.minimum, ordered[0])
    np.testing.assert_array_equal(profile.maximum, ordered[-1])


def test_streaming_gives_what_the_whole_array_gives(features):
    values = features(50, 16, spike=(3, 0.5))
    running = RunningProfile(16)
    for row in values:
        running.add(row[None])
    whole, streamed = analysed(values), running.result()
    assert streamed.dominant.index == whole.dominant.index
    np.testing.assert_allclose(streamed.profile.mean, whole.profile.mean)
    np.testing.assert_allclose(streamed.profile.low, whole.profile.low)


def test_quantiles_come_from_the_kept_rows_and_say_so(features):
    values = features(20, 4)
    running = RunningProfile(4)
    for index, row in enumerate(values):
        running.add(row[None], keep=index < 5)
    profile = running.result().profile
    assert (profile.rows, profile.quantile_rows) == (20, 5)
    np.testing.assert_allclose(profile.median, np.median(values[:5], axis=0))
    np.testing.assert_allclose(profile.maximum, values.max(axis=0))


def test_a_shift_in_one_dimension_carries_the_whole_gap():
    gap = modality_gap(np.array([0.6, 0.0, 0.0]), np.array([-0.6, 0.0, 0.0]), matched_cosine=0.28)
    assert gap.distance == pytest.approx(1.2)
    assert gap.cosine == pytest.approx(-1.0)
    assert gap.matched_cosine == 0.28
    assert (gap.parts[0].dimension, gap.parts[0].fraction) == (0, pytest.approx(1.0))
    assert gap.parts[0].difference == pytest.approx(1.2)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 7), st.integers(2, 9))
def test_gap_is_consistent_with_all_pairs(seed, classes, images, dimensions):
    generator = np.random.default_rng(seed)
    text, vectors = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (
            generator.normal(size=(classes, dimensions)),
            generator.normal(size=(images, dimensions)),
        )
    )
    gap = modality_gap(text.mean(axis=0), vectors.mean(axis=0), matched_cosine=0.0)
    assert gap.all_pairs_cosine == pytest.approx((vectors @ text.T).mean(), abs=1e-12)
    fractions = [part.fraction for part in gap.parts]
    assert sum(fractions) == pytest.approx(1.0)
    assert fractions == sorted(fractions, reverse=True)


def test_no_gap_has_no_parts(features):
    centroid = features(3, 5).mean(axis=0)
    gap = modality_gap(centroid, centroid, matched_cosine=1.0)
    assert gap.distance == 0
    assert all(part.fraction == 0 for part in gap.parts)
