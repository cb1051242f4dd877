"""Rotations of the joint space: what they change and what they must not, with a tiny model."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dtpt.analysis import to_json
from dtpt.analysis.basis import (
    BASES,
    BasisOptions,
    basis_tables,
    common_bases,
    dominant_fraction,
    first_axis_along,
    random_rotation,
    rotated,
    study_basis,
)
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError, RunError
from dtpt.methods import resolve_method
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import basis_figure
from dtpt.runs import EvalOptions, run_options
from dtpt.tables import Table
from dtpt.tuning import Tuner


@pytest.fixture(scope="module")
def chosen(images, tmp_path_factory):
    return BasisOptions(
        model="tiny",
        dataset=(images.name,),
        method=("zero-shot", "tpt", "c-tpt", "d-tpt:aligned"),
        lambdas=(1e3, 1e6),
        views=4,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path_factory.mktemp("basis"),
    )


@pytest.fixture(scope="module")
def study(chosen, tiny_clip, images):
    return study_basis(chosen, model=tiny_clip, datasets=[images])


def test_notes_of_the_data_set_are_in_the_study(chosen, study, tiny_clip, images):
    odd = replace(images, notes=("Two files are not images.",))
    again = study_basis(chosen, model=tiny_clip, datasets=[odd])
    assert again.origin.notes == (*tiny_clip.notes, "Two files are not images.")
    assert again.families == study.families


def test_cosines_stay_and_so_do_the_predictions(study):
    found = {fact["method"].partition("@")[0]: fact for fact in study.facts["invariance"]}
    assert list(found) == ["zero-shot", "tpt", "c-tpt", "d-tpt:aligned"]
    for name, fact in found.items():
        assert fact["same_predictions"] == 1
        assert fact["mean_move"] < 1e-4, name


def test_what_d_tpt_sees_depends_on_the_basis(study):
    facts = {fact["basis"]: fact for fact in study.facts["bases"]}
    assert list(facts) == list(BASES)
    assert facts["mean text"]["dominant_fraction"] > facts["random 0"]["dominant_fraction"]
    norms = [fact["gradient_norm"] for fact in facts.values()]
    assert max(norms) > 1.02 * min(norms)
    for fact in facts.values():
        assert fact["signs_won@1000"] < fact["signs_won@1e+06"]


def test_the_own_basis_is_d_tpt_itself(study, tiny_clip, images, tmp_path):
    options = EvalOptions(
        model="tiny",
        dataset=(images.name,),
        method=("d-tpt@1e6",),
        views=4,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path,
    )
    with run_options(options, model=tiny_clip, datasets=[images]) as run:
        rows = run.rows_of(*run.cells)
    own = next(row for row in study.families[0].rows if row.name == "own, λ 1e+06")
    assert own.estimates["accuracy"].value == pytest.approx(rows.correct.mean())
    gap = rows.confidence.mean() - rows.correct.mean()
    assert own.estimates["signed_gap"].value == pytest.approx(gap, abs=1e-6)
    assert own.reference is None


def test_other_bases_are_compared_with_the_own(study):
    (family,) = study.families
    rows = {row.name: row for row in family.rows}
    assert len(rows) == 5 * 2
    assert len(family.comparisons) == 4 * 2 * 6
    for one in family.comparisons:
        assert rows[one.first].reference == one.second
        values = [rows[name].estimates[one.metric].value for name in (one.first, one.second)]
        assert one.estimate == pytest.approx(values[0] - values[1])
    signs = {rows[f"{basis}, λ 1000"].facts["signs_won"] for basis in BASES}
    assert len(signs) > 1


def test_finished_sets_are_kept(study, chosen, tiny_clip, images, monkeypatch):
    monkeypatch.setattr("dtpt.tuning.Tuner.predict", lambda *_: pytest.fail("tuned again"))
    again = study_basis(chosen, model=tiny_clip, datasets=[images])
    assert again == study


def test_damaged_files_are_refused(study, chosen, tiny_clip, images, tmp_path):
    (kept,) = (chosen.output / "predictions").iterdir()
    (tmp_path / "predictions").mkdir()
    (tmp_path / "predictions" / kept.name).write_bytes(kept.read_bytes()[:-100])
    options = chosen.model_copy(update={"output": tmp_path})
    with pytest.raises(RunError, match="damaged"):
        study_basis(options, model=tiny_clip, datasets=[images])


def test_json_and_tables(study):
    content = json.loads(to_json(study))
    assert {row["facts"]["lambda"] for row in content["families"][0]["rows"]} == {1e3, 1e6}
    tables = [part for part in basis_tables(study) if isinstance(part, Table)]
    assert len(tables) == 3
    for table in tables:
        assert all(len(row.cells) == len(table.columns) for row in table.rows)


def test_several_seeds_are_refused(chosen, tiny_clip, images):
    options = chosen.model_copy(update={"seed": (0, 1)})
    with pytest.raises(RunError, match="seed"):
        study_basis(options, model=tiny_clip, datasets=[images])


def test_processes_give_the_same_numbers(tmp_path, tiny_clip, images):
    """A saved model and a folder of images can be opened by other processes."""
    from dtpt.clip.loading.save import save_model

    save_model(tiny_clip, tmp_path / "tiny", tokenizer_json=None)
    settings = {
        "model": f"local-dir:{tmp_path / 'tiny'}",
        "dataset": (images.name,),
        "method": ("zero-shot",),
        "lambdas": (1e6,),
        "views": 2,
        "rho": 0.5,
        "quiet": True,
        "cache": False,
    }
    alone, together = (
        study_basis(BasisOptions(**settings, output=tmp_path / str(n), workers=n)) for n in (1, 2)
    )
    assert alone.families == together.families
    assert alone.facts == together.facts
    assert np.isfinite(alone.facts["invariance"][0]["largest_move"])


def test_its_figure_has_one_panel_per_family_and_names_its_curves(study):
    figure = basis_figure(study)
    assert len(figure.axes) == len(study.families)
    assert "mean text" in svg_text(figure)


NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "tropical drink"]
INVARIANT = ["zero-shot", "tpt", "c-tpt", "o-tpt", "a-tpt", "d-tpt:aligned", "tpt+sals", "r-tpt"]
INVARIANT += ["mean-views", "mta", "vte", "zero"]
INVARIANT += ["zero-shot+no-tdd:aligned", "tpt+no-tdd:aligned"]


@pytest.fixture(scope="module")
def double_clip(make_clip):
    return make_clip(dtype=torch.float64)


def views_of(seed):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(64, 32, generator=generator, dtype=torch.float64), dim=-1)


def predictions(model, rotation, names, *, seed=1):
    tuner = Tuner(rotated(model, rotation), PromptSet.build(model, NAMES))
    outcomes = tuner.predict(views_of(seed) @ rotation, [resolve_method(name) for name in names])
    return [outcome.probabilities for outcome in outcomes]


@pytest.mark.parametrize("seed", range(4))
def test_only_d_tpt_depends_on_the_basis(double_clip, seed):
    rotation = random_rotation(32, seed=seed)
    names = [*INVARIANT, "d-tpt"]
    *before, own = predictions(double_clip, torch.eye(32, dtype=torch.float64), names)
    *after, turned = predictions(double_clip, rotation, names)
    for name, one, other in zip(INVARIANT, before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=name)
    assert float((own - turned).abs().max()) > 1e-6


def test_shifts_of_the_text_depend_on_the_basis_too(double_clip):
    """A signed step per dimension is not the same step in another basis."""
    rotation = random_rotation(32, seed=0)
    (own,) = predictions(double_clip, torch.eye(32, dtype=torch.float64), ["tps+lr=0.05"])
    (turned,) = predictions(double_clip, rotation, ["tps+lr=0.05"])
    assert float((own - turned).abs().max()) > 1e-6


def test_the_model_itself_is_left_alone(double_clip):
    before = double_clip.encode_text(["a photo of a cat."])
    turned = rotated(double_clip, random_rotation(32, seed=3))
    after = turned.encode_text(["a photo of a cat."])
    assert not torch.allclose(before, after)
    assert torch.equal(before, double_clip.encode_text(["a photo of a cat."]))
    assert turned.visual is double_clip.visual


def test_bases_are_orthogonal_and_do_what_their_names_say():
    generator = torch.Generator().manual_seed(0)
    text = F.normalize(torch.randn(9, 16, generator=generator, dtype=torch.float64) + 0.5, dim=-1)
    image = torch.randn(16, generator=generator, dtype=torch.float64)
    found = common_bases(text, image)
    assert list(found) == ["own", "random 0", "random 1", "gap", "mean text"]
    identity = torch.eye(16, dtype=torch.float64)
    for rotation in found.values():
        torch.testing.assert_close(rotation @ rotation.T, identity, atol=1e-12, rtol=0)
    mean = F.normalize(text.mean(0), dim=0)
    torch.testing.assert_close((text @ found["mean text"])[:, 0], text @ mean)
    assert dominant_fraction(text @ found["mean text"]) > dominant_fraction(
        text @ found["random 0"]
    )
    gap = F.normalize(text.mean(0) - image, dim=0)
    torch.testing.assert_close((text @ found["gap"])[:, 0], text @ gap)


def test_an_axis_along_itself_and_along_nothing():
    first = torch.tensor([2.0, 0.0, 0.0])
    assert torch.equal(first_axis_along(first), torch.eye(3))
    with pytest.raises(MethodError, match="zero"):
        first_axis_along(torch.zeros(3))
