"""Many pictures in several processes."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from dtpt.processes import CAN_START
from PIL import Image

import dtpt
from dtpt.errors import ImageError, MethodError, OptionError, WorkerError
from dtpt.methods import regularised
from dtpt.prediction import batches

CLASSES = ["cat", "two_hump camel", "tropical drink"]

in_processes = pytest.mark.skipif(not CAN_START, reason="this system starts no processes for us")


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@in_processes
def test_processes_answer_bit_for_bit_as_predict_does_in_order(
    classifier, pictures, tmp_path, one_thread
):
    pictures[1].save(tmp_path / "b.png")
    broken = Image.open(tmp_path / "b.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:3000])
    pictures[2].save(tmp_path / "c.png")
    sources = [
        pictures[0],
        broken,  # Pillow reads its pixels only now
        tmp_path / "c.png",
        b"not an image",
        np.asarray(pictures[3]),
        tmp_path / "nowhere.png",
        5,
        *pictures,
    ]
    taken = []
    lazily = (taken.append(1) or source for source in sources)
    answers = classifier.predict_each(lazily, workers=2)
    first = next(answers)
    assert len(taken) == 5  # two ahead for each process, and no more
    got = [first, *answers]
    wrong = [place for place, answer in enumerate(got) if isinstance(answer, ImageError)]
    assert wrong == [1, 3, 5, 6]
    assert "nowhere.png" in str(got[5])
    for source, answer in zip(sources, got, strict=True):
        if not isinstance(answer, ImageError):
            expected = classifier.predict(source)
            np.testing.assert_array_equal(answer.probabilities, expected.probabilities)
            np.testing.assert_array_equal(
                answer.zero_shot.probabilities, expected.zero_shot.probabilities
            )
            assert answer.to_dict() == expected.to_dict()
    assert not [t for t in threading.enumerate() if t.name.startswith("dtpt-batch")]


@in_processes
def test_a_batch_ends_at_the_first_picture_that_cannot_be_read(classifier, pictures, monkeypatch):
    started = []
    start = batches.start
    monkeypatch.setattr(
        batches, "start", lambda *a, **k: started.append(start(*a, **k)) or started[-1]
    )
    answers = classifier.predict_batch([pictures[0], b"no image", pictures[1]], workers=2)
    assert next(answers).label in CLASSES
    with pytest.raises(ImageError, match="8 bytes"):
        next(answers)
    assert next(answers, None) is None
    assert [companion.process.poll() is not None for companion in started] == [True, True]


@in_processes
def test_a_process_that_dies_is_told_and_nothing_hangs(classifier, pictures, monkeypatch):
    started = []
    start = batches.start
    monkeypatch.setattr(
        batches, "start", lambda *a, **k: started.append(start(*a, **k)) or started[-1]
    )
    answers = classifier.predict_each(pictures * 9, workers=2)
    next(answers)
    for companion in started:
        companion.process.kill()
    with pytest.raises(WorkerError, match="signal 9"):
        list(answers)


@in_processes
def test_where_an_accelerator_computes_the_processes_make_views(classifier, pictures):
    maker = classifier._view_maker
    seen = list(batches.answer_in_processes(maker, pictures[:2], workers=2, threads=1))
    for picture, one in zip(pictures, seen, strict=False):
        np.testing.assert_array_equal(one.pixels, maker(picture).pixels)
        expected = classifier.predict(picture)
        np.testing.assert_array_equal(classifier._answer(one).probabilities, expected.probabilities)


@in_processes
def test_a_script_needs_no_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np, dtpt\n"
        "print('begun')\n"
        "made = dtpt.Classifier(dtpt.load_model('pocket'), ['cat', 'dog'], method='zero-shot')\n"
        "picture = np.zeros((8, 8, 3), np.uint8)\n"
        "print(len(list(made.predict_batch([picture] * 3, workers=2))))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.split() == ["begun", "3"]


def test_functions_that_cannot_travel_are_refused_in_words(model, pictures):
    own = regularised("own", lambda text: text.sum(), lambda_=1.0)
    made = dtpt.Classifier(model, CLASSES, method=own, views=4)
    assert len(list(made.predict_batch(pictures[:1]))) == 1
    if CAN_START:
        with pytest.raises(MethodError, match="workers=1"):
            next(made.predict_batch(pictures, workers=2))


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "many", None, True, 10**6])
def test_senseless_numbers_are_refused_at_once(classifier, pictures, wrong):
    with pytest.raises(OptionError, match="workers"):
        classifier.predict_batch(pictures, workers=wrong)


@pytest.mark.parametrize("one", ["cat.jpg", b"bytes", None, 5])
def test_one_picture_is_not_several(classifier, one):
    for call in (classifier.predict_batch, classifier.predict_each, classifier.fit_weight):
        with pytest.raises(OptionError, match="several pictures"):
            call(one)


def test_auto_fills_the_cores(monkeypatch):
    monkeypatch.setattr(batches, "usable_cores", lambda: 6)
    monkeypatch.setattr(batches, "CAN_START", True)
    assert batches.count_workers("auto", threads=1) == 6
    assert batches.count_workers("auto", threads=4) == 1
    monkeypatch.setattr(batches, "CAN_START", False)
    assert batches.count_workers("auto", threads=1) == batches.count_workers(3, threads=1) == 1
