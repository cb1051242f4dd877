"""The drift score: its value by hand, what it is by chance, and that it notices a change."""

import math

import numpy as np
import pytest

from dtpt.calibration.drift import BINS, confidence_counts, drift
from dtpt.errors import CalibrationError


def test_its_value_by_hand():
    found = drift([3, 1], [1, 3])
    p, q = 3.5 / 5, 1.5 / 5
    assert found.index == pytest.approx((q - p) * math.log(q / p) + (p - q) * math.log(p / q))
    assert found.chance == pytest.approx(1 / 4 + 1 / 4)
    assert found.images == 4


def test_equal_histograms_have_none():
    assert drift([500, 0, 900], [50, 0, 90]).index < 0.01
    assert drift([5, 0, 9], [5, 0, 9]).index == 0


def test_without_a_change_it_is_what_chance_gives():
    generator = np.random.default_rng(0)
    counts = confidence_counts(generator.beta(4, 2, size=400))
    found = [drift(counts, confidence_counts(generator.beta(4, 2, size=300))) for _ in range(200)]
    # the labelled images are the same in all of them, so the mean depends on their draw
    assert np.mean([one.index for one in found]) == pytest.approx(found[0].chance, rel=0.6)


def test_lower_confidence_is_noticed():
    generator = np.random.default_rng(1)
    counts = confidence_counts(generator.beta(4, 2, size=400))
    changed = drift(counts, confidence_counts(generator.beta(2, 2, size=400)))
    assert changed.index > 0.25 > 3 * changed.chance


def test_bins_include_their_upper_edge():
    counts = confidence_counts([0.0, 0.1, 0.3, np.nextafter(0.3, 1), 1.0])
    assert counts.tolist() == [2, 0, 1, 1, 0, 0, 0, 0, 0, 1]
    assert len(counts) == BINS


@pytest.mark.parametrize("values", [[1.2], [-0.1], [math.nan], [[0.5]]])
def test_other_numbers_are_refused(values):
    with pytest.raises(CalibrationError):
        confidence_counts(values)


@pytest.mark.parametrize(("old", "new"), [([0, 0], [1, 0]), ([1, 0], [0, 0]), ([1], [1, 0])])
def test_no_images_have_no_score(old, new):
    with pytest.raises(CalibrationError):
        drift(old, new)
