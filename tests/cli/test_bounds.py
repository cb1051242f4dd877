"""Numbers on the command line: every option of every command has bounds, and says them."""

import re

import pytest
from cyclopts import CycloptsError
from handmade import dataset, random_says, write_run
from test_help import APP, app_of

from dtpt.cli.exits import explain
from dtpt.cli.main import COMMANDS
from dtpt.errors import DtptError
from dtpt.metrics.validation import MOST_BINS, MOST_RESAMPLES
from dtpt.options import LARGEST_SEED

STUDIES = ("basis", "controls", "streams", "views")
REQUIRED = {
    "predict": ("x.png", "--classes", "a,b"),
    "score": ("x.csv",),
    "calibrate": ("runs/x", "--method", "tpt"),
    "reproduce": ("table1",),
    "report": ("runs/x",),
    "compare": ("runs/x",),
    "models add": ("x", "x.pt"),
    **dict.fromkeys(
        ("eval", "sweep", "analyze", *(f"analyze {name}" for name in STUDIES)),
        ("--dataset", "dtd"),
    ),
}
WRONG = ("-1", "nan", "inf", "-inf", "1.5x", "１0²", "9" * 5000)
# What is a number of anything, or as large as memory and disk allow.
WITHOUT_MAXIMUM = {"--seed", "--limit", "--lambda", "--lambdas", "--learning-rate", "--rates"}
WITHOUT_MAXIMUM |= {"--weight-decay", "--max-body-bytes", "--max-pixels", "--cache-mb"}
WITHOUT_MAXIMUM |= {"--order-seeds"}
AT_LEAST_TWO = {"--order-seeds"}


def numbers():
    """Return command and flag of everything that takes numbers, alike ones once."""
    found = {}
    for name, command in COMMANDS.items():
        if "target" in command and not name.startswith("-"):
            for argument in app_of(name).assemble_argument_collection():
                if argument.parse and re.search(r"\b(int|float)\b", str(argument.hint)):
                    kind = str(argument.field_info.annotation)
                    found.setdefault((argument.name, kind), (name, argument.name))
    return list(found.values())


def refusal(name, *words):
    """Return the line with which a command line is refused; "" if it is not."""
    given = [*name.split(), *REQUIRED.get(name, ()), *words]
    try:
        APP.parse_args(given, exit_on_error=False, print_error=False)
    except (CycloptsError, DtptError) as error:
        return explain(error)
    return ""


@pytest.mark.parametrize(("name", "flag"), numbers())
def test_every_number_of_every_command_has_bounds(name, flag):
    for value in WRONG:
        text = refusal(name, flag, value)
        assert flag in text, value[:9]
        assert len(text.splitlines()) == 1
        assert len(text) < 300
    large = f"0,{10**18}" if flag in AT_LEAST_TWO else str(10**18)
    assert (refusal(name, flag, large) == "") == (flag in WITHOUT_MAXIMUM)
    assert len(refusal(name, flag, "0").splitlines()) <= 1
    assert len(refusal(name, flag, "").splitlines()) <= 1


def test_commands_without_these_numbers_are_accepted():
    assert [name for name in REQUIRED if refusal(name)] == []


def test_bounds_are_those_of_the_library():
    for flag, most in (("--bins", MOST_BINS), ("--bootstrap", MOST_RESAMPLES)):
        assert refusal("score", flag, str(most)) == ""
        assert str(most) in refusal("score", flag, str(most + 1))
    assert str(MOST_RESAMPLES) in refusal("compare", "--resamples", str(MOST_RESAMPLES + 1))


@pytest.mark.parametrize("value", ["1.5", "1e3", "2.0"])
def test_fractions_are_not_rounded(value):
    for name, flag in (("compare", "--seed"), ("score", "--bootstrap"), ("calibrate", "--check")):
        assert "whole number" in refusal(name, flag, value)


def test_largest_numbers_that_are_accepted_work(dtpt, tmp_path):
    run = write_run(tmp_path, [dataset(samples=60)], random_says())
    scores = tmp_path / "scores.csv"
    scores.write_text("confidence,correct\n0.9,1\n0.8,0\n0.7,1\n")
    few = ("--resamples", "20")
    for words in (
        ("compare", run, "--seed", LARGEST_SEED, *few),
        ("compare", run, "--level", "0.999999999", *few),
        ("compare", run, "--level", "1e-3", "--resamples", "1"),
        ("score", scores, "--seed", LARGEST_SEED, "--bootstrap", "2", "--bins", MOST_BINS),
        ("score", scores, "--aece-bins", MOST_BINS, "--bins", "1", "--bootstrap", "0"),
        ("calibrate", run, "--method", "tpt", "--check", "1"),
    ):
        done = dtpt(*words)
        assert done.returncode == 0, (words, done.stderr)
        assert done.stderr == ""
