"""Several threads share one classifier."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dtpt
from dtpt.tuning import PromptEncoder

CLASSES = ["cat", "two_hump camel", "tropical drink"]


@pytest.mark.parametrize(
    "method", ["d-tpt", "d-tpt@auto-each=0.9", "d-tpt-static", "tpt+views=0.3"]
)
def test_threads_get_the_answers_that_they_would_get_alone(model, pictures, method):
    alone = dtpt.Classifier(model, CLASSES, method=method, views=16)
    expected = [alone.predict(picture).probabilities for picture in pictures]
    for _ in range(3):
        shared = dtpt.Classifier(model, CLASSES, method=method, views=16)  # nothing is made yet
        with ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(shared.predict, pictures * 4))
        for answer, right in zip(answers, expected * 4, strict=True):
            np.testing.assert_array_equal(answer.probabilities, right)


def test_the_graph_is_made_once_whichever_thread_comes_first(model, pictures, monkeypatch):
    made = []
    linearise = PromptEncoder.linearise
    monkeypatch.setattr(
        PromptEncoder, "linearise", lambda self, point: made.append(1) or linearise(self, point)
    )
    shared = dtpt.Classifier(model, CLASSES, method="d-tpt", views=8)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(shared.predict, pictures * 2))
    assert made == [1]
