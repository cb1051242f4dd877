"""The public classifier."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

import dtpt
from dtpt.errors import ImageError, MethodError, PromptError

CLASSES = ["cat", "two_hump camel", "tropical drink"]


@pytest.fixture(scope="module")
def image():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def classifier(tiny_clip):
    return dtpt.Classifier(tiny_clip, CLASSES, method="d-tpt", views=16)


def test_the_same_pixels_give_the_same_prediction_from_any_source(classifier, image, tmp_path):
    path = tmp_path / "p.png"
    image.save(path)
    sources = [path, str(path), path.read_bytes(), image, np.asarray(image)]
    first, *others = [classifier.predict(source).probabilities for source in sources]
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_a_prediction_is_a_distribution_with_the_zero_shot_prediction_beside_it(
    classifier, image, tiny_clip
):
    got = classifier.predict(image)
    assert got.label == CLASSES[got.index]
    assert got.confidence == pytest.approx(got.probabilities.max())
    assert got.probabilities.sum() == pytest.approx(1, abs=1e-6)
    p = got.probabilities.astype(float)
    assert got.entropy == pytest.approx(-(p * np.log(p)).sum(), abs=1e-5)
    text = tiny_clip.encode_text([f"a photo of a {n.replace('_', ' ')}." for n in CLASSES])
    image = tiny_clip.encode_image(tiny_clip.preprocess(image)[None])[0]
    zero_shot = torch.softmax(tiny_clip.logit_scale * text @ image, -1)
    np.testing.assert_allclose(got.zero_shot.probabilities, zero_shot.numpy(), atol=1e-5)


def test_tuning_on_own_features_equals_prediction(classifier, image):
    features = classifier.view_features(image)
    assert features.shape == (16, 32)
    np.testing.assert_array_equal(
        classifier.tune(features).probabilities, classifier.predict(image).probabilities
    )


def test_the_seed_changes_the_views_and_repeats(tiny_clip, image):
    def probabilities(seed):
        made = dtpt.Classifier(tiny_clip, CLASSES, method="tpt", views=16, seed=seed)
        return made.predict(image).probabilities

    np.testing.assert_array_equal(probabilities(1), probabilities(1))
    assert not np.array_equal(probabilities(1), probabilities(2))


def test_one_unreadable_image_does_not_stop_the_others(classifier, image):
    results = list(classifier.predict_each([image, b"not an image", image]))
    assert isinstance(results[1], ImageError)
    assert results[0].label == results[2].label
    with pytest.raises(ImageError):
        list(classifier.predict_batch([image, b"not an image"]))


def test_two_classes_of_one_name_share_their_probability(tiny_clip, image):
    with pytest.warns(dtpt.errors.PromptWarning, match="'cat' and 'Cat'"):
        made = dtpt.Classifier(tiny_clip, ["cat", "dog", "Cat"], method="d-tpt", views=8)
    got = made.predict(image)
    assert made.duplicates == (("cat", "Cat"),)
    assert got.probabilities[0] == pytest.approx(got.probabilities[2], abs=1e-6)


def test_jpeg_bytes_are_accepted(classifier, image):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    assert classifier.predict(buffer.getvalue()).confidence > 0


def test_one_class_is_refused(tiny_clip):
    with pytest.raises(PromptError, match="at least two"):
        dtpt.Classifier(tiny_clip, ["cat"])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_a_classifier_can_be_copied_after_its_first_prediction(tiny_clip, image, copied):
    made = dtpt.Classifier(tiny_clip, CLASSES, method="d-tpt", views=16)
    before = made.predict(image).probabilities
    np.testing.assert_array_equal(copied(made).predict(image).probabilities, before)
    np.testing.assert_array_equal(made.predict(image).probabilities, before)


@pytest.mark.parametrize("method", ["zero-shot", "d-tpt-static", "zero-shot+no-tdd"])
def test_methods_that_use_no_views_make_none(tiny_clip, image, method, monkeypatch):
    made = dtpt.Classifier(tiny_clip, CLASSES, method=method)
    shapes = []
    encode = tiny_clip.encode_views
    monkeypatch.setattr(
        tiny_clip, "encode_views", lambda x, **named: shapes.append(len(x)) or encode(x)
    )
    made.predict(image)
    assert shapes == [1]


@pytest.mark.parametrize("views", [0, -1, 10**6, None, "64", 3.5, True])
def test_invalid_numbers_of_views_are_refused(tiny_clip, views):
    with pytest.raises(MethodError, match="views"):
        dtpt.Classifier(tiny_clip, CLASSES, views=views)


def test_a_weight_is_found_from_pictures_without_labels(tiny_clip, image):
    made = dtpt.Classifier(tiny_clip, CLASSES, method="d-tpt@auto=0.9", views=16)
    lambda_ = made.fit_lambda([image])
    assert lambda_ > 0
    assert made.predict(image).lambda_ == lambda_
    assert dtpt.Classifier(tiny_clip, CLASSES, method="tpt").fit_lambda([image]) is None


@pytest.fixture
def without_text(make_clip):
    model = make_clip()
    model.text = None
    return model


def test_a_model_without_a_text_tower_runs_methods_that_do_not_tune(tiny_clip, without_text, image):
    whole = dtpt.Classifier(tiny_clip, CLASSES, method="mean-views", views=8)
    text = whole.predictor.tuner.initial_text_features
    for name in ("zero-shot", "mean-views", "tps"):
        expected = dtpt.Classifier(tiny_clip, CLASSES, method=name, views=8).predict(image)
        made = dtpt.Classifier(without_text, CLASSES, method=name, views=8, text_features=text)
        np.testing.assert_array_equal(made.predict(image).probabilities, expected.probabilities)
        assert pickle.loads(pickle.dumps(made)).setup == made.setup
    with pytest.raises(MethodError, match="tps") as caught:
        dtpt.Classifier(without_text, CLASSES, method="d-tpt", text_features=text)
    assert "\n" not in str(caught.value)
    with pytest.raises(MethodError, match="text_features"):
        dtpt.Predictor(without_text, CLASSES)
    for wrong in (text[:2], 2 * text, "features"):
        with pytest.raises(PromptError, match="text_features"):
            dtpt.Predictor(without_text, CLASSES, text_features=wrong)


def test_a_classifier_with_fixed_text_features_can_be_saved(
    tiny_clip, without_text, image, tmp_path
):
    text = dtpt.Predictor(tiny_clip, CLASSES).tuner.initial_text_features
    made = dtpt.Classifier(without_text, CLASSES, method="zero-shot", text_features=text)
    made.save(tmp_path)
    loaded = dtpt.Classifier.load(tmp_path, without_text)
    np.testing.assert_array_equal(
        loaded.predict(image).probabilities, made.predict(image).probabilities
    )
