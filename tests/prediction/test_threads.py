"""Several threads share one classifier."""

import multiprocessing
import os
import subprocess
import sys
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


PROCESSES = """
import concurrent.futures, multiprocessing, sys
import numpy as np
import torch
import dtpt

torch.set_num_threads(2)
image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
model = dtpt.load_model("pocket", device="cpu")
classifier = dtpt.Classifier(model, ["cat", "dog"], method="d-tpt", views=8)
before = classifier.predict(image)
context = multiprocessing.get_context(sys.argv[1])
with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
    after = list(pool.map(classifier.predict, [image] * 8))
for prediction in after:
    np.testing.assert_allclose(prediction.probabilities, before.probabilities, atol=1e-6)
print(len(after))
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_predict_although_their_parent_has_predicted(start):
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} on this system")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESSES, start],
        env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert done.stdout == "8\n"


def test_threads_of_torch_sleep_while_they_wait():
    """With spinning ones a busy machine is ten times slower: docs/performance.md."""
    code = "import os, dtpt; print(os.environ['OMP_WAIT_POLICY'])"
    for given, expected in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        names = os.environ.keys() - {"OMP_WAIT_POLICY"}
        environment = {name: os.environ[name] for name in names} | given
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert done.stdout == f"{expected}\n"
