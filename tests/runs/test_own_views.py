"""Methods with views of their own: one run, two kinds of views, shared where they agree."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_runs import TINY_OPTIONS, exported, named_options

from dtpt.errors import MethodError
from dtpt.methods import METHODS, Method, recipe_groups, resolve_method, shared_recipe
from dtpt.prediction import Classifier
from dtpt.runs import EvalOptions, run_options
from dtpt.runs.calibrate import setup_of
from dtpt.runs.cluster import missing_images
from dtpt.runs.evaluation import prepare
from dtpt.views import ViewRecipe

BOTH = ("zero-shot", "mta", "mta:published", "zero:published")
CROPS = {"views": 8, "method": BOTH}


def columns(run, method):
    rows = run.rows(method=method)
    return [rows.sample.tolist(), rows.confidence.tolist(), rows.p_label.tolist()]


def test_methods_are_grouped_by_the_views_that_they_use():
    methods = [resolve_method(name) for name in ("mta:published", "tpt", "zero-shot", "mta")]
    recipe, crops = ViewRecipe(count=16), ViewRecipe(count=16, augmix=False)
    assert list(recipe_groups(methods, recipe).items()) == [(recipe, (1, 2, 3)), (crops, (0,))]
    assert recipe_groups(methods, crops) == {crops: (0, 1, 2, 3)}
    assert shared_recipe(methods, crops) == crops
    assert shared_recipe(methods[2:3], recipe) == ViewRecipe(count=1)
    with pytest.raises(MethodError, match="different views"):
        shared_recipe(methods, recipe)


def test_one_run_has_rows_of_both_kinds_of_views(run_tiny, images, tmp_path):
    crops = replace(images, augmix=False)
    run = run_tiny(output=tmp_path / "both", **CROPS)
    assert run.is_complete
    assert run.sessions()[0]["encoded_images"] == 60  # once with AugMix, once without
    plain = run_tiny(output=tmp_path / "crops", dataset_object=crops, method=("mta",), views=8)
    assert plain.sessions()[0]["encoded_images"] == 0  # the cache has them
    assert columns(run, "mta:published") == columns(plain, "mta")
    assert columns(run, "mta:published") != columns(run, "mta")
    alone = run_tiny(output=tmp_path / "alone", views=8, method=("mta",), cache=False)
    assert columns(run, "mta") == columns(alone, "mta")
    np.testing.assert_array_equal(  # the original view is the same
        run.rows(method="mta:published").zero_shot_confidence,
        run.rows(method="mta").zero_shot_confidence,
    )


def test_views_that_agree_are_encoded_once(run_tiny, images, tiny_model, monkeypatch):
    calls = []
    encode = type(tiny_model).encode_views

    def counted(self, views, **options):
        calls.append(len(views))
        return encode(self, views, **options)

    monkeypatch.setattr(type(tiny_model), "encode_views", counted)
    run = run_tiny(dataset_object=replace(images, augmix=False), cache=False, **CROPS)
    assert calls == [8] * 30
    assert columns(run, "mta:published") == columns(run, "mta")


def test_an_interrupted_run_continues_with_both_kinds_of_views(run_tiny, tmp_path):
    whole = exported(run_tiny(output=tmp_path / "whole", cache=False, **CROPS))
    run_tiny(limit=7, cache=False, **CROPS).close()
    with run_tiny(cache=False, **CROPS) as run:
        assert exported(run) == whole
        assert [session["encoded_images"] for session in run.sessions()] == [14, 46]
    batches = run_tiny(output=tmp_path / "batches", batch=4, **CROPS)
    with run_tiny(output=tmp_path / "whole", cache=False, **CROPS) as run:
        for method in BOTH:  # which share no pass through the text tower
            assert columns(batches, method) == columns(run, method)


def test_worker_processes_give_the_same_rows(home, tmp_path):
    options = {"method": ("tpt", "mta:published"), "limit": 8}
    with (
        run_options(named_options(home, tmp_path / "here", **options)) as here,
        run_options(named_options(home, tmp_path / "there", workers=2, **options)) as there,
    ):
        assert there.sessions()[0]["workers"] == 2
        assert exported(here) == exported(there)


def test_what_a_cluster_would_do_counts_both_kinds(tiny_model, images, run_tiny, tmp_path):
    fields = {**TINY_OPTIONS, **CROPS, "output": tmp_path / "run", "dataset": (images.name,)}
    options = EvalOptions(**fields)
    prepared = prepare(options, model=tiny_model, datasets=[images])
    assert missing_images(prepared, options) == 60
    run_tiny(limit=5, **CROPS).close()
    assert missing_images(prepared, options) == 50


def start(text, *, logit_scale):
    return text.new_zeros(len(text))  # (C,)


def add(state, views, *, text, logit_scale):
    logits = logit_scale * text @ views.mean(0)  # (C,)
    return logits + state, state + logits


@pytest.mark.parametrize("name", ["d-tpt@auto=0.9", "tpt", "sum"])
def test_selected_lambdas_and_states_come_from_the_own_views(
    run_tiny, images, tmp_path, monkeypatch, name
):
    base, at, rule = name.partition("@")
    monkeypatch.setitem(METHODS, "sum", Method("sum", "", "nothing", initial=start, step=add))
    monkeypatch.setitem(METHODS, "own", replace(METHODS[base], name="own", augmix=False))
    own = run_tiny(output=tmp_path / "own", method=(f"own{at}{rule}", "zero-shot"), views=8)
    crops = replace(images, augmix=False)
    plain = run_tiny(output=tmp_path / "plain", dataset_object=crops, method=(name,), views=8)
    assert columns(own, f"own{at}{rule}") == columns(plain, name)
    assert [x.value for x in own.lambdas().values()] == [x.value for x in plain.lambdas().values()]


def test_a_calibration_is_for_the_views_that_were_used(run_tiny, tiny_model, images):
    run = run_tiny(**CROPS)
    for cell in run.cells:
        has_augmix = not cell.method.endswith(":published")
        made = Classifier(tiny_model, images.classes, method=cell.method, views=8)
        assert setup_of(run, cell).views["augmix"] is made.setup.views["augmix"] is has_augmix
        assert setup_of(run, cell).views == made.setup.views
