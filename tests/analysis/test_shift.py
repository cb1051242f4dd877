"""Studies of methods that tune a shift of the text features, on a model without a text tower."""

import copy

import numpy as np
import pytest
import torch

from dtpt.analysis import analyse
from dtpt.analysis.bases import NAMED, common_bases, in_basis
from dtpt.analysis.basis import BasisOptions, BasisPlan, study_basis
from dtpt.analysis.controls import CONTROLS, ControlsOptions
from dtpt.analysis.paper import with_controls
from dtpt.analysis.regularisers import RegularisersOptions, study_regularisers
from dtpt.analysis.study import StudyOptions, with_shift
from dtpt.analysis.views import VIEWS, ViewsOptions
from dtpt.clip.loading.features import FeatureModel
from dtpt.methods import METHODS, resolve_method
from dtpt.report.figures import svg_text
from dtpt.report.figures.studies import basis_figure, controls_figure
from dtpt.runs import EvalOptions, run_options
from dtpt.tuning import Tuner

CLASSES = ("bird", "cat", "dog")


@pytest.fixture(scope="module")
def parts(tiny_clip):
    text = tiny_clip.encode_text([f"a photo of a {name}." for name in CLASSES])
    return FeatureModel(
        CLASSES, text, prompt="x {}", logit_scale=tiny_clip.logit_scale, image=tiny_clip
    )


@pytest.fixture
def settings(images, tmp_path):
    return {
        "model": "parts",
        "dataset": (images.name,),
        "views": 4,
        "rho": 0.5,
        "threads": 1,
        "quiet": True,
        "output": tmp_path,
    }


def stored(settings, parts, images, tmp_path, method):
    chosen = EvalOptions(**{**settings, "method": method, "output": tmp_path / "plain"})
    with run_options(chosen, model=parts, datasets=[images]) as run:
        return [run.rows_of(cell) for cell in run.cells]


def gap_of(rows):
    return rows.confidence.mean() - rows.correct.mean()


def test_methods_of_the_prompt_become_those_of_a_shift(parts, tiny_clip):
    names = ("zero-shot", "tpt", "d-tpt:aligned@3", "c-tps", "tpt+views=0.3")
    options = StudyOptions(dataset=("x",), method=names)
    assert with_shift(options, tiny_clip) == options
    moved = ("zero-shot", "tps", "d-tps:aligned@3", "c-tps", "tps+views=0.3")
    for found in (
        with_shift(options, parts),
        with_shift(options.model_copy(update={"model": "features:x"}), None),
        with_shift(options.model_copy(update={"shift": True}), tiny_clip),
    ):
        assert (found.shift, found.method) == (True, moved)


def test_controls_have_random_shifts_and_smaller_steps_of_tps(settings, parts, images):
    options = ControlsOptions(**settings, method=("c-tpt",), quantiles=(0.6,), rates=(0.0005,))
    study = CONTROLS.run(options, model=parts, datasets=[images])
    (family,) = study.families
    assert [row.facts["method"] for row in family.rows] == [
        *("zero-shot", "tps+lr=0.0005", "tps"),
        *("c-tps", "random-tps", "random-tps:1"),
    ]
    assert len(study.origin.notes) >= 3  # every λ that was selected
    assert svg_text(controls_figure(study)).startswith("<?xml")


def test_a_basis_changes_what_dem_sees_and_not_tps(settings, parts, images, tmp_path):
    options = BasisOptions(
        **settings, method=("c-tpt", "d-tpt"), lambdas=(1e6,), quantiles=(0.9,), rotations=1
    )
    study = study_basis(options, model=parts, datasets=[images])
    (family,) = study.families
    rows = {row.name: row for row in family.rows}
    assert list(rows)[:3] == ["zero-shot", "tps", "own, @1e6"]
    plain = stored(settings, parts, images, tmp_path, ("zero-shot", "tps", "d-tps@1e6"))
    for name, found in zip(list(rows)[:3], plain, strict=True):
        gap = rows[name].estimates["signed_gap"].value
        assert gap == pytest.approx(gap_of(found), abs=1e-6)
    assert [fact["method"] for fact in study.facts["invariance"]] == ["c-tps", "d-tps"]
    assert study.facts["invariance"][0]["largest_change"] < 1e-3
    assert study.facts["invariance"][1]["largest_change"] > 0.1
    assert {row.group for row in family.rows} == {
        "without a regulariser", "D-TPS@1e6", "D-TPS@auto=0.9",
    }  # fmt: skip
    assert svg_text(basis_figure(study)).startswith("<?xml")


def test_a_flip_in_the_loss_is_a_flip_of_all_features(parts, directions):
    """A sign flip does not touch the optimiser's signs: the loss alone gives the whole effect."""
    text, views = parts.fixed_text.features.double(), directions(6, parts.config.embed_dim)
    flip = common_bases(text, views.mean(0))[NAMED[1]]
    model = copy.deepcopy(parts).to(torch.float64)
    turned = Tuner(model, None, text_features=text @ flip)
    loss = in_basis(METHODS["d-tps"], flip, name="flipped")
    methods = [resolve_method(loss, lambda_=1e6)], [resolve_method("d-tps@1e6")]
    (ours,) = Tuner(model, None, text_features=text).predict(views, methods[0])
    (theirs,) = turned.predict(views @ flip, methods[1])
    torch.testing.assert_close(ours.probabilities, theirs.probabilities, rtol=0, atol=1e-12)


def test_controls_of_an_analysis_have_the_learning_rate_of_the_data_set():
    methods = with_controls([resolve_method(n, protocol="imagenet") for n in ("tps", "d-tps")])
    assert {m.name: m.learning_rate for m in methods if m.method.tunes} == dict.fromkeys(
        ("tps", "d-tps", "d-tps-static", "tps+no-tdd", "tps+no-idd"), 5e-3
    )


@pytest.mark.parametrize("protocol", ["imagenet", "fine-grained"])
def test_a_basis_has_the_learning_rate_of_the_data_set(parts, protocol):
    plan = BasisPlan(
        np.ones(parts.config.embed_dim),
        rotations=0,
        lambdas=np.full((len(NAMED), 1), 1e6),
        untuned=("zero-shot", "tps"),
        subject="d-tps",
        protocol=protocol,
    )
    tuner = Tuner(parts, None, text_features=parts.fixed_text.features)
    expected = resolve_method("tps", protocol=protocol).learning_rate
    assert {m.learning_rate for m in plan.methods(tuner)[1:]} == {expected}


def test_gradients_are_compared_on_the_classes_of_the_model(parts, tmp_path):
    parts.save(tmp_path / "m")
    study = study_regularisers(
        RegularisersOptions(
            model=f"features:{tmp_path / 'm'}", output=tmp_path, method=("c-tpt", "d-tpt")
        )
    )
    (pair,) = study.facts["pairs"]
    assert (pair["first"], pair["second"], pair["classes"]) == ("c-tps", "d-tps", 3)
    assert -1 <= pair["cosine"] <= 1


def test_views_and_figure_3_run_without_a_text_tower(settings, parts, images):
    options = ViewsOptions(
        **settings, method=("tpt", "d-tpt"), counts=(2, 4), kept=(0.5,), fractions=(0.5,)
    )
    (family,) = VIEWS.run(options, model=parts, datasets=[images]).families
    assert [*dict.fromkeys(row.facts["method"].split("@")[0] for row in family.rows)] == [
        *("zero-shot", "tps", "d-tps")
    ]
    chosen = EvalOptions(**{**settings, "method": ("tps", "d-tps")})
    (entry,) = analyse(chosen, model=parts, datasets=[images]).datasets
    labels = {score.label for score in entry.scores}
    assert {"zero-shot+no-tdd", "zero-shot+no-idd", "tps+no-tdd", "d-tps-static"} <= labels
    assert {control.label for control in entry.temperatures} >= {"zero-shot+no-tdd"}
    assert [one.masked for one in entry.sensitivity] == ["product", "text", "image"]
