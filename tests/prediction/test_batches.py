"""Many images in several processes."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import dtpt
from dtpt.errors import ImageError, MethodError, OptionError
from dtpt.executors import pool
from dtpt.executors.process import CAN_START
from dtpt.methods import regularised
from dtpt.prediction import classifier as module

CLASSES = ["cat", "two_hump camel", "tropical drink"]

in_processes = pytest.mark.skipif(not CAN_START, reason="no processes can be started here")


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def started(monkeypatch):
    """The worker processes that are started."""
    processes, start = [], pool.start

    def start_and_keep(*arguments, **named):
        processes.append(start(*arguments, **named))
        return processes[-1]

    monkeypatch.setattr(pool, "start", start_and_keep)
    return processes


@in_processes
def test_processes_predict_bit_for_bit_as_predict_does_in_order(
    classifier, images, tmp_path, one_thread
):
    images[1].save(tmp_path / "b.png")
    broken = Image.open(tmp_path / "b.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:3000])
    images[2].save(tmp_path / "c.png")
    sources = [
        images[0],
        broken,  # Pillow reads its pixels only now
        tmp_path / "c.png",
        b"not an image",
        np.asarray(images[3]),
        tmp_path / "nowhere.png",
        5,
        *images,
    ]
    taken = []
    lazily = (taken.append(1) or source for source in sources)
    predictions = classifier.predict_each(lazily, workers=2)
    first = next(predictions)
    assert len(taken) <= 2 * module.AHEAD + 1
    results = [first, *predictions]
    assert [isinstance(result, ImageError) for result in results[:7]] == [
        False, True, False, True, False, True, True,
    ]  # fmt: skip
    assert "nowhere.png" in str(results[5])
    for source, result in zip(sources, results, strict=True):
        if not isinstance(result, ImageError):
            expected = classifier.predict(source)
            np.testing.assert_array_equal(result.probabilities, expected.probabilities)
            assert result.to_dict() == expected.to_dict()


@in_processes
def test_a_batch_ends_at_the_first_image_that_cannot_be_read(classifier, images, started):
    predictions = classifier.predict_batch([images[0], b"no image", images[1]], workers=2)
    assert next(predictions).label in CLASSES
    with pytest.raises(ImageError, match="8 bytes"):
        next(predictions)
    assert next(predictions, None) is None
    assert [process.process.poll() is not None for process in started] == [True, True]


@in_processes
def test_processes_that_are_killed_are_replaced(classifier, images, started):
    predictions = classifier.predict_each(images, workers=2)
    first = next(predictions)
    for process in started[:2]:
        process.process.kill()
    results = [first, *predictions]
    labels = [classifier.predict(image).label for image in images]
    assert [result.label for result in results] == labels
    assert len(started) >= 3


@in_processes
def test_where_an_accelerator_computes_the_processes_render(classifier, images, one_thread):
    results = module._in_processes(
        classifier._render, images[:2], workers=2, threads=1, then=classifier._predict
    )
    for result, image in zip(results, images[:2], strict=True):
        expected = classifier.predict(image)
        np.testing.assert_array_equal(result.probabilities, expected.probabilities)


@in_processes
def test_a_script_needs_no_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, dtpt\n"
        "print('begun')\n"
        "made = dtpt.Classifier(dtpt.load_model('pocket'), ['cat', 'dog'], method='zero-shot')\n"
        "image = np.zeros((8, 8, 3), np.uint8)\n"
        "print(len(list(made.predict_batch([image] * 3, workers=2))))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.split() == ["begun", "3"]


def test_functions_that_cannot_be_sent_are_refused(model, images):
    own = regularised("own", lambda text: text.sum(), lambda_=1.0)
    made = dtpt.Classifier(model, CLASSES, method=own, views=4)
    assert len(list(made.predict_batch(images[:1]))) == 1
    if CAN_START:
        with pytest.raises(MethodError, match="workers=1"):
            made.predict_batch(images, workers=2)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "many", None, True, 10**6])
def test_invalid_numbers_of_workers_are_refused_at_once(classifier, images, wrong):
    with pytest.raises(OptionError, match="workers"):
        classifier.predict_batch(images, workers=wrong)


@pytest.mark.parametrize("one", ["cat.jpg", b"bytes", None, 5])
def test_one_image_is_not_several(classifier, one):
    for call in (classifier.predict_batch, classifier.predict_each, classifier.fit_lambda):
        with pytest.raises(OptionError, match="list"):
            call(one)


def test_auto_fills_the_cores(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 6)
    monkeypatch.setattr(module, "CAN_START", True)
    assert module._count_workers("auto", threads=1) == 6
    assert module._count_workers("auto", threads=4) == 1
    monkeypatch.setattr(module, "CAN_START", False)
    assert module._count_workers("auto", threads=1) == module._count_workers(3, threads=1) == 1
