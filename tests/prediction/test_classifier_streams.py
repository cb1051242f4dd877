"""`Classifier.stream` and `dtpt predict --stream`: a state that is saved and taken up again."""

import json
import pickle
import threading

import numpy as np
import pytest

import dtpt
from dtpt.cli.main import call
from dtpt.errors import ImageError, MethodError

CLASSES = ["cat", "dog", "bus"]


def pictures(count, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 255, (20, 20, 3), dtype=np.uint8) for _ in range(count)]


@pytest.fixture(scope="module")
def model():
    return dtpt.load_model("pocket")


def made(model, method="tda", **changes):
    return dtpt.Classifier(model, CLASSES, **{"method": method, "views": 4, **changes})


def confidences(stream, images):
    return [stream.predict(image).confidence for image in images]


@pytest.mark.parametrize("method", ["tda", "tda:views+stream-temperature"])
def test_a_saved_stream_goes_on_with_the_same_bits(model, tmp_path, method):
    images, classifier = pictures(7), made(model, method)
    stream = classifier.stream()
    whole = confidences(stream, images)
    stream.reset()
    assert stream.images == 0
    first = confidences(stream, images[:3])
    stream.save(tmp_path / "state")
    with pytest.raises(ImageError):
        stream.predict(b"no image")
    other = made(model, method).stream()
    other.load(tmp_path / "state")
    assert other.images == 3
    assert first + confidences(other, images[3:]) == whole
    assert confidences(stream, images[3:]) == whole[3:]
    assert confidences(classifier.stream(), images[3:]) != whole[3:]


@pytest.mark.parametrize(
    "change", [{"method": "onzeta"}, {"seed": 1}, {"template": "a {}."}, {"classes": CLASSES[:2]}]
)
def test_states_of_another_setup_are_refused(model, tmp_path, change):
    stream = made(model).stream()
    confidences(stream, pictures(2))
    stream.save(tmp_path / "state")
    options = {"classes": CLASSES, "method": "tda", "views": 4, **change}
    other = dtpt.Classifier(model, options.pop("classes"), **options).stream()
    with pytest.raises(MethodError, match="another stream"):
        other.load(tmp_path / "state")


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\x08" + b"\0" * 7 + b'{"a": 1}', b"\xff" * 99])
def test_other_files_are_refused(model, tmp_path, data):
    (tmp_path / "state").write_bytes(data)
    with pytest.raises(MethodError):
        made(model).stream().load(tmp_path / "state")
    with pytest.raises(MethodError):
        made(model).stream().load(tmp_path / "none")


def test_a_stream_belongs_to_one_thread_and_process(model):
    stream, errors = made(model).stream(), []

    def use():
        try:
            stream.predict(pictures(1)[0])
        except MethodError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(errors) == 1
    assert stream.images == 0
    with pytest.raises(MethodError):
        pickle.dumps(stream)


def test_each_kind_of_method_has_its_own_way(model):
    with pytest.raises(MethodError, match="stream"):
        made(model).predict(pictures(1)[0])
    with pytest.raises(MethodError, match="no state"):
        made(model, "tpt").stream()


def test_the_command_goes_on_with_the_state_of_a_file(tmp_path, capsys):
    from PIL import Image

    paths = [tmp_path / f"{k}.png" for k in range(4)]
    for path, picture in zip(paths, pictures(4), strict=True):
        Image.fromarray(picture).save(path)

    def predict(*images, state):
        words = ["--classes", ",".join(CLASSES), "--method", "tda", "--threads", "1", "--json"]
        call(["predict", *map(str, images), *words, "--stream", str(state)])
        return [json.loads(line)["confidence"] for line in capsys.readouterr().out.splitlines()]

    whole = predict(*paths, state=tmp_path / "one")
    assert predict(*paths[:2], state=tmp_path / "two") == whole[:2]
    assert predict(*paths[2:], state=tmp_path / "two") == whole[2:]
