"""`Classifier.save` and `Classifier.load`."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import dtpt
from dtpt.clip.loading.save import save_model
from dtpt.errors import CheckpointError, DtptError, MethodError, PromptWarning
from dtpt.methods import regularised
from dtpt.tuning import PromptEncoder

CLASSES = ["cat", "two_hump camel", "tropical drink"]


def refused(folder, **arguments):
    """Return the message with which a folder is refused; it has one line."""
    with pytest.raises(CheckpointError) as caught:
        dtpt.Classifier.load(folder, **arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def rewrite(folder, **changes):
    path = folder / "classifier.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    "method",
    ["zero-shot", "d-tpt", "c-tpt+sals@20", "tpt+ts=1.16+lr=0.002", "d-tpt-static", "mean-views"],
)
def test_a_loaded_classifier_predicts_as_the_saved_one(model, images, method, tmp_path):
    made = dtpt.Classifier(
        model,
        CLASSES,
        method=method,
        template="{} in a photo",
        views=dtpt.ViewRecipe(count=12, augmix=False, flip=0.25),
        seed=5,
        protocol="natural-shifts",
        settings=dtpt.TuningSettings(steps=2, rho=0.5),
    )
    made.save(tmp_path / "new" / "folder")
    loaded = dtpt.Classifier.load(tmp_path / "new" / "folder")
    assert repr(loaded) == repr(made)
    assert loaded.classes == made.classes
    got, before = loaded.predict(images[0]), made.predict(images[0])
    np.testing.assert_array_equal(got.probabilities, before.probabilities)
    assert (got.method, got.lambda_) == (before.method, before.lambda_)


def test_a_trained_context_comes_back(model, images, tmp_path):
    context = torch.randn(4, 48, generator=torch.Generator().manual_seed(1))
    made = dtpt.Classifier(model, CLASSES, views=8, context=context)
    made.save(tmp_path)
    got = dtpt.Classifier.load(tmp_path).predict(images[0])
    np.testing.assert_array_equal(got.probabilities, made.predict(images[0]).probabilities)


def test_a_selected_lambda_is_saved(model, images, tmp_path):
    made = dtpt.Classifier(model, CLASSES, method="d-tpt@auto=0.9", views=8)
    lambda_ = made.fit_lambda(images[:2])
    made.save(tmp_path)
    assert dtpt.Classifier.load(tmp_path).method.lambda_ == lambda_


def test_loading_does_not_run_the_text_tower(classifier, model, tmp_path, monkeypatch):
    classifier.save(tmp_path)
    monkeypatch.setattr(PromptEncoder, "encode", lambda *_: pytest.fail("encoded"))
    loaded = dtpt.Classifier.load(tmp_path, model)
    expected = classifier.predictor.tuner.initial_text_features
    assert torch.equal(loaded.predictor.tuner.initial_text_features, expected)


def test_weights_can_be_in_the_folder(classifier, images, tmp_path):
    classifier.save(tmp_path / "a", weights=True)
    (tmp_path / "a").rename(tmp_path / "b")
    loaded = dtpt.Classifier.load(tmp_path / "b")
    assert loaded.model.name.startswith(f"local-dir:{tmp_path / 'b'}")
    np.testing.assert_array_equal(
        loaded.predict(images[0]).probabilities, classifier.predict(images[0]).probabilities
    )


def test_saving_again_replaces(classifier, model, tmp_path):
    dtpt.Classifier(model, ["cow", "pig"], views=4).save(tmp_path)
    classifier.save(tmp_path)
    assert dtpt.Classifier.load(tmp_path).classes == tuple(CLASSES)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "classifier.json",
        "classifier.safetensors",
    ]


def test_a_relative_name_is_found_from_another_folder(model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(model_folder.parent)
    made = dtpt.Classifier(dtpt.load_model(f"local-dir:{model_folder.name}"), CLASSES, views=4)
    made.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert dtpt.Classifier.load(tmp_path).model.fingerprint == made.model.fingerprint


def test_another_model_is_refused(classifier, make_clip, tmp_path):
    classifier.save(tmp_path / "classifier")
    other = make_clip(seed=1)
    save_model(other, tmp_path / "other")
    other = dtpt.load_model(f"local-dir:{tmp_path / 'other'}")
    assert "another model" in refused(tmp_path / "classifier", model=other)


def test_a_model_without_a_name_must_be_given(tiny_clip, images, tmp_path):
    made = dtpt.Classifier(tiny_clip, CLASSES, views=4)
    made.save(tmp_path)
    assert "no name" in refused(tmp_path)
    got = dtpt.Classifier.load(tmp_path, tiny_clip).predict(images[0])
    np.testing.assert_array_equal(got.probabilities, made.predict(images[0]).probabilities)


def test_a_newer_format_is_refused(classifier, tmp_path):
    classifier.save(tmp_path)
    rewrite(tmp_path, format=2, dtpt="9.0", surprise=True)
    assert "newer version (9.0)" in refused(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"classes": ["cat"]},
        {"classes": "cat"},
        {"format": None},
        {"seed": "zero"},
        {"model": {}},
        {"method": None},
        {"views": {"count": 0}},
        {"surprise": 1},
        {"classes": ["cat", "dog"]},
    ],
)
def test_an_invalid_document_is_refused(classifier, model, tmp_path, changes):
    classifier.save(tmp_path)
    rewrite(tmp_path, **changes)
    assert str(tmp_path) in refused(tmp_path, model=model)


@pytest.mark.parametrize("name", ["classifier.json", "classifier.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "changed", "pipe", "folder"])
def test_damaged_files_are_refused(classifier, model, tmp_path, name, damage):
    classifier.save(tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    path.unlink()
    if damage == "pipe":
        import os

        os.mkfifo(path)
    elif damage == "folder":
        path.mkdir()
    elif damage != "missing":
        changed = data[:-9] + b"!" + data[-8:]
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "changed": changed}[damage])
    assert name in refused(tmp_path, model=model)


def test_tensors_of_another_form_are_refused(classifier, model, tmp_path):
    import hashlib

    classifier.save(tmp_path)
    path = tmp_path / "classifier.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "text_features": tensors["text_features"][:1]}, path)
    rewrite(tmp_path, tensors=hashlib.sha256(path.read_bytes()).hexdigest())
    assert "does not fit" in refused(tmp_path, model=model)


def test_a_folder_that_is_missing_or_cannot_be_made_is_named(classifier, tmp_path):
    assert "no such folder" in refused(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file"):
        classifier.save(tmp_path / "file")


def test_a_method_with_own_functions_cannot_be_saved(model, tmp_path):
    own = regularised("own", lambda text: text.sum(), lambda_=1.0)
    with pytest.raises(MethodError, match="own"):
        dtpt.Classifier(model, CLASSES, method=own, views=4).save(tmp_path / "a")
    disguised = regularised("d-tpt", lambda text: text.sum(), lambda_=1.0)
    with pytest.raises(MethodError, match="d-tpt"):
        dtpt.Classifier(model, CLASSES, method=disguised, views=4).save(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_the_name_rounds_is_not_lost_silently(model, tmp_path):
    made = dtpt.Classifier(model, CLASSES, method="tpt+ts=1.23456789", views=4)
    with pytest.raises(MethodError, match=r"ts=1\.23457"):
        made.save(tmp_path)


def test_classes_that_share_a_prompt_warn_when_loaded_too(model, tmp_path):
    with pytest.warns(PromptWarning) as seen:
        dtpt.Classifier(model, ["cat", "Cat", "dog"], views=4).save(tmp_path)
    assert seen[0].filename == __file__
    with pytest.warns(PromptWarning):
        dtpt.Classifier.load(tmp_path, model)


def test_every_refusal_is_one_of_ours(classifier, tmp_path):
    for wrong in (None, 5, b"x", "\0", ["a"]):
        with pytest.raises(DtptError):
            dtpt.Classifier.load(wrong)
        with pytest.raises(DtptError):
            classifier.save(wrong)
    classifier.save(tmp_path)
    with pytest.raises(DtptError):
        dtpt.Classifier.load(tmp_path, 5)
    with pytest.raises(DtptError):
        dtpt.Classifier.load(tmp_path, device="moon")
