"""Fewer views, and predictions read from several of them, with a tiny random model."""

import json
from dataclasses import asdict

import pytest

from dtpt.analysis.study import Part, save_json
from dtpt.analysis.views import VIEWS, Setting, ViewsOptions, plan_parts, setting_of
from dtpt.errors import RunError
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import dial_figure
from dtpt.runs import EvalOptions, run_options
from dtpt.tables import Table


@pytest.fixture(scope="module")
def chosen(images, tmp_path_factory):
    return ViewsOptions(
        model="tiny",
        dataset=(images.name,),
        method=("tpt", "d-tpt@1e4", "zero"),
        counts=(8, 16, 32),
        kept=(0.25, 0.5),
        fractions=(0.1, 0.3, 1.0),
        tolerances=(1e-9, 1.0),
        threads=1,
        quiet=True,
        output=tmp_path_factory.mktemp("views"),
    )


@pytest.fixture(scope="module")
def study(chosen, tiny_clip, images):
    return VIEWS.run(chosen, model=tiny_clip, datasets=[images])


def row_of(study, setting):
    (found,) = (row for row in study.families[0].rows if row.name == str(setting))
    return found


def test_every_method_occurs_with_every_number_of_views_and_every_rho(study):
    (family,) = study.families
    found = {row.name for row in family.rows}
    for views in (8, 16, 32):
        assert str(Setting("zero", views, None, None)) in found
        assert {str(Setting("zero-shot", views, None, k)) for k in (0.1, 0.3, 1.0)} <= found
        assert {str(Setting("tpt", views, rho, None)) for rho in (0.25, 0.5)} <= found
    assert str(Setting("zero-shot", 1, None, None)) in found
    assert str(Setting("d-tpt@1e4", 32, 0.25, 1.0)) in found  # the dial of a tuned method
    assert len(found) == len(family.rows)


def test_costs_are_counted_in_passes(study):
    def passes(*setting):
        facts = row_of(study, Setting(*setting)).facts
        return facts["image_passes"], facts["text_passes"]

    assert passes("zero-shot", 1, None, None) == (1, 0)
    assert passes("zero-shot", 16, None, 0.3) == (16, 0)
    assert passes("tpt", 8, 0.5, None) == (8, 2)


def test_the_anytime_read_out_is_compared_at_its_mean_number_of_passes(study):
    full = row_of(study, Setting("zero-shot", 32, None, 0.3))
    tight, loose = (row_of(study, Setting("zero-shot", 32, None, 0.3, t)) for t in (1e-9, 1.0))
    assert tight.reference == loose.reference == full.name
    assert full.facts["image_passes"] == tight.facts["image_passes"] == 32
    assert 8 <= loose.facts["image_passes"] < 32
    assert tight.estimates == full.estimates
    found = [c for c in study.families[0].comparisons if c.first == loose.name]
    assert {c.second for c in found} == {full.name}


def test_numbers_are_those_of_a_run_with_that_many_views(study, tiny_clip, images, tmp_path):
    options = EvalOptions(
        model="tiny",
        dataset=(images.name,),
        method=("tpt", "zero-shot+views=0.3"),
        views=16,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path,
    )
    with run_options(options, model=tiny_clip, datasets=[images]) as run:
        tpt, mean = (run.rows_of(cell) for cell in run.cells)
    for rows, setting in ((tpt, ("tpt", 16, 0.5, None)), (mean, ("zero-shot", 16, None, 0.3))):
        found = row_of(study, Setting(*setting)).estimates
        assert found["accuracy"].value == pytest.approx(rows.correct.mean())
        gap = rows.confidence.mean() - rows.correct.mean()
        assert found["signed_gap"].value == pytest.approx(gap)


def test_fewer_views_are_compared_with_the_most(study):
    (family,) = study.families
    few, most = (row_of(study, Setting("tpt", n, 0.25, None)) for n in (8, 32))
    assert (few.reference, most.reference) == (most.name, None)
    found = [one for one in family.comparisons if (one.first, one.second) == (few.name, most.name)]
    assert len(found) == len(few.estimates) == 5
    for one in found:
        values = few.estimates[one.metric].value, most.estimates[one.metric].value
        assert one.estimate == pytest.approx(values[0] - values[1])
        assert one.low <= one.estimate <= one.high


def test_few_views_without_a_gradient_meet_the_most_with_one(study):
    (family,) = study.families
    shown = {(row.name, row.reference) for row in family.rows}
    pairs = {(c.first, c.second) for c in family.comparisons} - shown
    few = str(Setting("zero-shot", 16, None, 0.3))  # 0.4 was not asked for
    many = [Setting(m, 32, rho, None) for m in ("tpt", "d-tpt@1e4") for rho in (0.25, 0.5)]
    assert pairs == {(few, str(setting)) for setting in many}


def test_a_second_call_computes_nothing(study, chosen, tiny_clip, images, monkeypatch):
    monkeypatch.setattr("dtpt.tuning.Tuner.predict", lambda *_: pytest.fail("tuned again"))
    again = VIEWS.run(chosen, model=tiny_clip, datasets=[images])
    assert again.families == study.families


def test_the_file_has_every_number_and_tables_are_whole(study, tmp_path):
    path = save_json(study, tmp_path / "new" / "views.json")
    assert json.loads(path.read_text())["families"] == json.loads(
        json.dumps(asdict(study)["families"])
    )
    tables = [part for part in VIEWS.tables(study) if isinstance(part, Table)]
    assert tables
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


def test_only_methods_that_tune_are_run_for_further_rhos():
    parts = plan_parts(
        ViewsOptions(dataset=("x",), method=("vte",), counts=(8, 4), kept=(0.1, 0.5))
    )
    assert [part.name for part in parts] == ["views-8-kept-0.1", "views-4-kept-0.1"]


def test_a_setting_is_read_from_a_label():
    part = Part("p", (), 16, 0.1)
    assert setting_of("zero-shot", part) == Setting("zero-shot", 1, None, None)
    found = setting_of("c-tpt+views=0.3@auto=0.9", part)
    assert found == Setting("c-tpt@auto=0.9", 16, 0.1, 0.3)


def test_a_set_without_a_readable_image_is_refused(chosen, tiny_clip, own_images, tmp_path):
    for sample in own_images.samples:
        sample.image.path.write_bytes(b"broken")
    options = chosen.model_copy(update={"output": tmp_path / "bad", "max_failures": 1.0})
    with pytest.raises(RunError, match="read"):
        VIEWS.run(options, model=tiny_clip, datasets=[own_images])


def test_its_figure_has_one_panel_per_family_and_names_its_curves(study):
    figure = dial_figure(study)
    assert len(figure.axes) == len(study.families)
    assert "zero-shot" in svg_text(figure)
