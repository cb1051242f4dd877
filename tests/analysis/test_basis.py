"""Other bases of the joint space: what they change and what they must not, with a tiny model."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtpt.analysis import to_json
from dtpt.analysis.bases import (
    NAMED,
    common_bases,
    describe_basis,
    first_axis_along,
    flipped,
    in_basis,
    random_rotation,
)
from dtpt.analysis.basis import BasisOptions, basis_tables, study_basis
from dtpt.clip.loading import load_model
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError, RunError
from dtpt.methods import METHODS, resolve_method
from dtpt.methods.d_tpt import D_TPT, dimensional_entropy
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import basis_figure
from dtpt.runs import EvalOptions, run_options
from dtpt.tables import Table
from dtpt.tuning import Tuner

ROTATIONS = 2


@pytest.fixture(scope="module")
def chosen(images, tmp_path_factory):
    return BasisOptions(
        model="tiny",
        dataset=(images.name,),
        method=("c-tpt", "o-tpt", "d-tpt:aligned", "d-tpt"),
        lambdas=(1e3, 1e6),
        quantiles=(0.8,),
        rotations=ROTATIONS,
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


def test_gradients_that_see_cosines_alone_stay(study):
    found = {fact["method"]: fact for fact in study.facts["invariance"]}
    assert list(found) == ["c-tpt", "o-tpt", "d-tpt:aligned", "d-tpt"]
    *invariant, dem = found.values()
    assert all(fact["largest_change"] < 1e-3 for fact in invariant)
    assert dem["largest_change"] > 0.1


def test_every_basis_is_described(study):
    facts = {fact["basis"]: fact for fact in study.facts["bases"]}
    assert list(facts) == [*NAMED, "random 0", "random 1"]
    own, flip = facts["own"], facts["own, flipped"]
    assert own["dominant_mean"] == pytest.approx(-flip["dominant_mean"])
    assert own["dominant_fraction"] == pytest.approx(flip["dominant_fraction"])
    for fact in facts.values():
        assert fact["signs_won@1e3"] < fact["signs_won@1e6"]
        assert fact["signs_won@auto=0.8"] == pytest.approx(0.8, abs=0.01)


def test_the_own_basis_is_d_tpt_itself(study, tiny_clip, images, tmp_path):
    options = EvalOptions(
        model="tiny",
        dataset=(images.name,),
        method=("zero-shot", "tpt", "d-tpt@1e6"),
        views=4,
        rho=0.5,
        threads=1,
        quiet=True,
        output=tmp_path,
    )
    with run_options(options, model=tiny_clip, datasets=[images]) as run:
        stored = [run.rows_of(cell) for cell in run.cells]
    rows = {row.name: row for row in study.families[0].rows}
    for name, found in zip(("zero-shot", "tpt", "own, @1e6"), stored, strict=True):
        assert rows[name].estimates["accuracy"].value == pytest.approx(found.correct.mean())
        gap = found.confidence.mean() - found.correct.mean()
        assert rows[name].estimates["signed_gap"].value == pytest.approx(gap, abs=1e-6)
        assert rows[name].reference is None


def test_named_bases_are_compared_with_the_own_and_flips_with_what_they_flip(study):
    (family,) = study.families
    rows = {row.name: row for row in family.rows}
    assert len(rows) == 2 + 3 * len(NAMED)
    shown = [c for c in family.comparisons if rows[c.first].reference == c.second]
    assert len(shown) == 3 * (len(NAMED) - 1) * 5
    further = {(c.first, c.second) for c in family.comparisons} - {
        (c.first, c.second) for c in shown
    }
    assert further == {
        (f"mean text, flipped, @{strength}", f"mean text, @{strength}")
        for strength in ("1e3", "1e6", "auto=0.8")
    }
    for one in family.comparisons:
        values = [rows[name].estimates[one.metric].value for name in (one.first, one.second)]
        assert one.estimate == pytest.approx(values[0] - values[1])
        assert one.detectable >= (one.high - one.low) / 2


def test_random_rotations_are_the_null_distribution(study):
    facts = [f for f in study.facts["null"] if f["metric"] == "signed_gap"]
    assert len(facts) == 3 * len(NAMED)
    for fact in facts:
        assert len(fact["random"]) == ROTATIONS
        assert fact["p"] in (pytest.approx(1 / 3), pytest.approx(2 / 3), 1.0)


def test_images_of_one_cluster_count_once(chosen, tiny_clip, images, tmp_path):
    pairs = tuple(replace(s, cluster=s.id[:-5] + str(i // 2)) for i, s in enumerate(images.samples))
    options = chosen.model_copy(update={"output": tmp_path, "lambdas": (), "rotations": 0})
    paired = replace(images, samples=pairs, cluster_noun="drawings")
    (family,) = study_basis(options, model=tiny_clip, datasets=[paired]).families
    assert (family.clusters, family.size) == (6, "12 images of 6 drawings")


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
    rows = content["families"][0]["rows"]
    assert {row["facts"].get("lambda") for row in rows} == {None, 1e3, 1e6}
    tables = [part for part in basis_tables(study) if isinstance(part, Table)]
    assert len(tables) == 5
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
        "method": ("d-tpt",),
        "rotations": 1,
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
    assert np.isfinite(alone.facts["invariance"][0]["largest_change"])


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


def rotated(model, rotation):
    """A model whose text features are rotated; all other weights are shared."""
    tower = model.require_text()
    turned, text = copy.copy(model), copy.copy(tower)
    turned._modules = dict(model._modules)
    text._parameters = dict(tower._parameters)
    projection = tower.text_projection.detach()
    text.text_projection = nn.Parameter(projection @ rotation.to(projection), requires_grad=False)
    turned.text = text
    return turned


def views_of(seed):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(64, 32, generator=generator, dtype=torch.float64), dim=-1)


def predictions(model, rotation, methods, *, seed=1):
    tuner = Tuner(rotated(model, rotation), PromptSet.build(model, NAMES))
    outcomes = tuner.predict(views_of(seed) @ rotation, [resolve_method(m) for m in methods])
    return [outcome.probabilities for outcome in outcomes]


def tuner_of(model):
    return Tuner(model, PromptSet.build(model, NAMES))


IDENTITY = torch.eye(32, dtype=torch.float64)


@pytest.mark.parametrize("basis", [*NAMED, "random 0"])
def test_a_basis_is_a_loss(double_clip, basis):
    """Rotating both towers is the same as rotating what the regulariser sees."""
    text = tuner_of(double_clip).initial_text_features
    rotation = common_bases(text, views_of(0).mean(0), rotations=1)[basis]
    losses = [in_basis(METHODS[name], rotation, name=basis) for name in ("d-tpt", "d-tpt:aligned")]
    expected = predictions(double_clip, rotation, ["d-tpt", "d-tpt:aligned"])
    found = predictions(double_clip, IDENTITY, losses)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_what_has_no_loss_has_no_basis():
    for name in ("tpt", "zero-shot", "tps"):
        with pytest.raises(MethodError, match=name):
            in_basis(METHODS[name], IDENTITY, name="x")


@pytest.mark.parametrize("seed", range(2))
def test_only_d_tpt_depends_on_the_basis(double_clip, seed):
    rotation = random_rotation(32, seed=seed)
    names = [*INVARIANT, "d-tpt"]
    *before, own = predictions(double_clip, IDENTITY, names)
    *after, turned = predictions(double_clip, rotation, names)
    for name, one, other in zip(INVARIANT, before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9, msg=name)
    assert float((own - turned).abs().max()) > 1e-6


def test_shifts_of_the_text_depend_on_the_basis_too(double_clip):
    """A signed step per dimension is not the same step in another basis."""
    rotation = random_rotation(32, seed=0)
    (own,) = predictions(double_clip, IDENTITY, ["tps+lr=0.05"])
    (turned,) = predictions(double_clip, rotation, ["tps+lr=0.05"])
    assert float((own - turned).abs().max()) > 1e-6


def cone(classes=9, dimensions=64):
    """Unit text features around one direction, which is no axis."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(classes, dimensions, generator=generator, dtype=torch.float64)
    centre = torch.randn(dimensions, generator=generator, dtype=torch.float64)
    return F.normalize(0.5 * drawn + centre, dim=-1)


def test_bases_are_orthogonal_and_do_what_their_names_say():
    text = cone()
    image = torch.randn(64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = common_bases(text, image, rotations=2)
    assert list(found) == [*NAMED, "random 0", "random 1"]
    for rotation in found.values():
        identity = torch.eye(64, dtype=torch.float64)
        torch.testing.assert_close(rotation @ rotation.T, identity, atol=1e-12, rtol=0)
    mean = F.normalize(text.mean(0), dim=0)
    for name in ("mean text", "mean text, rest rotated"):
        torch.testing.assert_close((text @ found[name])[:, 0], text @ mean)
    torch.testing.assert_close((text @ found["mean text, flipped"])[:, 0], -(text @ mean))
    spread = (mean @ found["mean text, spread"]) * 8
    torch.testing.assert_close(spread, torch.ones(64, dtype=torch.float64))
    gap = F.normalize(text.mean(0) - image, dim=0)
    torch.testing.assert_close((text @ found["gap"])[:, 0], text @ gap)


def test_an_axis_along_itself_and_along_nothing():
    first = torch.tensor([2.0, 0.0, 0.0])
    assert torch.equal(first_axis_along(first), torch.eye(3))
    with pytest.raises(MethodError, match="zero"):
        first_axis_along(torch.zeros(3))


def expansion(text, order):
    """Σ (n − 1)/n! κ_n up to an order, κ the cumulants of a row's coordinates."""
    centred = text - text.mean(dim=-1, keepdim=True)
    second, third, fourth = ((centred**n).mean(dim=-1) for n in (2, 3, 4))
    terms = (second / 2, third / 3, (fourth - 3 * second**2) / 8)
    return sum(terms[: order - 1]).mean()


@pytest.mark.parametrize("order", [2, 3, 4])
def test_dem_is_a_series_in_the_cumulants_of_the_coordinates(order):
    """Halving the features divides what a sum up to order n leaves by 2^(n + 1)."""
    text = cone()
    left = [
        float((dimensional_entropy(scale * text) - expansion(scale * text, order)).abs())
        for scale in (0.5, 0.25)
    ]
    assert math.log2(left[0] / left[1]) == pytest.approx(order + 1, abs=0.3)


def test_at_length_one_the_second_order_is_blind_to_dominance():
    """1/(2D) − mean(t)²/2 + mean((t − mean)³)/3: the loss sees the cube, not the square."""
    text = cone() @ first_axis_along(cone().mean(0))
    mean = text.mean(dim=-1)
    second = (1 / 64 - mean**2).mean() / 2
    assert float(expansion(text, 2)) == pytest.approx(float(second))
    third = ((text - mean[:, None]) ** 3).mean(dim=-1).mean() / 3
    sizes = [float(abs(part)) for part in (mean.square().mean() / 2, third)]
    assert sizes[1] > 10 * sizes[0]
    flip = text.clone()
    flip[:, 0] *= -1
    changes = [float(expansion(flip, n) - expansion(text, n)) for n in (2, 3)]
    whole = float(dimensional_entropy(flip) - dimensional_entropy(text))
    assert abs(changes[0]) < 0.05 * abs(whole)
    assert changes[1] == pytest.approx(whole, rel=0.25)


def test_a_flipped_sign_changes_no_size_no_cosine_and_no_other_method(double_clip):
    text = tuner_of(double_clip).initial_text_features
    for start in (IDENTITY, first_axis_along(text.mean(0))):
        rotation = flipped(start, text)
        before, after = text @ start, text @ rotation
        assert torch.equal(before.abs(), after.abs())
        assert int((before != after).any(dim=0).sum()) == 1
        torch.testing.assert_close(before @ before.T, after @ after.T, rtol=0, atol=1e-12)
        names = [*INVARIANT, "tpt+no-tdd", "d-tpt"]
        *own, dem = predictions(double_clip, start, names)
        *turned, other = predictions(double_clip, rotation, names)
        for name, one, two in zip(names, own, turned, strict=False):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-9, msg=name)
        assert float((dem - other).abs().max()) > 1e-6


def test_a_flipped_sign_reverses_what_dem_does_to_the_dominant_dimension():
    """In the basis of the mean text feature; spread over all axes it is reversed as well."""
    pocket = load_model("pocket")
    names = ["cat", "dog", "bus", "kite", "drink", "car", "house", "tree", "moon", "ball", "fish"]
    tuner = Tuner(pocket, PromptSet.build(pocket, names))
    bases = common_bases(tuner.initial_text_features, torch.ones(256))
    facts = {
        name: describe_basis(tuner, in_basis(D_TPT, q, name=name), rotation=q)
        for name, q in bases.items()
    }
    aligned, flip = facts["mean text"], facts["mean text, flipped"]
    assert aligned["dominant_fraction"] == pytest.approx(flip["dominant_fraction"])
    assert aligned["cosine"] > 0.95
    assert flip["cosine"] < -0.95
    assert (aligned["size_under_descent"], flip["size_under_descent"]) == ("shrinks", "grows")
    assert facts["mean text, rest rotated"]["cosine"] > 0.95
    assert facts["mean text, spread"]["cosine"] < -0.95
    assert aligned["prompt_cosine"] > 0.2 > -0.2 > flip["prompt_cosine"]
    assert abs(facts["own"]["cosine"]) < 0.2
