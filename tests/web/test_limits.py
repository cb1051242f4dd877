"""Every field has a limit that is checked before any work, and work ends at its deadline."""

import json
import logging

import pytest
from live_server import LIMITS, SETTINGS, HeldPlayground, png, running

from dtpt.options import ImageOptions
from dtpt.web.evidence import score_csv
from dtpt.web.playground import Playground
from dtpt.web.queue import Job
from dtpt.web.schemas import PredictSettings

MAX_SAMPLES = 500_000
LARGE = LIMITS.model_copy(update={"max_body_bytes": 4_000_000})
HEAVY = {
    "classes": [f"class {n}" for n in range(1000)],
    "methods": ["tpt", "c-tpt", "o-tpt", "d-tpt", "a-tpt", "r-tpt"],
    "steps": 10,
    "views": 64,
}


@pytest.fixture(scope="module")
def large(tiny_clip):
    """A server that reads bodies of four megabytes."""
    with running(HeldPlayground(tiny_clip, name="tiny", limits=LARGE)) as started:
        yield started


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"methods": ["tpt" + "+sals" * 400_000]}, ("settings", "1,000,000")),
        ({"methods": ["tpt" + "+sals" * 100_000]}, ("methods.0", "120")),
        ({"methods": ["tpt" + "+sals" * 9]}, ("methods.0", "9 modifiers", "8")),
        ({"methods": ["tpt+lr=1e300"]}, ("methods.0", "lr=1e300", "1e+12")),
        ({"methods": ["tpt+ts=1e-300"]}, ("methods.0", "ts=1e-300", "1e-12")),
        ({"methods": ["d-tpt@nan"]}, ("methods.0", "nan", "1e+12")),
        ({"methods": ["d-tpt@1e308"]}, ("methods.0", "1e308", "1e+12")),
        ({"methods": [""] * 100_000}, ("methods", "12")),
        ({"classes": ["a"] * 100_000}, ("classes", "1000")),
        ({"classes": ["a", "b" * 500_000]}, ("classes.1", "200", "bbb")),
        ({"classes": {"a": [1] * 200_000}}, ("classes",)),
        ({"template": "a " * 400_000 + "{}"}, ("template", "200", "a a a")),
        ({"views": 65}, ("views", "64", "65")),
        ({"views": 10**4000}, ("views",)),
        ({"steps": 11}, ("steps", "10", "11")),
        ({"learning_rate": 1e300}, ("learning_rate", "1000", "1e+300")),
        ({"weight_decay": 1e300}, ("weight_decay", "1000", "1e+300")),
        ({"rho": 1.5}, ("rho", "1.5")),
        ({"seed": -1}, ("seed", "-1")),
        ({"dropped": [10**300]}, ("dropped.0", "64")),
        ({"dropped": [1] * 100_000}, ("dropped", "64")),
        ({"show": ["views"] * 100_000}, ("show", "4")),
        ({"image_id": "0" * 500_000}, ("image_id", "64")),
        ({"unknown": [[1]] * 100_000}, ("unknown",)),
        ({"classes": [[[[[[[[[["a"]]]]]]]]]]}, ("settings", "levels deep", "8")),
    ],
)
def test_a_value_beyond_its_limit_is_refused_in_one_line_that_names_both(large, change, words):
    status, response = large.predict(png(), {**SETTINGS, **change})
    message = response["error"]["message"]
    assert (status, response["error"]["code"]) == (422, "settings_invalid")
    assert [word for word in words if word not in message] == []
    assert len(message) < 400
    assert "\n" not in message
    assert large.service.playground.responses == []


def test_brackets_in_strings_are_not_nesting(server):
    classes = ["[[[[[[[[[[", 'a "quoted\\" {{{{{{{{{{', "}]"]
    status, response = server.predict(png(), {**SETTINGS, "classes": classes})
    assert (status, response["classes"]) == (200, classes)


def test_deep_json_is_refused_by_its_depth(server):
    headers = {"Content-Type": "application/json"}
    body = b'{"a":' * 50_000
    status, _, response = server.request("POST", "/v1/predict", body=body, headers=headers)
    assert (status, b"50,000" in response) == (422, True)


def test_the_service_has_the_defaults_of_the_command_line():
    options, settings = ImageOptions(), PredictSettings(classes=("a", "b"))
    assert settings.model_dump(include=set(ImageOptions.model_fields)) == options.model_dump()


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_file_with_too_many_samples_is_refused_before_it_is_read(large, end):
    body = ("confidence,correct" + end + ("1,1" + end) * (MAX_SAMPLES + 2)).encode()
    headers = {"Content-Type": "text/csv", "X-Dtpt-Request": "1"}
    status, _, response = large.request("POST", "/v1/score", body=body, headers=headers)
    assert (status, json.loads(response)["error"]["code"]) == (422, "file_invalid")
    assert b"500,000" in response


@pytest.mark.parametrize("path", ["/v1/classes/", "/v1/examples/", "/v1/thumbnails/"])
def test_long_names_in_addresses_are_refused(server, path):
    status, _, response = server.request("GET", path + "x" * 10_000)
    assert (status, b"200" in response, len(response) < 500) == (422, True, True)


def test_a_request_that_got_its_504_stops_computing(tiny_clip, caplog):
    limits = LIMITS.model_copy(update={"deadline": 1.0})
    with (
        running(HeldPlayground(tiny_clip, name="tiny", limits=limits)) as hasty,
        caplog.at_level(logging.WARNING),
    ):
        status, response = hasty.predict(png(), HEAVY)
        assert (status, response["error"]["code"]) == (504, "deadline")
        hasty.until_idle()
        assert hasty.service.playground.responses == []  # it ended before the work was done
    assert caplog.records == []  # also no error of a result that nobody waited for


def test_scores_check_their_deadline():
    calls = []
    score_csv(b"confidence,correct\n0.5,1\n", bins=5, check=lambda: calls.append(1))
    assert len(calls) >= 3


def test_every_operation_of_a_method_is_checked(tiny_clip):
    class Counting(Job):
        checks = 0

        def check(self) -> None:
            self.checks += 1

    playground = Playground(tiny_clip, name="tiny", limits=LIMITS)
    counts = []
    for steps in (1, 5):
        job = Counting(float("inf"))
        settings = PredictSettings(**{**SETTINGS, "methods": ("tpt",), "steps": steps})
        playground.predict(png(), settings, job=job)
        counts.append(job.checks)
    assert counts[1] > counts[0] > 100
