"""What commands print: into closed outputs, on odd terminals, with hostile names."""

import csv
import io
import json
import os
import subprocess
import sys

import pytest
from handmade import dataset, random_says, write_run
from PIL import Image
from processes import PROGRAM

from dtpt.cli.main import run

EVIL = "=cat\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\n<script>alert(1)</script>"
FRAMES = dict.fromkeys(map(ord, "│╭╮╰╯─"))
CONTROLS = {"\x1b", "\x07", "\x9b", "\r", "\u202e"}


def printing_commands(world, run):
    """Return words for every command that prints a result, without an hour of work."""
    image = sorted((world / "images").rglob("*.png"))[0]
    model = ("--model", f"local-dir:{world / 'tiny'}", "--views", "2")
    small = (*model, "--dataset", f"folder:{world / 'images'}", "--limit", "3", "--quiet")
    small = (*small, "--view-workers", "0", "--output", world / "small")
    scores = world / "scores.csv"
    scores.write_text("confidence,correct\n0.9,1\n0.8,0\n0.7,1\n")
    return {
        "predict": ("predict", image, "--classes", "cat,dog", *model),
        "predict as JSON": ("predict", image, "--classes", "cat,dog", *model, "--json"),
        "methods": ("methods",),
        "models": ("models",),
        "datasets": ("datasets",),
        "datasets check": ("datasets", "check", f"folder:{world / 'images'}"),
        "score": ("score", scores),
        "eval": ("eval", *small),
        "export": ("export", run, "--output", world / "out"),
        "calibrate": ("calibrate", run, "--method", "tpt", "--dataset", "pets", "--seed", "0"),
        "cache show": ("cache", "show"),
        "cache prune": ("cache", "prune"),
        "cache verify": ("cache", "verify"),
        "compare": ("compare", run, "--resamples", "50"),
        "doctor": ("doctor", "--no-self-test"),
        "--help": ("--help",),
        "--version": ("--version",),
        "models --help": ("models", "--help"),
        "cache prune --help": ("cache", "prune", "--help"),
    }


def with_output(monkeypatch, stream, words):
    """Run a command that prints into a stream; return its exit code and what it says."""
    errors = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["dtpt", *map(str, words)])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", errors)
        try:
            run()
        except SystemExit as stop:
            return stop.code, errors.getvalue()
    return 0, errors.getvalue()


def test_broken_pipe_ends_every_command_with_141_and_without_a_word(
    world, five_method_run, monkeypatch
):
    for name, words in printing_commands(world, five_method_run).items():
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as stream:
            code, errors = with_output(monkeypatch, stream, words)
        assert (code, errors) == (141, ""), name


def without(descriptors, *words):
    """Run a command in a process in which some of its streams are closed."""
    close = "; ".join(f"os.close({number})" for number in descriptors)
    again = [sys.executable, "-c", PROGRAM, *words]
    code = f"import os; {close}; os.execv({sys.executable!r}, {again!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("words", [["--help"], ["methods"], ["compare", "x"]])
def test_closed_output_is_one_line_and_an_error(words):
    done = without([1], *words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_closed_error_stream_and_input_change_nothing():
    assert without([0, 2], "cache", "show").stdout
    done = without([0, 2], "cache", "shwo")
    assert (done.returncode, done.stdout) == (2, "")


def test_no_help_loses_words_in_a_narrow_terminal(dtpt, monkeypatch):
    for name in ("eval", "compare", "serve"):
        words = {}
        for columns in ("0", "40", "1000"):
            monkeypatch.setenv("COLUMNS", columns)
            text = dtpt(name, "--help").stdout
            assert "…" not in text
            words[columns] = sorted("".join(text.translate(FRAMES).split()))
        assert words["0"] == words["40"] == words["1000"], name


@pytest.fixture
def hostile_run(tmp_path):
    """A run whose model, data set, classes and images have names that a terminal would obey."""
    return write_run(
        tmp_path / "run",
        [dataset(EVIL, samples=30, family="other")],
        random_says(),
        model=EVIL,
        classes=[f"{EVIL}{number}" for number in range(3)],
        names=[f"{EVIL}/{number}" for number in range(30)],
        notes={EVIL: [EVIL]},
    )


def test_names_from_a_store_reach_no_terminal_page_or_spreadsheet_as_they_are(
    dtpt, hostile_run, tmp_path
):
    out = tmp_path / "out"
    for words in (
        ("compare", hostile_run, "--resamples", "50"),
        ("report", hostile_run, "--resamples", "50", "--output", out),
        ("methods", "--compare", hostile_run),
        ("calibrate", hostile_run, "--method", "tpt"),
        ("calibrate", hostile_run, "--method", "none"),
        ("export", hostile_run, "--output", out),
    ):
        done = dtpt(*words)
        assert done.returncode == (2 if "none" in words else 0), done.stderr
        assert not CONTROLS & set(done.stdout + done.stderr), words
        assert len(done.stderr.splitlines()) <= 1, words
    assert "<script>alert" not in (out / "index.html").read_text("utf-8")
    for name in ("card.md", "tables.md", "tables.tex", "tables.csv"):
        text = (out / name).read_text("utf-8")
        assert not CONTROLS & set(text), name
    assert "<script>" not in (out / "tables.md").read_text("utf-8")
    for line in csv.reader(io.StringIO((out / "tables.csv").read_text("utf-8"))):
        assert not [cell for cell in line if cell[:1] in ("=", "@")]
    results = json.loads((out / "results.json").read_text("utf-8"))
    assert list(results["results"]) == [EVIL]


def test_names_on_the_command_line_and_in_folders_are_escaped(dtpt, world, tmp_path):
    folder = tmp_path / "images\x1b[2J"
    for name in ("cat\x1b]0;x\x07", "dog"):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), name[:3] == "cat" and "red").save(folder / name / "a\x1bb.png")
    classes = tmp_path / "classes.txt"
    classes.write_text("cat\x1b[2J\ndog\n")
    model = ("--model", f"local-dir:{world / 'tiny'}", "--views", "2")
    image = next(folder.rglob("*.png"))
    for code, words in (
        (0, ("predict", image, "--classes-file", classes, *model)),
        (0, ("predict", image, "--classes-file", classes, *model, "--json")),
        (1, ("predict", classes, "--classes", "cat\x1b[2J,dog", *model)),
        (0, ("datasets", "check", f"folder:{folder}")),
        (0, ("eval", "--dataset", f"folder:{folder}", *model, "--output", tmp_path / "run\x1b")),
        (2, ("compare", tmp_path / "no\x1bwhere\nelse")),
        (2, ("methods\x1b[2J",)),
        (2, ("eval", "--dataset", "\x1b[2J\x9b")),
        (2, ("eval", "--dataset", "dtd", "--\x1b[2J", "1")),
        (2, ("eval", "--dataset", "dtd", "--limit", "\x1b[2J")),
        (2, ("predict", image, "--classes", "a,b", "--model", "\x1b[2J")),
        (2, ("predict", image, "--classes", "a,b", "--method", "\x1b[2J")),
    ):
        done = dtpt(*words)
        assert done.returncode == code, (words, done.stderr)
        assert not CONTROLS & set(done.stdout + done.stderr), words
        assert code != 2 or len(done.stderr.splitlines()) == 1, words
