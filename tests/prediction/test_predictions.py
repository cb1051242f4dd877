"""What a prediction holds, and how it appears in a shell, in JSON and in a notebook."""

import base64
import io
import json
import pickle
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

import dtpt
from dtpt.prediction import Prediction


@pytest.fixture
def prediction(classifier, images):
    return classifier.predict(images[0], keep_views=True)


def test_predictions_and_classifiers_print_in_one_line(prediction, classifier, model, tiny_clip):
    assert re.fullmatch(
        r"<Prediction '[\w ]+' \d+\.\d % by d-tpt, zero-shot '[\w ]+' \d+\.\d %>", repr(prediction)
    )
    assert f"16 views, {model.name}" in repr(classifier)
    nameless = dtpt.Classifier(tiny_clip, ["cat", "dog"], method="tpt", views=4)
    assert repr(nameless) == "<Classifier tpt, 2 classes, 4 views, model tiny-0 (cpu)>"


def test_plain_data_survives_json(prediction):
    data = json.loads(json.dumps(prediction.to_dict()))
    assert data["label"] == prediction.label
    assert data["lambda"] == 100000
    assert data["probabilities"][prediction.label] == data["confidence"]
    assert list(data["probabilities"]) == list(prediction.classes)
    assert data["zero_shot"]["confidence"] == prediction.zero_shot.confidence


@pytest.mark.filterwarnings("ignore::dtpt.errors.PromptWarning")
def test_two_classes_of_one_name_keep_both_their_probabilities(tiny_clip, images):
    made = dtpt.Classifier(tiny_clip, ["cat", "dog", "cat"], method="tpt", views=4)
    assert len(made.predict(images[0]).to_dict()["probabilities"]) == 3


def test_the_most_probable_classes_come_first(prediction):
    top = prediction.top(2)
    assert top[0] == (prediction.label, prediction.confidence)
    assert top[0][1] >= top[1][1]
    assert len(prediction.top(99)) == 3


def test_predictions_can_be_compared_hashed_and_pickled(prediction):
    assert prediction == prediction  # arrays inside would make this an error
    assert len({prediction, prediction.zero_shot}) == 2
    again = pickle.loads(pickle.dumps(prediction))
    np.testing.assert_array_equal(again.probabilities, prediction.probabilities)
    assert again.kept.sheet == prediction.kept.sheet


def test_kept_views_are_those_that_are_tuned_on(classifier, images, prediction):
    tuner = classifier.predictor.tuner
    features = classifier.view_features(images[0])
    p = torch.softmax(tuner.logit_scale * features @ tuner.initial_text_features.T, dim=-1)
    entropy = -(p * p.log()).sum(-1)
    assert prediction.kept.indices == (int(entropy.argmin()),)  # 0.1 of 16 views is one
    assert Image.open(io.BytesIO(prediction.kept.sheet)).size == (64, 64)
    assert classifier.predict(images[0]).kept is None
    zero_shot = dtpt.Classifier(classifier.model, ["cat", "dog"], method="zero-shot")
    assert zero_shot.predict(images[0], keep_views=True).kept is None


class Page(HTMLParser):
    """Collects what a page would load or run, and checks that its tags close in order."""

    def __init__(self, text):
        super().__init__()
        self.sources, self.open, self.tags = [], [], set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_notebook_shows_prediction_and_views_and_loads_nothing(prediction):
    text = prediction._repr_html_()
    page = Page(text)
    assert page.tags <= {"div", "table", "tr", "th", "td", "p", "img"}
    (source,) = page.sources
    head, code = source.split(",")
    assert head == "data:image/jpeg;base64"
    assert base64.b64decode(code) == prediction.kept.sheet
    assert all(name in text for name in prediction.classes)


def test_names_cannot_bring_tags_into_a_notebook():
    nasty = "<img src=x onerror=alert(1)>\"'&"
    prediction = Prediction.read(torch.tensor([0.5, 0.5]), [nasty, "b"], method=nasty)
    text = replace(prediction, warning=nasty)._repr_html_()
    page = Page(text)
    assert page.sources == []
    assert "img" not in page.tags
    assert text.count("&lt;img") == 3
