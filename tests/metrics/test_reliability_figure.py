"""The reliability diagram shows the data it is given."""

import numpy as np
import pytest

from dtpt.metrics import calibrated_band, reliability_bins
from dtpt.report.figures.reliability import reliability_diagram


def test_bars_are_accuracies_gaps_reach_the_mean_confidence_and_shares_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.4, 1, size=500)
    data = reliability_bins(confidence, rng.uniform(size=500) < confidence - 0.2)
    _, (upper, lower) = reliability_diagram(data, title="DTD")
    used = data.count > 0
    solid, hatched = upper.containers
    assert [bar.get_height() for bar in solid] == pytest.approx(data.accuracy[used].tolist())
    tops = [bar.get_y() + bar.get_height() for bar in hatched]
    assert tops == pytest.approx(data.mean_confidence[used].tolist())
    assert sum(bar.get_height() for bar in lower.containers[0]) == pytest.approx(1)
    assert upper.get_title() == "DTD"


def test_gap_is_distinct_from_accuracy_without_colour() -> None:
    _, (upper, _) = reliability_diagram(reliability_bins([0.9, 0.3], [False, True]))
    solid, hatched = upper.containers
    assert all(bar.get_hatch() is None for bar in solid)
    assert all(bar.get_hatch() for bar in hatched)


def test_each_figure_is_independent_of_pyplot() -> None:
    import sys

    reliability_diagram(reliability_bins([0.9], [True]))
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_band_of_a_calibrated_model_is_drawn_on_request() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.4, 1, size=200)
    data = reliability_bins(confidence, rng.uniform(size=200) < confidence)
    band = calibrated_band(confidence)
    _, (upper, _) = reliability_diagram(data, band=band)
    drawn = upper.containers[-1].lines[2][0].get_segments()
    used = data.count > 0
    assert [segment[0, 1] for segment in drawn] == pytest.approx(band.low[used])
    assert [segment[1, 1] for segment in drawn] == pytest.approx(band.high[used])
