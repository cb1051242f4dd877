"""The public classifier and `dtpt predict`."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import dtpt
from dtpt.cli.predict import predict
from dtpt.errors import ImageError, PromptError

CLASSES = ["cat", "two_hump camel", "tropical drink"]


@pytest.fixture(scope="module")
def picture():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def classifier(tiny_clip):
    return dtpt.Classifier(tiny_clip, CLASSES, method="d-tpt", views=16)


def test_the_same_pixels_give_the_same_answer_from_any_source(classifier, picture, tmp_path):
    path = tmp_path / "p.png"
    picture.save(path)
    sources = [path, str(path), path.read_bytes(), picture, np.asarray(picture)]
    answers = [classifier.predict(source).probabilities for source in sources]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_a_prediction_is_a_distribution_with_the_zero_shot_answer_beside_it(
    classifier, picture, tiny_clip
):
    got = classifier.predict(picture)
    assert got.label == CLASSES[got.index]
    assert got.confidence == pytest.approx(got.probabilities.max())
    assert got.probabilities.sum() == pytest.approx(1, abs=1e-6)
    p = got.probabilities.astype(float)
    assert got.entropy == pytest.approx(-(p * np.log(p)).sum(), abs=1e-5)
    text = tiny_clip.encode_text([f"a photo of a {n.replace('_', ' ')}." for n in CLASSES])
    image = tiny_clip.encode_image(tiny_clip.preprocess(picture)[None])[0]
    zero_shot = torch.softmax(tiny_clip.logit_scale * text @ image, -1)
    np.testing.assert_allclose(got.zero_shot.probabilities, zero_shot.numpy(), atol=1e-5)


def test_tuning_on_own_features_equals_prediction(classifier, picture):
    features = classifier.view_features(picture)
    assert features.shape == (16, 32)
    np.testing.assert_array_equal(
        classifier.tune(features).probabilities, classifier.predict(picture).probabilities
    )


def test_the_seed_changes_the_views_and_repeats(tiny_clip, picture):
    def probabilities(seed):
        made = dtpt.Classifier(tiny_clip, CLASSES, method="tpt", views=16, seed=seed)
        return made.predict(picture).probabilities

    np.testing.assert_array_equal(probabilities(1), probabilities(1))
    assert not np.array_equal(probabilities(1), probabilities(2))


def test_one_unreadable_image_does_not_stop_the_others(classifier, picture):
    results = list(classifier.predict_each([picture, b"not an image", picture]))
    assert isinstance(results[1], ImageError)
    assert results[0].label == results[2].label
    with pytest.raises(ImageError):
        classifier.predict_batch([picture, b"not an image"])


def test_two_classes_of_one_name_share_their_probability(tiny_clip, picture):
    made = dtpt.Classifier(tiny_clip, ["cat", "dog", "cat"], method="d-tpt", views=8)
    got = made.predict(picture)
    assert made.duplicates == ("cat",)
    assert got.probabilities[0] == pytest.approx(got.probabilities[2], abs=1e-6)


@pytest.fixture
def saved_clip(tiny_clip, monkeypatch):
    monkeypatch.setattr("dtpt.clip.loading.load_model", lambda name, **_: tiny_clip)


def test_predict_prints_json_and_fails_softly(saved_clip, picture, tmp_path, capsys):
    good, bad = tmp_path / "good.png", tmp_path / "bad.jpg"
    picture.save(good)
    bad.write_text("text")
    with pytest.raises(SystemExit) as ended:
        predict([good, bad, good], classes="cat,dog", views=8, json_=True)
    assert ended.value.code == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == rows[2]
    assert set(rows[0]["probabilities"]) == {"cat", "dog"}
    assert "bad.jpg" in rows[1]["error"]


def test_predict_prints_a_table(saved_clip, picture, tmp_path, capsys):
    picture.save(tmp_path / "x.png")
    names = tmp_path / "names.txt"
    names.write_text("cat\n\ndog\n")
    predict([tmp_path / "x.png"], classes_file=names, views=8, method="tpt+sals")
    out = capsys.readouterr().out
    assert "tpt+sals" in out
    assert "%" in out


@pytest.mark.parametrize("given", [{}, {"classes": "a", "classes_file": "b"}])
def test_predict_needs_exactly_one_class_list(given, tmp_path):
    with pytest.raises(PromptError, match="--classes"):
        predict([tmp_path], **given)


def test_jpeg_bytes_are_accepted(classifier, picture):
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG")
    assert classifier.predict(buffer.getvalue()).confidence > 0
