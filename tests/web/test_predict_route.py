"""Predictions over HTTP are those of the library."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from live_server import CLASSES, SETTINGS, form, png

import dtpt
from dtpt.web.options import Limits
from dtpt.web.playground import ImageCache, Playground
from dtpt.web.queue import Job
from dtpt.web.schemas import PredictSettings


@pytest.fixture(scope="module")
def image():
    return png()


def test_predictions_equal_the_classifier_to_the_last_bit(server, tiny_clip, image):
    methods = ["zero-shot", "tpt", "c-tpt@20", "d-tpt", "mean-views", "tps"]
    status, response = server.predict(image, {**SETTINGS, "methods": methods})
    assert status == 200, response
    for name, found in zip(methods, response["predictions"], strict=True):
        expected = dtpt.Classifier(tiny_clip, CLASSES, method=name, views=8).predict(image)
        np.testing.assert_array_equal(
            np.float32(found["probabilities"]), expected.probabilities, err_msg=name
        )
        assert (found["label"], found["lambda"]) == (expected.label, expected.lambda_)
        assert (found["confidence"], found["entropy"]) == (expected.confidence, expected.entropy)
    np.testing.assert_array_equal(
        np.float32(response["zero_shot"]["probabilities"]), expected.zero_shot.probabilities
    )


@pytest.mark.parametrize("methods", [["mta", "zero:published", "mta:published"], ["mta:published"]])
def test_methods_with_views_of_their_own_get_them(server, tiny_clip, image, methods):
    settings = {**SETTINGS, "seed": 5, "methods": methods}
    _, first = server.predict(image, settings)
    status, again = server.predict_known({**settings, "image_id": first["image"]["id"]})
    assert (status, again["cached"]) == (200, True)
    assert again["predictions"] == first["predictions"]
    for name, found in zip(methods, first["predictions"], strict=True):
        made = dtpt.Classifier(tiny_clip, CLASSES, method=name, views=8, seed=5)
        crops = dtpt.Classifier(
            tiny_clip, CLASSES, method=name.partition(":")[0], views=8, seed=5, augmix=name == "mta"
        )
        probabilities = np.float32(found["probabilities"])
        np.testing.assert_array_equal(probabilities, made.predict(image).probabilities)
        np.testing.assert_array_equal(probabilities, crops.predict(image).probabilities)


def test_a_known_image_need_not_be_sent_again(server, image):
    _, first = server.predict(image, {**SETTINGS, "seed": 11})
    known = {**SETTINGS, "seed": 11, "image_id": first["image"]["id"]}
    status, second = server.predict_known({**known, "methods": ["d-tpt@1e6"]})
    assert status == 200
    assert (first["cached"], second["cached"]) == (False, True)
    assert second["predictions"][0]["lambda"] == 1e6
    assert second["zero_shot"] == first["zero_shot"]


def test_a_forgotten_image_must_be_sent_again(server):
    status, answer = server.predict_known({**SETTINGS, "image_id": "0" * 64})
    assert (status, answer["error"]["code"]) == (404, "image_unknown")


def test_dropping_views_equals_tuning_on_the_rest(server, tiny_clip, image):
    _, answer = server.predict(image, {**SETTINGS, "dropped": [3, 5], "methods": ["tpt"]})
    classifier = dtpt.Classifier(tiny_clip, CLASSES, method="tpt", views=8)
    features = classifier.view_features(image)
    expected = classifier.tune(features[[0, 1, 2, 4, 6, 7]])
    found = np.float32(answer["predictions"][0]["probabilities"])
    np.testing.assert_array_equal(found, expected.probabilities)


def test_views_words_and_thumbnails_are_described(server, image):
    show = ["views", "words", "evidence", "commands"]
    settings = {**SETTINGS, "views": 30, "dropped": [4], "show": show}
    _, answer = server.predict(image, settings)
    views = answer["views"]
    assert [view["index"] for view in views] == list(range(30))
    assert [view["index"] for view in views if view["dropped"]] == [4]
    kept = [view for view in views if view["kept"]]
    assert len(kept) == 2  # a tenth of the 29 that remain
    staying = [view["entropy"] for view in views if not view["dropped"]]
    assert max(view["entropy"] for view in kept) == sorted(staying)[1]
    assert [word["token"] for word in answer["predictions"][1]["words"]] == [
        "a",
        "photo",
        "of",
        "a",
    ]
    assert answer["predictions"][0]["words"] is None  # zero-shot moves nothing
    assert answer["predictions"][1]["evidence"] == []
    status, headers, sheet = server.request("GET", answer["image"]["thumbnails"])
    assert (status, headers["content-type"], sheet[:2]) == (200, "image/jpeg", b"\xff\xd8")


def test_progress_comes_as_lines_and_ends_with_the_result(server, image):
    body, headers = form(image, {**SETTINGS, "seed": 21})
    headers["Accept"] = "application/x-ndjson"
    status, answered, text = server.request("POST", "/v1/predict", body=body, headers=headers)
    lines = [json.loads(line) for line in text.splitlines()]
    stages = [line["progress"]["stage"] for line in lines[:-1]]
    assert (status, answered["content-type"]) == (200, "application/x-ndjson")
    assert list(dict.fromkeys(stages)) == ["views", "features", "methods"]
    _, plain = server.predict(image, {**SETTINGS, "seed": 21})
    assert lines[-1]["result"]["predictions"] == plain["predictions"]


def test_an_error_under_way_is_the_last_line(server):
    body, headers = form(png()[:100], SETTINGS)
    headers["Accept"] = "application/x-ndjson"
    _, _, text = server.request("POST", "/v1/predict", body=body, headers=headers)
    assert json.loads(text.splitlines()[-1])["error"]["code"] == "image_unreadable"


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"classes": ["one"]}, "settings_invalid", "classes"),
        ({"classes": ["a", " "]}, "classes_invalid", ""),
        ({"classes": ["a", "b" * 201]}, "settings_invalid", "200"),
        ({"classes": ["a", "b\nc"]}, "settings_invalid", "classes.1"),
        ({"classes": ["a", "7 " * 99]}, "classes_invalid", "tokens"),
        ({"classes": [str(n) for n in range(10_000)]}, "settings_invalid", "1000"),
        ({"methods": ["d-tpd"]}, "method_invalid", "d-tpt"),
        ({"methods": ["tpt"] * 13}, "settings_invalid", "12"),
        ({"methods": ["d-tpt@-1"]}, "method_invalid", "lambda"),
        ({"methods": ["d-tpt@1e308"]}, "settings_invalid", "1e308"),
        ({"methods": ["d-tpt@auto"]}, "method_invalid", "lambda"),
        ({"methods": ["tda"]}, "method_invalid", "state"),
        ({"template": "no name"}, "classes_invalid", "{}"),
        ({"views": 65}, "settings_invalid", "64"),
        ({"views": 0}, "settings_invalid", "views"),
        ({"steps": 11}, "settings_invalid", "10"),
        ({"template": "{}" + 200 * "a"}, "settings_invalid", "template"),
        ({"dropped": [0]}, "settings_invalid", "dropped"),
        ({"dropped": [8]}, "settings_invalid", "dropped"),
        ({"seed": 2**64}, "settings_invalid", "seed"),
        ({"path": "/etc/passwd"}, "settings_invalid", "path"),
    ],
)
def test_invalid_settings_are_named(server, image, change, code, word):
    status, answer = server.predict(image, {**SETTINGS, **change})
    assert (status, answer["error"]["code"]) == (422, code)
    assert word in answer["error"]["message"]
    assert answer["error"]["remedy"]


def test_images_that_cannot_be_read_have_codes_of_their_own(server, bomb):
    cases = {
        "image_unsupported": [b"<svg/>", b"GIF89a", b"%PDF-1.7", b"II*\x00" + b"\0" * 100],
        "image_unreadable": [png()[:200]],
        "image_too_large": [bomb],
        "body_malformed": [b""],
    }
    statuses = {415: "image_unsupported", 413: "image_too_large"}
    for code, images in cases.items():
        for data in images:
            status, answer = server.predict(data, SETTINGS)
            assert answer["error"]["code"] == code, data[:20]
            assert statuses.get(status, code) == code


def test_same_prompts_are_reported(server, image):
    _, answer = server.predict(image, {**SETTINGS, "classes": ["cat", "Cat", "dog"]})
    assert answer["duplicates"] == [["cat", "Cat"]]


def test_memory_for_images_is_bounded(tiny_clip):
    small = Playground(tiny_clip, name="tiny", limits=Limits(cache_mb=1))
    small.images = ImageCache(40_000)
    settings = PredictSettings(classes=CLASSES, methods=["tpt"], views=8)
    for seed in range(8):
        small.predict(png(seed=seed), settings, job=Job(float("inf")))
    assert 0 < small.images.size <= 40_000
    assert len(small.images) < 8


def test_the_least_recently_used_image_goes_first():
    cache = ImageCache(10)
    sizes = {"a": 4, "b": 4, "c": 4, "huge": 11}
    for name in ("a", "b"):
        cache.put(name, SimpleNamespace(size=sizes[name]))
    cache.get("a")
    for name in ("c", "huge"):
        cache.put(name, SimpleNamespace(size=sizes[name]))
    assert [name for name in sizes if cache.get(name)] == ["a", "c"]
    assert cache.size == 8
