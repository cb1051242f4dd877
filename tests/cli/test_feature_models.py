"""Commands on a model of text features and an image tower: `--model features:FOLDER`."""

import json

import pytest
from tiny_runs import tiny_clip

from dtpt.clip.loading.features import FeatureModel
from dtpt.runs import open_run

NAMES = ["bird", "cat", "dog"]


@pytest.fixture(scope="module")
def folder(world):
    """The tiny model taken apart: its image tower, and text features of three classes."""
    whole = tiny_clip()
    text = whole.encode_text([f"a photo of a {name}." for name in NAMES])
    made = FeatureModel(
        NAMES, text, prompt="a photo of a {}.", logit_scale=whole.logit_scale, image=whole
    )
    made.save(world / "parts")
    return world / "parts"


@pytest.fixture
def images(world):
    return sorted((world / "images").rglob("*.png"))[:3]


def predicted(answer):
    assert answer.returncode == 0, answer.stderr
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_predict_equals_the_whole_model_and_knows_the_classes(dtpt, world, folder, images):
    settings = ("--method", "d-tps", "--views", "4", "--threads", "1", "--json")
    names = ("--classes", ",".join(NAMES))
    whole = dtpt("predict", *images, "--model", f"local-dir:{world / 'tiny'}", *names, *settings)
    parts = dtpt("predict", *images, "--model", f"features:{folder}", *settings)
    for one, other in zip(predicted(whole), predicted(parts), strict=True):
        assert list(other["probabilities"]) == NAMES
        assert other["probabilities"] == pytest.approx(one["probabilities"], abs=1e-5)


def test_eval_in_worker_processes_loads_the_model_by_name(dtpt_process, world, folder, tmp_path):
    words = (
        *("eval", "--dataset", f"folder:{world / 'images'}", "--limit", "6", "--workers", "2"),
        *("--model", "features:parts", "--method", "zero-shot,mean-views,tps", "--views", "4"),
        *("--output", tmp_path / "run", "--quiet"),
    )
    answer = dtpt_process(*words, cwd=world)
    assert answer.returncode == 0, answer.stderr
    run = open_run(tmp_path / "run")
    assert len(run.records()) == 18
    assert run.spec.template == "a photo of a {}."


@pytest.mark.parametrize("method", ["d-tpt", "tpt,zero-shot"])
def test_methods_through_the_text_tower_are_refused_before_any_work(
    dtpt, world, folder, tmp_path, method
):
    data = ("--dataset", f"folder:{world / 'images'}", "--output", tmp_path / "run")
    answer = dtpt("eval", "--model", f"features:{folder}", *data, "--method", method)
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1
    assert "mean-views" in answer.stderr
    assert not (tmp_path / "run").exists()


def test_other_classes_are_refused_with_the_first(dtpt, images, folder, tmp_path):
    answer = dtpt("predict", images[0], "--model", f"features:{folder}", "--classes", "cat,wolf")
    assert answer.returncode == 2
    assert "'wolf'" in answer.stderr
