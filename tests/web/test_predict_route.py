"""Answers over HTTP are those of the library."""

import json

import numpy as np
import pytest
from live_server import CLASSES, SETTINGS, form, png

import dtpt


@pytest.fixture(scope="module")
def picture():
    return png()


def test_answers_equal_the_classifier_to_the_last_bit(server, tiny_clip, picture):
    methods = ["zero-shot", "tpt", "c-tpt@20", "d-tpt", "mean-views", "tps"]
    status, answer = server.predict(picture, {**SETTINGS, "methods": methods})
    assert status == 200, answer
    for name, found in zip(methods, answer["answers"], strict=True):
        expected = dtpt.Classifier(tiny_clip, CLASSES, method=name, views=8).predict(picture)
        # alone, zero-shot encodes one view instead of eight: another batch, another rounding
        rounding = 1e-6 if name == "zero-shot" else 0
        np.testing.assert_allclose(
            found["probabilities"], expected.probabilities, rtol=0, atol=rounding, err_msg=name
        )
        assert (found["label"], found["lambda"]) == (expected.label, expected.lambda_)
        assert found["confidence"] == pytest.approx(expected.confidence, abs=rounding)


def test_a_known_picture_needs_not_be_sent_again(server, picture):
    _, first = server.predict(picture, {**SETTINGS, "seed": 11})
    known = {**SETTINGS, "seed": 11, "picture_id": first["picture"]["id"]}
    status, second = server.predict_known({**known, "methods": ["d-tpt@1e6"]})
    assert status == 200
    assert (first["cached"], second["cached"]) == (False, True)
    assert second["answers"][0]["lambda"] == 1e6
    assert second["zero_shot"] == first["zero_shot"]


def test_a_forgotten_picture_is_asked_for_again(server):
    status, answer = server.predict_known({**SETTINGS, "picture_id": "0" * 64})
    assert (status, answer["error"]["code"]) == (404, "picture_unknown")


def test_dropping_views_equals_tuning_on_the_rest(server, tiny_clip, picture):
    _, answer = server.predict(picture, {**SETTINGS, "dropped": [3, 5], "methods": ["tpt"]})
    classifier = dtpt.Classifier(tiny_clip, CLASSES, method="tpt", views=8)
    features = classifier.view_features(picture)
    expected = classifier.tune(features[[0, 1, 2, 4, 6, 7]])
    found = np.float32(answer["answers"][0]["probabilities"])
    np.testing.assert_array_equal(found, expected.probabilities)


def test_views_words_and_thumbnails_are_described(server, picture):
    show = ["views", "words", "evidence", "commands"]
    settings = {**SETTINGS, "views": 30, "dropped": [4], "show": show}
    _, answer = server.predict(picture, settings)
    views = answer["views"]
    assert [view["index"] for view in views] == list(range(30))
    assert [view["index"] for view in views if view["dropped"]] == [4]
    kept = [view for view in views if view["kept"]]
    assert len(kept) == 2  # a tenth of the 29 that remain
    staying = [view["entropy"] for view in views if not view["dropped"]]
    assert max(view["entropy"] for view in kept) == sorted(staying)[1]
    assert [word["token"] for word in answer["answers"][1]["words"]] == ["a", "photo", "of", "a"]
    assert answer["answers"][0]["words"] is None  # zero-shot moves nothing
    assert answer["answers"][1]["evidence"] == []
    status, headers, sheet = server.ask("GET", answer["picture"]["thumbnails"])
    assert (status, headers["content-type"], sheet[:2]) == (200, "image/jpeg", b"\xff\xd8")


def test_progress_comes_as_lines_and_ends_with_the_answer(server, picture):
    body, headers = form(picture, {**SETTINGS, "seed": 21})
    headers["Accept"] = "application/x-ndjson"
    status, answered, text = server.ask("POST", "/v1/predict", body=body, headers=headers)
    lines = [json.loads(line) for line in text.splitlines()]
    stages = [line["progress"]["stage"] for line in lines[:-1]]
    assert (status, answered["content-type"]) == (200, "application/x-ndjson")
    assert list(dict.fromkeys(stages)) == ["views", "features", "methods"]
    _, plain = server.predict(picture, {**SETTINGS, "seed": 21})
    assert lines[-1]["answer"]["answers"] == plain["answers"]


def test_an_error_under_way_is_the_last_line(server):
    body, headers = form(png()[:100], SETTINGS)
    headers["Accept"] = "application/x-ndjson"
    _, _, text = server.ask("POST", "/v1/predict", body=body, headers=headers)
    assert json.loads(text.splitlines()[-1])["error"]["code"] == "picture_unreadable"


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        ({"classes": ["one"]}, "settings_invalid", "classes"),
        ({"classes": ["a", " "]}, "classes_invalid", "empty name"),
        ({"classes": ["a", "b" * 201]}, "settings_invalid", "201 characters"),
        ({"classes": ["a", "b\nc"]}, "settings_invalid", "line break"),
        ({"classes": ["a", "7 " * 99]}, "classes_invalid", "tokens"),
        ({"classes": [str(n) for n in range(10_000)]}, "settings_invalid", "10000"),
        ({"methods": ["d-tpd"]}, "method_invalid", "d-tpt"),
        ({"methods": ["tpt"] * 13}, "settings_invalid", "13"),
        ({"methods": ["d-tpt@-1"]}, "method_invalid", "lambda"),
        ({"methods": ["d-tpt@1e308"]}, "method_invalid", "not finite"),
        ({"methods": ["d-tpt@auto"]}, "method_invalid", "lambda"),
        ({"template": "no place"}, "classes_invalid", "{}"),
        ({"views": 65}, "settings_invalid", "65"),
        ({"views": 0}, "settings_invalid", "views"),
        ({"steps": 11}, "settings_invalid", "11"),
        ({"dropped": [0]}, "settings_invalid", "View 0"),
        ({"dropped": [8]}, "settings_invalid", "View 8"),
        ({"seed": 2**64}, "settings_invalid", "seed"),
        ({"path": "/etc/passwd"}, "settings_invalid", "path"),
    ],
)
def test_settings_that_make_no_sense_are_named(server, picture, change, code, word):
    status, answer = server.predict(picture, {**SETTINGS, **change})
    assert (status, answer["error"]["code"]) == (422, code)
    assert word in answer["error"]["message"]
    assert answer["error"]["remedy"]


def test_pictures_that_cannot_be_read_have_codes_of_their_own(server, bomb, tmp_path):
    cases = {
        "picture_unsupported": [b"<svg/>", b"GIF89a", b"%PDF-1.7", b"II*\x00" + b"\0" * 100],
        "picture_unreadable": [png()[:200]],
        "picture_too_large": [bomb],
        "body_malformed": [b""],
    }
    statuses = {415: "picture_unsupported", 413: "picture_too_large"}
    for code, pictures in cases.items():
        for data in pictures:
            status, answer = server.predict(data, SETTINGS)
            assert answer["error"]["code"] == code, data[:20]
            assert statuses.get(status, code) == code


def test_same_prompts_are_reported(server, picture):
    _, answer = server.predict(picture, {**SETTINGS, "classes": ["cat", "Cat", "dog"]})
    assert answer["duplicates"] == [["cat", "Cat"]]


def test_memory_for_pictures_is_bounded(tiny_clip):
    from dtpt.web.answering import Playground
    from dtpt.web.limits import Limits
    from dtpt.web.schemas import PredictSettings
    from dtpt.web.worker import Job

    small = Playground(tiny_clip, name="tiny", limits=Limits(cache_bytes=40_000))
    settings = PredictSettings(classes=CLASSES, methods=["tpt"], views=8)
    for seed in range(8):
        small.predict(png(seed=seed), settings, job=Job(float("inf")))
    assert 0 < small.seen.size <= 40_000
    assert len(small.seen) < 8
