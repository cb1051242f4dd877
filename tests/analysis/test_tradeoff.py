"""Distances to the curve that smaller steps trace."""

import numpy as np
import pytest

from dtpt.analysis.tradeoff import curve_distances
from dtpt.errors import MetricError
from dtpt.metrics import Predictions, pool


def method(accuracy, gap, *, rng, n=4000):
    """Pictures with a given accuracy and a mean confidence `gap` above it."""
    right = rng.uniform(size=n) < accuracy
    sure = np.clip(accuracy + gap + rng.normal(0, 0.05, size=n), 0, 1)
    return pool({"set": [Predictions.from_confidence(sure, right)]})


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def line(rng):
    """A curve on which accuracy rises by half of the gap."""
    return [method(0.5 + gap / 2, gap, rng=rng) for gap in (0.0, 0.05, 0.1)]


def test_a_method_above_the_curve_is_found_and_one_on_it_is_not(rng):
    curve = line(rng)
    found = curve_distances(
        curve,
        {"above": method(0.575, 0.05, rng=rng), "on": method(0.5375, 0.075, rng=rng)},
        generator=rng,
        resamples=500,
    )
    above, on = found
    assert above.low > 0
    assert above.distance == pytest.approx(0.05, abs=0.03)
    assert on.low < 0 < on.high
    assert all(d.low <= d.distance <= d.high for d in found)
    assert above.level == pytest.approx(0.975)


def test_points_of_the_curve_itself_have_no_distance(rng):
    curve = line(rng)
    (found,) = curve_distances(curve, {"middle": curve[1]}, generator=rng, resamples=50)
    assert found.distance == pytest.approx(0, abs=1e-12)
    assert found.inside


def test_beyond_the_ends_the_end_counts_and_is_marked(rng):
    curve = line(rng)
    (found,) = curve_distances(curve, {"far": method(0.6, 0.3, rng=rng)}, generator=rng)
    assert not found.inside
    assert found.curve_accuracy == pytest.approx(curve[2].seeds[0].correct.mean(), abs=1e-9)


def test_too_few_points_or_other_pictures_are_refused(rng):
    one, other = method(0.5, 0.0, rng=rng), method(0.5, 0.0, rng=rng, n=10)
    with pytest.raises(MetricError, match="two points"):
        curve_distances([one], {"x": one}, generator=rng)
    with pytest.raises(MetricError, match="same images"):
        curve_distances([one, one], {"x": other}, generator=rng)
