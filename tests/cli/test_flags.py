"""Flags made from options: names, help, what was given, and wrong values in one line."""

import subprocess
import sys

import pytest
from cyclopts import App

from dtpt.cli.eval import EvalFlags
from dtpt.cli.flags import AsJson, Flags, Switch, flags_of
from dtpt.errors import OptionError
from dtpt.options import EvalOptions, flag


@flags_of(EvalOptions, first=("seed",), leave_out=("shard",), defaults={"limit": 9, "steps": 2})
class SomeFlags(Flags):
    """Flags of a command of its own."""

    full: Switch = None


def parse(*words):
    """Return the flags and the switch that a command gets."""
    app = App(result_action="return_value")

    @app.default
    def command(*, flags: SomeFlags | None = None, as_json: AsJson = False):
        return flags or SomeFlags(), as_json

    return app(words, exit_on_error=False, print_error=False)


def test_what_was_not_given_stays_apart_from_defaults():
    flags, as_json = parse("--views", "8", "--full")
    assert flags.given(EvalOptions.model_fields) == {"views": "8"}
    assert flags.full
    assert not as_json
    assert parse()[0].given(EvalOptions.model_fields) == {}


def test_lists_switches_and_their_negation_are_understood():
    flags, as_json = parse(
        *("--seed", "0", "1", "--lambda", "2,3", "--no-cache", "--quiet", "--dataset", "dtd"),
        "--json",
    )
    options = flags.options(EvalOptions)
    assert (options.seed, options.lambda_) == ((0, 1), (2.0, 3.0))
    assert (options.cache, options.quiet, options.fresh) == (False, True, False)
    assert as_json


def test_command_line_wins_over_environment_file_and_default(tmp_path, monkeypatch):
    config = tmp_path / "run.toml"
    config.write_text("views = 2\nsteps = 3\nrho = 0.5\n")
    monkeypatch.setenv("DTPT_VIEWS", "4")
    monkeypatch.setenv("DTPT_STEPS", "5")
    flags, _ = parse("--dataset", "dtd", "--views", "8", "--config", str(config))
    options = flags.options(EvalOptions, defaults={"rho": 0.7})
    assert (options.views, options.steps, options.rho, options.limit) == (8, 5, 0.5, 9)


def test_options_that_a_command_decides_itself_are_no_flags():
    assert not hasattr(SomeFlags(), "shard")
    assert hasattr(EvalFlags(), "shard")


def test_every_option_of_eval_has_a_flag_with_a_description(dtpt):
    done = dtpt("eval", "--help", env={"COLUMNS": "200"})
    for name, field in EvalOptions.model_fields.items():
        shown = "--no-cache" if name == "cache" else flag(name)
        assert f" {shown} " in done.stdout, name
        assert field.description, name
    assert "[default: 64]" in done.stdout
    assert "--empty" not in done.stdout
    assert "Usage: dtpt eval [OPTIONS]\n" in done.stdout  # and no positional parameters


@pytest.mark.parametrize("command", ["eval", "sweep"])
def test_help_loads_neither_torch_nor_numpy(command):
    code = f"""
import sys
from dtpt.cli.main import app
try:
    app(["{command}", "--help"])
except SystemExit:
    pass
assert "torch" not in sys.modules
assert "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True)


WRONG = {
    ("--views", "0"): "--views is '0'; expected a whole number from 1 to 4096.",
    ("--views", "-1"): "--views is '-1'; expected a whole number from 1 to 4096.",
    ("--views", "1000000"): "--views is '1000000'; expected a whole number from 1 to 4096.",
    ("--views", "many"): "--views is 'many'; expected a whole number from 1 to 4096.",
    ("--steps", "-1"): "--steps is '-1'; expected a whole number from 0 to 10000.",
    ("--entropy", "x"): "--entropy is 'x'; expected of-mean or mean-of.",
    ("--seed", "18446744073709551616"): (
        "--seed is '18446744073709551616'; expected a whole number from 0 to 9223372036854775807, "
        "or several, comma-separated."
    ),
    ("--lambda", "-1"): (
        "--lambda is '-1'; expected a number, at least 0, or several, comma-separated."
    ),
    ("--rho", "0"): "--rho is '0'; expected a number above 0 up to 1.",
    ("--learning-rate", "nan"): "--learning-rate is 'nan'; expected a number above 0.",
    ("--max-failures", "2"): "--max-failures is '2'; expected a number from 0 to 1.",
    ("--limit", "0"): "--limit is '0'; expected a whole number, at least 1.",
}


@pytest.mark.parametrize(("words", "message"), WRONG.items(), ids=lambda v: " ".join(v)[:30])
def test_wrong_values_are_named_with_what_is_expected(words, message):
    flags, _ = parse("--dataset", "dtd", *words)
    with pytest.raises(OptionError) as refusal:
        flags.options(EvalOptions)
    assert str(refusal.value) == message
