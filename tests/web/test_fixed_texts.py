"""The service around a model of text features: its classes, and the methods that run."""

import pytest
from live_server import LIMITS, png, running

from dtpt.clip.loading.features import FeatureModel
from dtpt.methods import find_method
from dtpt.prediction import Classifier
from dtpt.web.playground import Playground

CLASSES = ["cat", "two-hump camel", "tropical drink"]


@pytest.fixture(scope="module")
def model(tiny_clip):
    text = tiny_clip.encode_text([f"a photo of a {name}." for name in CLASSES])
    return FeatureModel(CLASSES, text, prompt="a photo of a {}.", image=tiny_clip)


@pytest.fixture(scope="module")
def server(model):
    with running(Playground(model, name="parts", limits=LIMITS)) as started:
        yield started


def test_only_its_own_classes_and_methods_are_offered(server):
    assert [(entry["name"], entry["count"]) for entry in server.get("/v1/classes")] == [
        ("model", 3)
    ]
    assert server.get("/v1/classes/model") == CLASSES
    assert server.request("GET", "/v1/classes/dtd")[0] == 404
    names = {method["name"] for method in server.get("/v1/methods")}
    assert {"zero-shot", "mean-views", "d-tps"} <= names
    assert not any(find_method(name).parameter == "context" for name in names)


def test_predictions_are_those_of_the_classifier(server, model):
    image = png()
    settings = {"classes": CLASSES[::-1], "methods": ["mean-views", "d-tps"], "views": 4}
    _, answer = server.predict(image, settings)
    for found in answer["predictions"]:
        made = Classifier(model, CLASSES[::-1], method=found["method"], views=4)
        assert found["probabilities"] == made.predict(image).probabilities.tolist()


@pytest.mark.parametrize(
    "change",
    [{"methods": ["tpt"]}, {"classes": ["cat", "wolf"]}, {"template": "a sketch of a {}."}],
)
def test_what_the_model_cannot_do_is_refused(server, change):
    settings = {"classes": CLASSES, "methods": ["mean-views"], "views": 4, **change}
    status, answer = server.predict(png(), settings)
    assert status == 422, answer
