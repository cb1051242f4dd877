"""The study of the basis with a tiny random model."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dtpt.analysis.basis import basis_names
from dtpt.analysis.basis_options import BasisOptions
from dtpt.analysis.basis_study import study_basis
from dtpt.analysis.study_files import study_json
from dtpt.cli.output import record_parts
from dtpt.errors import RunError
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import basis_figure
from dtpt.runs import EvalOptions, run_options
from dtpt.tables import Table


@pytest.fixture(scope="module")
def chosen(pictures, tmp_path_factory):
    return BasisOptions(
        model="tiny",
        dataset=(pictures.name,),
        method=("zero-shot", "tpt", "c-tpt", "d-tpt:aligned"),
        weights=(1e3, 1e6),
        views=4,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path_factory.mktemp("basis"),
    )


@pytest.fixture(scope="module")
def study(chosen, tiny_clip, pictures):
    return study_basis(chosen, model=tiny_clip, datasets=[pictures])


def test_what_is_odd_about_the_pictures_stands_in_the_study(chosen, study, tiny_clip, pictures):
    odd = replace(pictures, remarks=("Two files are no pictures.",))
    again = study_basis(chosen, model=tiny_clip, datasets=[odd])
    assert again.origin.remarks == (*tiny_clip.notes, "Two files are no pictures.")
    assert again.families == study.families


def test_cosines_stay_and_so_do_the_answers(study):
    (entry,) = study.datasets
    assert [one.method.partition("@")[0] for one in entry.invariance] == [
        "zero-shot",
        "tpt",
        "c-tpt",
        "d-tpt:aligned",
    ]
    for one in entry.invariance:
        assert one.same_answers == 1
        assert one.mean_move < 1e-4, one.method


def test_what_d_tpt_sees_depends_on_the_basis(study):
    facts = {one.basis: one for one in study.datasets[0].bases}
    assert list(facts) == list(basis_names())
    assert facts["mean text"].dominant_share > facts["random 0"].dominant_share
    norms = [one.gradient_norm for one in facts.values()]
    assert max(norms) > 1.02 * min(norms)
    for one in facts.values():
        assert one.signs_won[0] < one.signs_won[1]


def test_the_own_basis_is_d_tpt_itself(study, tiny_clip, pictures, tmp_path):
    options = EvalOptions(
        model="tiny",
        dataset=(pictures.name,),
        method=("d-tpt@1e6",),
        views=4,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path,
    )
    with run_options(options, model=tiny_clip, datasets=[pictures]) as run:
        rows = run.rows_of(*run.cells)
    own = next(r for r in study.families[0].rows if (r.basis, r.weight) == ("own", 1e6))
    assert own.estimates["accuracy"].value == pytest.approx(rows.correct.mean())
    gap = rows.confidence.mean() - rows.correct.mean()
    assert own.estimates["signed_gap"].value == pytest.approx(gap, abs=1e-6)
    assert own.to_own == ()


def test_other_bases_are_compared_with_the_own(study):
    rows = {(row.basis, row.weight): row for row in study.families[0].rows}
    assert len(rows) == 5 * 2
    turned, own = rows["mean text", 1e3], rows["own", 1e3]
    for one in turned.to_own:
        values = [row.estimates[one.metric].value for row in (turned, own)]
        assert one.estimate == pytest.approx(values[0] - values[1])
    assert turned.signs_won != own.signs_won


def test_finished_sets_are_kept(study, chosen, tiny_clip, pictures, monkeypatch):
    monkeypatch.setattr("dtpt.tuning.Tuner.predict", lambda *_: pytest.fail("tuned again"))
    again = study_basis(chosen, model=tiny_clip, datasets=[pictures])
    assert again == study


def test_damaged_answers_are_refused(study, chosen, tiny_clip, pictures, tmp_path):
    (kept,) = (chosen.output / "answers").iterdir()
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / kept.name).write_bytes(kept.read_bytes()[:-100])
    options = chosen.model_copy(update={"output": tmp_path})
    with pytest.raises(RunError, match="is damaged: delete it"):
        study_basis(options, model=tiny_clip, datasets=[pictures])


def test_json_and_tables(study):
    content = json.loads(study_json(study))
    assert content["weights"] == [1e3, 1e6]
    tables = [part for part in record_parts(study) if isinstance(part, Table)]
    assert tables
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


def test_several_seeds_are_refused(chosen, tiny_clip, pictures):
    options = chosen.model_copy(update={"seed": (0, 1)})
    with pytest.raises(RunError, match="one seed"):
        study_basis(options, model=tiny_clip, datasets=[pictures])


def test_processes_give_the_same_answers(tmp_path, tiny_clip, pictures):
    """A saved model and a folder of pictures can be opened by other processes."""
    from dtpt.clip.loading.save import save_model

    save_model(tiny_clip, tmp_path / "tiny", tokenizer_json=None)
    settings = {
        "model": f"local-dir:{tmp_path / 'tiny'}",
        "dataset": (pictures.name,),
        "method": ("zero-shot",),
        "weights": (1e6,),
        "views": 2,
        "rho": 0.5,
        "quiet": True,
        "cache": False,
    }
    alone, together = (
        study_basis(BasisOptions(**settings, output=tmp_path / str(n), replicas=n)) for n in (1, 2)
    )
    assert alone.families == together.families
    assert np.isfinite(alone.datasets[0].invariance[0].largest_move)


def test_its_figure_has_one_panel_per_family_and_names_its_curves(study):
    figure = basis_figure(study)
    assert len(figure.axes) == len(study.families)
    assert "mean text" in svg_text(figure)
