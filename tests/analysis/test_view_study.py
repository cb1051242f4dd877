"""Fewer views, and answers read from several of them, with a tiny random model."""

import json
from dataclasses import asdict

import pytest

from dtpt.analysis.study_files import save_study
from dtpt.analysis.study_runs import Key, Part
from dtpt.analysis.view_study import Setting, plan_parts, setting_of, study_views
from dtpt.analysis.views_options import ViewsOptions
from dtpt.cli.output import record_parts
from dtpt.errors import RunError
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import dial_figure
from dtpt.runs import EvalOptions, run_options
from dtpt.tables import Table


@pytest.fixture(scope="module")
def chosen(pictures, tmp_path_factory):
    return ViewsOptions(
        model="tiny",
        dataset=(pictures.name,),
        method=("tpt", "d-tpt@1e4", "zero"),
        counts=(8, 16, 32),
        kept=(0.25, 0.5),
        shares=(0.1, 0.3, 1.0),
        threads=1,
        quiet=True,
        output=tmp_path_factory.mktemp("views"),
    )


@pytest.fixture(scope="module")
def study(chosen, tiny_clip, pictures):
    return study_views(chosen, model=tiny_clip, datasets=[pictures])


def row_of(study, setting):
    (found,) = (row for row in study.families[0].rows if row.setting == setting)
    return found


def test_every_method_occurs_with_every_number_of_views_and_every_share_kept(study):
    (family,) = study.families
    found = {row.setting for row in family.rows}
    for views in (8, 16, 32):
        assert Setting("zero", views, None, None) in found
        assert {s.share for s in found if s.method == "zero-shot" and s.views == views} >= {0.1, 1}
        for kept in (0.25, 0.5):
            assert Setting("tpt", views, kept, None) in found
    assert Setting("zero-shot", 1, None, None) in found
    assert Setting("d-tpt@10000", 32, 0.25, 1.0) in found  # the dial of a tuned method
    assert len(found) == len(family.rows)


def test_costs_are_counted_in_passes(study):
    def passes(*setting):
        row = row_of(study, Setting(*setting))
        return row.image_passes, row.text_passes

    assert passes("zero-shot", 1, None, None) == (1, 0)
    assert passes("zero-shot", 16, None, 0.3) == (16, 0)
    assert passes("tpt", 8, 0.5, None) == (8, 2)


def test_numbers_are_those_of_a_run_with_that_many_views(study, tiny_clip, pictures, tmp_path):
    options = EvalOptions(
        model="tiny",
        dataset=(pictures.name,),
        method=("tpt", "zero-shot+views=0.3"),
        views=16,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path,
    )
    with run_options(options, model=tiny_clip, datasets=[pictures]) as run:
        tpt, mean = (run.rows_of(cell) for cell in run.cells)
    for rows, setting in ((tpt, ("tpt", 16, 0.5, None)), (mean, ("zero-shot", 16, None, 0.3))):
        found = row_of(study, Setting(*setting)).estimates
        assert found["accuracy"].value == pytest.approx(rows.correct.mean())
        gap = rows.confidence.mean() - rows.correct.mean()
        assert found["signed_gap"].value == pytest.approx(gap)


def test_differences_are_between_the_rows_they_name(study):
    few, most = (row_of(study, Setting("tpt", n, 0.25, None)) for n in (8, 32))
    assert not most.to_most
    for one in few.to_most:
        values = few.estimates[one.metric].value, most.estimates[one.metric].value
        assert one.estimate == pytest.approx(values[0] - values[1])
        assert one.low <= one.estimate <= one.high
    dial = row_of(study, Setting("tpt", 32, 0.25, 1.0))
    assert {one.second for one in dial.to_original} == {"tpt, 32 views, tuned on 0.25"}
    assert {one.second for one in dial.to_untuned} == {"zero-shot, 32 views, read from 1"}


def test_few_views_without_a_gradient_meet_the_most_with_one(study):
    duels = study.families[0].few_against_many
    assert {(d.few.views, d.few.share) for d in duels} == {(16, 0.3)}  # 0.4 was not asked for
    assert {(d.many.method, d.many.views) for d in duels} == {("tpt", 32), ("d-tpt@10000", 32)}


def test_a_second_call_computes_nothing(study, chosen, tiny_clip, pictures, monkeypatch):
    monkeypatch.setattr("dtpt.tuning.Tuner.predict", lambda *_: pytest.fail("tuned again"))
    again = study_views(chosen, model=tiny_clip, datasets=[pictures])
    assert again.families == study.families


def test_the_file_has_every_number_and_tables_are_whole(study, tmp_path):
    path = save_study(study, tmp_path / "new", name="views")
    assert json.loads(path.read_text())["families"] == json.loads(
        json.dumps(asdict(study)["families"])
    )
    tables = [part for part in record_parts(study) if isinstance(part, Table)]
    assert tables
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


def test_only_methods_that_tune_are_run_for_further_shares_kept():
    parts = plan_parts(
        ViewsOptions(dataset=("x",), method=("vte",), counts=(8, 4), kept=(0.1, 0.5))
    )
    assert [part.name for part in parts] == ["views-8-kept-0.1", "views-4-kept-0.1"]


def test_a_setting_is_read_from_a_label():
    part = Part("p", (), 16, 0.1)
    assert setting_of(Key("p", "zero-shot"), part) == Setting("zero-shot", 1, None, None)
    found = setting_of(Key("p", "c-tpt+views=0.3@auto=0.9"), part)
    assert found == Setting("c-tpt@auto=0.9", 16, 0.1, 0.3)


def test_a_set_without_a_readable_picture_is_refused(chosen, tiny_clip, own_pictures, tmp_path):
    for sample in own_pictures.samples:
        sample.image.path.write_bytes(b"no picture")
    options = chosen.model_copy(update={"output": tmp_path / "bad", "max_failures": 1.0})
    with pytest.raises(RunError, match="no picture could be read"):
        study_views(options, model=tiny_clip, datasets=[own_pictures])


def test_its_figure_has_one_panel_per_family_and_names_its_curves(study):
    figure = dial_figure(study)
    assert len(figure.axes) == len(study.families)
    assert "zero-shot" in svg_text(figure)
