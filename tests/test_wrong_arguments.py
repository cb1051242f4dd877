"""Public functions refuse wrong values in words of ours: nothing but subclasses of DtptError."""

import numpy as np
import pytest
import torch

import dtpt
from dtpt.errors import DtptError

WRONG = [
    True,
    -1,
    3.7,
    float("nan"),
    "",
    "\0",
    "x" * 5000,
    b"x",
    [],
    ["a"],
    [1, 2],
    [None, None],
    [[]],
    {},
    object(),
    lambda: 1,
    np.zeros(3),
    torch.zeros(2, 2),
    10**30,
]
IMAGE = np.zeros((8, 8, 3), np.uint8)


@pytest.fixture(scope="module")
def classifier(tiny_clip):
    return dtpt.Classifier(tiny_clip, ["cat", "dog"], method="tpt", views=2)


def option(name):
    def call(value, model, _):
        settings = {"method": "d-tpt", "views": 2, name: value}
        return dtpt.Classifier(model, ["cat", "dog"], **settings)

    return call


CALLS = {
    "Classifier.model": lambda v, *_: dtpt.Classifier(v, ["cat", "dog"]),
    "Classifier.classes": lambda v, model, _: dtpt.Classifier(model, v, views=2),
    **{
        f"Classifier.{name}": option(name)
        for name in (
            "method",
            "template",
            "views",
            "seed",
            "lambda_",
            "protocol",
            "augmix",
            "context",
            "settings",
            "calibration",
        )
    },
    "predict": lambda v, _, made: made.predict(v),
    "predict_batch": lambda v, _, made: list(made.predict_batch(v)),
    "tune": lambda v, _, made: made.tune(v),
    "view_features": lambda v, _, made: made.view_features(v),
    "save": lambda v, _, made: made.save(v) if not isinstance(v, str) else None,
    "load": lambda v, *_: dtpt.Classifier.load(v),
    "load_model": lambda v, *_: dtpt.load_model(v),
    "load_model.device": lambda v, *_: dtpt.load_model("pocket", device=v),
    "load_model.activation": lambda v, *_: dtpt.load_model("pocket", activation=v),
    "load_model.precision": lambda v, *_: dtpt.load_model("pocket", precision=v),
    "load_dataset": lambda v, *_: dtpt.load_dataset(v),
    "load_run": lambda v, *_: dtpt.load_run(v),
    "compare": lambda v, *_: dtpt.compare(v),
    "resolve_method": lambda v, *_: dtpt.resolve_method(v),
    "resolve_method.lambda_": lambda v, *_: dtpt.resolve_method("d-tpt", lambda_=v),
    "resolve_method.protocol": lambda v, *_: dtpt.resolve_method("d-tpt", protocol=v),
    "regularised.name": lambda v, *_: dtpt.regularised(v, torch.sum, lambda_=1),
    "regularised.lambda_": lambda v, *_: dtpt.regularised("x", torch.sum, lambda_=v),
    "PromptSet.model": lambda v, *_: dtpt.PromptSet.build(v, ["cat"]),
    "PromptSet.classes": lambda v, model, _: dtpt.PromptSet.build(model, v),
    "PromptSet.template": lambda v, model, _: dtpt.PromptSet.build(model, ["cat"], template=v),
    "Tuner.settings": lambda v, model, made: dtpt.Tuner(model, made.predictor.prompts, settings=v),
    "calibration_report": lambda v, *_: dtpt.calibration_report(v, [0, 1]),
    "calibration_report.labels": lambda v, *_: dtpt.calibration_report([[0.5, 0.5]], v),
    "from_open_clip": lambda v, *_: dtpt.from_open_clip(v),
    "from_transformers": lambda v, *_: dtpt.from_transformers(v),
    "push_to_hub": lambda v, *_: dtpt.push_to_hub(v, "org/name"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::dtpt.errors.PromptWarning")
def test_wrong_values_are_refused_in_words_of_ours(
    name, tiny_clip, classifier, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    messages = []
    for value in WRONG:
        try:
            CALLS[name](value, tiny_clip, classifier)
        except DtptError as error:
            messages.append(str(error))
    assert len(messages) > len(WRONG) // 2, "the values should be wrong for most calls"
    for message in messages:
        assert message
        assert "\n" not in message
