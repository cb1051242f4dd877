"""Dominant dimensions, dimension profiles and the modality gap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.analysis.dominant import RunningProfile, analyse_features, analyse_profile
from dtpt.analysis.gap import modality_gap
from dtpt.errors import MetricError


@pytest.mark.parametrize("spike", [0.9, -0.9])
def test_a_planted_dimension_is_found_with_its_sign(features, spike):
    values = features(40, 64, spike=(17, spike))
    found = analyse_features(values, "text").dominant
    assert (found.index, found.sign) == (17, int(np.sign(spike)))
    assert found.consistency == 1.0
    assert found.mean == pytest.approx(values[:, 17].mean())
    assert found.norm_share == pytest.approx((values[:, 17] ** 2).mean())  # unit vectors
    assert found.norm_share > 0.3
    assert found.runner_up != 17
    assert found.runner_up_absolute < found.mean_absolute


def test_consistency_is_the_share_of_rows_that_agree():
    values = np.zeros((10, 5))
    values[:7, 2] = 1.0
    values[7:, 4] = 1.0
    found = analyse_features(values, "image").dominant
    assert (found.index, found.consistency) == (2, 0.7)
    assert found.runner_up == 4


def test_profile_has_the_quantiles_of_every_dimension(features):
    values = features(101, 8, seed=5)
    profile = analyse_features(values, "image").profile
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
    whole, streamed = analyse_features(values, "image"), analyse_profile(running, "image")
    assert streamed.dominant.index == whole.dominant.index
    np.testing.assert_allclose(streamed.profile.mean, whole.profile.mean)
    np.testing.assert_allclose(streamed.profile.low, whole.profile.low)


def test_quantiles_come_from_the_kept_rows_and_say_so(features):
    values = features(20, 4)
    running = RunningProfile(4)
    for index, row in enumerate(values):
        running.add(row[None], keep=index < 5)
    profile = analyse_profile(running, "image").profile
    assert (profile.rows, profile.quantile_rows) == (20, 5)
    np.testing.assert_allclose(profile.median, np.median(values[:5], axis=0))
    np.testing.assert_allclose(profile.maximum, values.max(axis=0))


@pytest.mark.parametrize("bad", [np.zeros((0, 4)), np.zeros(4), np.full((2, 4), np.nan)])
def test_features_without_meaning_are_refused(bad):
    with pytest.raises(MetricError):
        analyse_features(bad, "text")


def test_a_shift_in_one_dimension_carries_the_whole_gap():
    text = np.array([[0.6, 0.8, 0.0], [0.6, -0.8, 0.0]])
    images = np.array([[-0.6, 0.8, 0.0], [-0.6, -0.8, 0.0]])
    gap = modality_gap(text, images, labels=[0, 1])
    assert gap.distance == pytest.approx(1.2)
    assert gap.cosine == pytest.approx(-1.0)
    assert gap.matched_cosine == pytest.approx(0.28)
    assert gap.shares[0].dimension == 0
    assert gap.shares[0].share == pytest.approx(1.0)
    assert gap.shares[0].difference == pytest.approx(1.2)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 7), st.integers(2, 9))
def test_gap_is_consistent_with_all_pairs(seed, classes, images, dimensions):
    generator = np.random.default_rng(seed)
    text, pictures = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (
            generator.normal(size=(classes, dimensions)),
            generator.normal(size=(images, dimensions)),
        )
    )
    labels = generator.integers(0, classes, images)
    gap = modality_gap(text, pictures, labels=labels, top=dimensions)
    cosines = pictures @ text.T
    assert gap.all_pairs_cosine == pytest.approx(cosines.mean(), abs=1e-12)
    assert gap.matched_cosine == pytest.approx(cosines[np.arange(images), labels].mean())
    assert sum(s.share for s in gap.shares) == pytest.approx(1.0)
    shares = [s.share for s in gap.shares]
    assert shares == sorted(shares, reverse=True)


def test_no_gap_has_no_carriers(features):
    values = features(3, 5)
    gap = modality_gap(values, values, labels=[0, 1, 2])
    assert gap.distance == 0
    assert all(share.share == 0 for share in gap.shares)
    assert gap.matched_cosine == pytest.approx(1.0)
