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
def test_threads_get_the_predictions_that_they_would_get_alone(model, images, method):
    alone = dtpt.Classifier(model, CLASSES, method=method, views=16)
    expected = [alone.predict(image).probabilities for image in images]
    for _ in range(2):
        shared = dtpt.Classifier(model, CLASSES, method=method, views=16)  # nothing is made yet
        with ThreadPoolExecutor(6) as threads:
            predictions = list(threads.map(shared.predict, images * 4))
        for prediction, right in zip(predictions, expected * 4, strict=True):
            np.testing.assert_array_equal(prediction.probabilities, right)


def test_the_graph_is_made_once_whichever_thread_comes_first(model, images, monkeypatch):
    made = []
    linearise = PromptEncoder.linearise
    monkeypatch.setattr(
        PromptEncoder, "linearise", lambda self, point: made.append(1) or linearise(self, point)
    )
    shared = dtpt.Classifier(model, CLASSES, method="d-tpt", views=8)
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(shared.predict, images * 2))
    assert made == [1]
