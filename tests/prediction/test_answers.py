"""What a prediction says about itself, in a shell, in JSON and in a notebook."""

import base64
import io
import json
import pickle
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from dtpt.prediction.notebook import Bar, as_html
from PIL import Image

import dtpt


@pytest.fixture
def prediction(classifier, pictures):
    return classifier.predict(pictures[0], keep_views=True)


def test_a_prediction_prints_in_one_short_line(prediction):
    assert re.fullmatch(
        r"<Prediction '[\w ]+' \d+\.\d % by d-tpt, zero-shot '[\w ]+' \d+\.\d %>", repr(prediction)
    )
    assert repr(prediction.zero_shot).startswith("<Answer '")


def test_a_classifier_says_what_it_is(classifier, model, tiny_clip):
    text = repr(classifier)
    assert "d-tpt, lambda 100000, of 3 classes with 16 views" in text
    assert model.name in text
    nameless = dtpt.Classifier(tiny_clip, ["cat", "dog"], method="tpt", views=4)
    assert repr(nameless) == "<Classifier tpt, of 2 classes with 4 views, on a model tiny-0 (cpu)>"


def test_plain_data_survives_json(prediction):
    data = json.loads(json.dumps(prediction.to_dict()))
    assert data["label"] == prediction.label
    assert data["lambda"] == 100000
    assert data["probabilities"][prediction.label] == data["confidence"]
    assert list(data["probabilities"]) == list(prediction.classes)
    assert data["zero_shot"]["confidence"] == prediction.zero_shot.confidence


@pytest.mark.filterwarnings("ignore::dtpt.errors.PromptWarning")
def test_two_classes_of_one_name_keep_both_their_probabilities(tiny_clip, pictures):
    made = dtpt.Classifier(tiny_clip, ["cat", "dog", "cat"], method="tpt", views=4)
    assert len(made.predict(pictures[0]).to_dict()["probabilities"]) == 3


def test_the_most_probable_classes_come_first(prediction):
    top = prediction.top(2)
    assert top[0] == (prediction.label, prediction.confidence)
    assert top[0][1] >= top[1][1]
    assert len(prediction.top(99)) == 3


def test_predictions_can_be_compared_hashed_and_pickled(prediction):
    assert prediction == prediction  # arrays inside would make this an error
    assert prediction != prediction.zero_shot
    assert len({prediction, prediction.zero_shot}) == 2
    again = pickle.loads(pickle.dumps(prediction))
    np.testing.assert_array_equal(again.probabilities, prediction.probabilities)
    assert again.kept.sheet == prediction.kept.sheet


def test_kept_views_are_those_that_are_tuned_on(classifier, pictures, prediction):
    features = classifier.view_features(pictures[0])
    text, scale = classifier.tuner.initial_text_features, classifier.tuner.logit_scale
    p = torch.softmax(scale * features @ text.T, dim=-1)
    entropy = -(p * p.log()).sum(-1)
    assert prediction.kept.indices == (int(entropy.argmin()),)  # 0.1 of 16 views is one
    assert Image.open(io.BytesIO(prediction.kept.sheet)).size == (64, 64)
    assert classifier.predict(pictures[0]).kept is None
    still = dtpt.Classifier(classifier.model, ["cat", "dog"], method="zero-shot")
    assert still.predict(pictures[0], keep_views=True).kept is None


class Outside(HTMLParser):
    """Collects what a page would load or run, and whether its tags close in order."""

    def __init__(self):
        super().__init__()
        self.sources, self.open, self.tags = [], [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_notebook_shows_answer_and_views_and_loads_nothing(prediction):
    page = Outside()
    page.feed(prediction._repr_html_())
    assert page.open == []
    assert page.tags <= {"div", "table", "tr", "th", "td", "p", "img"}
    (source,) = page.sources
    head, code = source.split(",")
    assert head == "data:image/jpeg;base64"
    assert base64.b64decode(code) == prediction.kept.sheet
    for name in prediction.classes:
        assert name in prediction._repr_html_()


def test_names_cannot_bring_tags_into_a_notebook():
    nasty = "<img src=x onerror=alert(1)>\"'&"
    text = as_html([Bar(nasty, 0.5, 0.5)], method=nasty, remark=nasty)
    page = Outside()
    page.feed(text)
    assert page.sources == []
    assert "img" not in page.tags
    assert text.count("&lt;img") == 3
