"""Regularisers at equal strength beside their null controls, with a tiny random model."""

import pytest

from dtpt.analysis.control_study import RANDOM, study_controls
from dtpt.analysis.controls_options import ControlsOptions
from dtpt.cli.output import record_parts
from dtpt.errors import MethodError
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import controls_figure
from dtpt.tables import Table


@pytest.fixture(scope="module")
def chosen(pictures, tmp_path_factory):
    return ControlsOptions(
        model="tiny",
        dataset=(pictures.name,),
        method=("c-tpt", "d-tpt:aligned"),
        strengths=(0.6, 0.9),
        rates=(0.001, 0.003),
        views=4,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path_factory.mktemp("controls"),
    )


@pytest.fixture(scope="module")
def study(chosen, tiny_clip, pictures):
    return study_controls(chosen, model=tiny_clip, datasets=[pictures])


def test_every_regulariser_and_control_occurs_at_every_strength(study):
    (family,) = study.families
    assert [point.method for point in family.curve] == [
        "zero-shot",
        "tpt+lr=0.001",
        "tpt+lr=0.003",
        "tpt",
    ]
    names = ("c-tpt", "d-tpt:aligned", *RANDOM)
    found = [(row.strength, row.method) for row in family.rows]
    assert found == [(strength, name) for strength in (0.6, 0.9) for name in names]
    assert [row.is_random for row in family.rows] == 2 * [False, False, True, True]


def test_the_weights_that_were_found_are_on_record(study):
    texts = [text for text in study.origin.remarks if "c-tpt@auto=0.9" in text]
    assert len(texts) == 1
    assert "without their labels" in texts[0]


def test_differences_are_to_random_directions_of_the_same_strength(study):
    for row in study.families[0].rows:
        others = {one.second for one in row.to_random}
        own = {f"{name}@auto={row.strength:g}" for name in RANDOM}
        assert others == (set() if row.is_random else own)


def test_a_distance_is_measured_from_the_method_itself(study):
    for row in study.families[0].rows:
        found = row.above_curve
        assert found.accuracy == pytest.approx(row.estimates["accuracy"].value)
        assert found.signed_gap == pytest.approx(row.estimates["signed_gap"].value)
        assert found.low <= found.distance <= found.high


def test_tables_have_a_text_in_every_cell(study):
    tables = [part for part in record_parts(study) if isinstance(part, Table)]
    assert tables
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


@pytest.mark.parametrize("name", ["tpt", "c-tpt@50", "c-tpt@auto"])
def test_what_has_no_strength_of_its_own_is_refused(chosen, tiny_clip, pictures, name):
    options = chosen.model_copy(update={"method": (name,)})
    with pytest.raises(MethodError, match="cannot be given a strength"):
        study_controls(options, model=tiny_clip, datasets=[pictures])


def test_its_figure_has_one_panel_per_family_and_names_its_curves(study):
    figure = controls_figure(study)
    assert len(figure.axes) == len(study.families)
    assert "smaller steps" in svg_text(figure)
