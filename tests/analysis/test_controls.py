"""Regularisers that win equally many signs beside their null controls, with a tiny random model."""

import numpy as np
import pytest

from dtpt.analysis.controls import (
    CONTROLS,
    RANDOM,
    ControlsOptions,
    curve_distances,
)
from dtpt.errors import MethodError, MetricError
from dtpt.metrics import Predictions, pool
from dtpt.metrics.distributions import student_quantile
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import controls_figure
from dtpt.tables import Table


@pytest.fixture(scope="module")
def chosen(images, tmp_path_factory):
    return ControlsOptions(
        model="tiny",
        dataset=(images.name,),
        method=("c-tpt", "d-tpt:aligned"),
        quantiles=(0.6, 0.9),
        rates=(0.001, 0.003),
        views=4,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path_factory.mktemp("controls"),
    )


@pytest.fixture(scope="module")
def study(chosen, tiny_clip, images):
    return CONTROLS.run(chosen, model=tiny_clip, datasets=[images])


def test_every_regulariser_and_control_occurs_at_every_quantile(study):
    (family,) = study.families
    curve = [row.name for row in family.rows if "quantile" not in row.facts]
    assert curve == ["zero-shot", "tpt+lr=0.001", "tpt+lr=0.003", "tpt"]
    rows = family.rows[len(curve) :]
    names = ("c-tpt", "d-tpt:aligned", *RANDOM)
    found = [(row.facts["quantile"], row.facts["method"]) for row in rows]
    assert found == [(quantile, name) for quantile in (0.6, 0.9) for name in names]
    assert [row.facts["is_random"] for row in rows] == 2 * [False, False, True, True]


def test_the_lambdas_that_were_selected_are_on_record(study):
    assert sum("c-tpt@auto=0.9" in note for note in study.origin.notes) == 1


def test_differences_are_to_random_directions_of_the_same_quantile(study):
    (family,) = study.families
    pairs = {(one.first, one.second) for one in family.comparisons}
    assert pairs == {
        (f"{name}@auto={quantile}", f"{random}@auto={quantile}")
        for name in ("c-tpt", "d-tpt:aligned")
        for quantile in (0.6, 0.9)
        for random in RANDOM
    } | {("tpt", "zero-shot")}
    counts = {one.first: one.comparisons for one in family.comparisons}
    assert counts.pop("tpt") == 5
    assert set(counts.values()) == {2 * 2 * 5}


def test_a_distance_is_above_or_below_the_curve(study):
    for row in study.families[0].rows:
        distance = row.facts.get("above_curve")
        if distance is not None:
            assert distance.low <= distance.value <= distance.high
            assert distance.detectable >= (distance.high - distance.low) / 2


def test_tables_have_a_text_in_every_cell(study):
    tables = [part for part in CONTROLS.tables(study) if isinstance(part, Table)]
    assert tables
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("name", ["tpt", "c-tpt@50", "c-tpt@auto"])
def test_what_is_not_a_plain_regulariser_is_refused(chosen, tiny_clip, images, name):
    options = chosen.model_copy(update={"method": (name,)})
    with pytest.raises(MethodError, match=name):
        CONTROLS.run(options, model=tiny_clip, datasets=[images])


def test_its_figure_has_one_panel_per_family_and_names_its_curves(study):
    figure = controls_figure(study)
    assert len(figure.axes) == len(study.families)
    assert "smaller steps" in svg_text(figure)


def method(accuracy, gap, *, rng, n=4000):
    """Images with a given accuracy and a mean confidence `gap` above it."""
    right = rng.uniform(size=n) < accuracy
    sure = np.clip(accuracy + gap + rng.normal(0, 0.05, size=n), 0, 1)
    return pool({"set": [Predictions.from_confidence(sure, right)]})


@pytest.fixture
def rng():
    return np.random.default_rng(0)


CURVE = ["a", "b", "c"]


def line(rng):
    """A curve on which accuracy rises by half of the gap."""
    gaps = dict(zip(CURVE, (0.0, 0.05, 0.1), strict=True))
    return {name: method(0.5 + gap / 2, gap, rng=rng) for name, gap in gaps.items()}


def test_a_method_above_the_curve_is_found_and_one_on_it_is_not(rng):
    others = {"above": method(0.575, 0.05, rng=rng), "on": method(0.5375, 0.075, rng=rng)}
    found = curve_distances(CURVE, line(rng) | others, resamples=500)
    above, on = found["above"], found["on"]
    assert above.low > 0
    assert above.value == pytest.approx(0.05, abs=0.03)
    assert on.low < 0 < on.high
    assert above.level == pytest.approx(0.975)


def test_an_interval_at_a_corrected_level_needs_no_extreme_draw(rng):
    """49 methods ask for 0.05 % tails, which no quantile of 500 draws reaches."""
    one = {"x": method(0.5375, 0.075, rng=rng)}
    many = one | {f"other {k}": method(0.5, 0.05, rng=rng) for k in range(48)}
    curve = line(rng)
    alone, among = (
        curve_distances(CURVE, curve | others, resamples=500)["x"] for others in (one, many)
    )
    wider = student_quantile(1 - 0.05 / 49, 4000) / student_quantile(0.95, 4000)
    assert (among.high - among.low) / (alone.high - alone.low) == pytest.approx(wider, rel=0.01)


def test_points_of_the_curve_itself_have_no_distance(rng):
    curve = line(rng)
    (found,) = curve_distances(CURVE, curve | {"middle": curve["b"]}, resamples=50).values()
    assert found.value == pytest.approx(0, abs=1e-12)
    assert found.inside


def test_beyond_the_ends_the_end_counts_and_is_marked(rng):
    curve, far = line(rng), method(0.6, 0.3, rng=rng)
    (found,) = curve_distances(CURVE, curve | {"far": far}).values()
    assert not found.inside
    accuracy = [each.seeds[0].correct.mean() for each in (far, curve["c"])]
    assert found.value == pytest.approx(accuracy[0] - accuracy[1], abs=1e-9)


def test_too_few_points_or_other_images_are_refused(rng):
    one, other = method(0.5, 0.0, rng=rng), method(0.5, 0.0, rng=rng, n=10)
    with pytest.raises(MetricError):
        curve_distances(["a"], {"a": one, "x": one})
    with pytest.raises(MetricError, match="images"):
        curve_distances(["a", "b"], {"a": one, "b": one, "x": other})
