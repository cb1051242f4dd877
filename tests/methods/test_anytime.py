"""Anytime read-outs: when they stop, and that they are a prefix of the method with all views."""

import io
import time

import numpy as np
import pytest
import torch
from PIL import Image

import dtpt
from dtpt.clip.model import view_batches
from dtpt.errors import MethodError
from dtpt.methods import resolve_method
from dtpt.methods.anytime import TOLERANCE, first_stable, stops
from dtpt.runs import EvalOptions, run_options

CLASSES = ["cat", "two_hump camel", "tropical drink"]
LOOSE, TIGHT = "mean-views+anytime=1", "mean-views+anytime=1e-9"


def logits(*probabilities):
    return torch.log(torch.tensor(probabilities, dtype=torch.float64))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [1, 5, 8, 9, 40, 64])
def test_answers_are_looked_at_between_the_batches_of_every_image_encoder(count, size):
    borders = {batch.stop for batch in view_batches(count, size=size)}
    assert borders.issuperset(stops(count))
    assert stops(count)[-1] == count


ANSWERS = {
    1: logits(0.5, 0.5 - 1e-9, 1e-9),
    8: logits(0.45, 0.55, 1e-9),  # another class
    16: logits(0.3, 0.7, 1e-9),  # by 0.15 more certain
    32: logits(0.25, 0.75, 1e-9),  # 0.05
    48: logits(0.24, 0.76, 1e-9),  # 0.01
    64: logits(0.235, 0.765, 1e-9),
}


@pytest.mark.parametrize(
    ("tolerance", "expected"), [(0.2, 16), (0.1, 32), (0.03, 48), (0.006, 64), (0.001, None)]
)
def test_it_stops_at_the_first_answer_that_repeats_the_one_before(tolerance, expected):
    assert first_stable(ANSWERS.__getitem__, 64, tolerance=tolerance) == expected


def test_later_answers_are_not_computed():
    asked = []
    first_stable(lambda k: asked.append(k) or ANSWERS[k], 64, tolerance=0.1)
    assert asked == [1, 8, 16, 32]


def test_one_view_is_never_stable():
    assert first_stable(lambda _: ANSWERS[1], 1, tolerance=1.0) is None


def test_names():
    assert resolve_method("mean-views:anytime").tolerance == TOLERANCE
    assert resolve_method("mean-views:anytime+anytime=0.02").tolerance == 0.02
    assert resolve_method("zero-shot+views=0.2+anytime=0.5").tolerance == 0.5
    assert resolve_method("mean-views").tolerance is None


@pytest.mark.parametrize(
    "name",
    [
        "zero-shot+anytime=0.1",
        "tpt+anytime=0.1",
        "tpt+views=0.3+anytime=0.1",
        "mean-views+anytime=0",
        "mean-views+anytime=2",
        "mean-views+anytime=x",
    ],
)
def test_what_cannot_stop_early_is_refused(name):
    with pytest.raises(MethodError):
        resolve_method(name)


@pytest.fixture(scope="module")
def model():
    return dtpt.load_model("pocket", device="cpu")


@pytest.fixture
def pictures():
    generator = np.random.default_rng(0)
    noise = [generator.integers(0, 256, (80, 64, 3), dtype=np.uint8) for _ in range(3)]
    smooth = np.linspace(0, 255, 80 * 64 * 3).reshape(80, 64, 3).astype(np.uint8)
    return [*noise, smooth]


@pytest.mark.parametrize("name", ["mean-views:anytime", LOOSE, TIGHT, "vte+anytime=0.02"])
def test_a_prediction_has_the_bits_of_the_method_with_that_many_views(model, pictures, name):
    anytime = dtpt.Classifier(model, CLASSES, method=name)
    plain = resolve_method(name).method.name.removesuffix(":anytime")
    for picture in pictures:
        features = anytime.view_features(picture)
        fixed = dtpt.Classifier(model, CLASSES, method=plain, views=len(features))
        torch.testing.assert_close(features, fixed.view_features(picture), rtol=0, atol=0)
        np.testing.assert_array_equal(
            anytime.predict(picture).probabilities, fixed.predict(picture).probabilities
        )


def passes(model, monkeypatch):
    done, encode = [], type(model)._image_features
    monkeypatch.setattr(
        type(model),
        "_image_features",
        lambda self, pixels, tower: done.append(len(pixels)) or encode(self, pixels, tower),
    )
    return done


def test_views_that_are_not_needed_are_not_encoded(model, pictures, monkeypatch):
    done = passes(model, monkeypatch)
    used = len(dtpt.Classifier(model, CLASSES, method=LOOSE).view_features(pictures[0]))
    assert sum(done) == used < 64
    done.clear()
    dtpt.Classifier(model, CLASSES, method=TIGHT).predict(pictures[0])
    assert done == [1, 7, 8, 16, 16, 16]


def test_the_service_encodes_as_few_and_takes_other_methods_afterwards(
    model, pictures, monkeypatch
):
    from dtpt.web.options import Limits
    from dtpt.web.playground import Playground
    from dtpt.web.queue import Job
    from dtpt.web.schemas import PredictSettings

    written = io.BytesIO()
    Image.fromarray(pictures[-1]).save(written, "PNG")
    playground = Playground(model, name="pocket", limits=Limits())

    def predict(*methods, show=()):
        settings = PredictSettings(classes=CLASSES, methods=methods, show=show)
        job = Job(time.monotonic() + 600)
        found = playground.predict(written.getvalue(), settings, job=job)
        return found.predictions[-1].probabilities

    done = passes(model, monkeypatch)
    early = predict("zero-shot", LOOSE)
    used = sum(done)
    assert used < 64
    assert predict("zero-shot", LOOSE) == early
    assert sum(done) == used  # from memory
    full = predict("mean-views")
    assert sum(done) == used + 64
    expected = dtpt.Classifier(model, CLASSES, method="mean-views").predict(pictures[-1])
    assert full == expected.probabilities.tolist()
    done.clear()
    assert predict("zero-shot", LOOSE) == early  # a prefix of what is in memory
    assert done == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, generator = tmp_path_factory.mktemp("images"), np.random.default_rng(1)
    for index in range(6):
        path = root / ("cat" if index % 2 else "dog") / f"{index}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((64, 64)).save(path)
    return root


def evaluate(folder, output, *, method, views=64):
    options = EvalOptions(
        dataset=(f"folder:{folder}",),
        method=method,
        views=views,
        output=output,
        quiet=True,
        workers=1,
        view_workers=0,
        threads=1,
    )
    return run_options(options)


def test_rows_are_those_of_mean_views_with_as_many_views(folder, tmp_path):
    names = ("zero-shot", "mean-views", "mean-views:anytime", LOOSE)
    with evaluate(folder, tmp_path / "a", method=names) as run:
        zero_shot, full, anytime, loose = (run.rows_of(cell) for cell in run.cells)
    assert set(zero_shot.views) == {1}
    assert set(full.views) == {64}
    assert set(loose.views) < {8, 16, 32, 48, 64}
    for count in set(anytime.views) | set(loose.views):
        with evaluate(folder, tmp_path / f"{count}", method=("mean-views",), views=count) as run:
            (fixed,) = (run.rows_of(cell) for cell in run.cells)
        for rows in (anytime, loose):
            chosen = rows.views == count
            np.testing.assert_array_equal(rows.confidence[chosen], fixed.confidence[chosen])
            np.testing.assert_array_equal(rows.p_label[chosen], fixed.p_label[chosen])
