"""Flags made from option classes: sources and their precedence, wrong values, help."""

from typing import Annotated

import pytest
from cyclopts import App, CycloptsError

from dtpt.cli.exits import explain
from dtpt.cli.flags import DEFAULT, AsJson, Config, flags, read_config, read_environment
from dtpt.cli.main import call
from dtpt.errors import OptionError, RunError, flag
from dtpt.options import EvalOptions, RunFolder


class SomeOptions(EvalOptions):
    limit: int | None = 9
    output: RunFolder = "somewhere"
    full: bool = False


def parse(*words):
    """Return the options that a command gets, and whether JSON is asked for."""
    app = App(
        result_action="return_value",
        default_parameter=DEFAULT,
        config=(read_environment, read_config),
    )

    @app.command
    def some(
        *,
        options: Annotated[SomeOptions, flags(SomeOptions, hide=["shard"])],
        config: Config = None,
        as_json: AsJson = False,
    ):
        return options, as_json

    return app(["some", *words], exit_on_error=False, print_error=False)


def message(*words):
    """Return the line that a wrong command line ends with."""
    with pytest.raises((CycloptsError, OptionError)) as refusal:
        parse(*words)
    return explain(refusal.value)


def test_given_options_are_kept_apart_from_defaults():
    options, as_json = parse("--views", "8", "--dataset", "dtd", "--full", "--json")
    assert options.given() == {"views": 8, "dataset": ("dtd",), "full": True}
    assert (options.limit, as_json) == (9, True)


def test_lists_are_separated_by_commas_or_repeated():
    options, _ = parse("--dataset", "dtd", "--seed", "0", "1", "--lambda", "2,3", "--seed", "5")
    assert (options.seed, options.lambda_) == ((0, 1, 5), (2.0, 3.0))


def test_brackets_and_braces_are_not_json():
    options, _ = parse("--dataset", "folder:[a]", "[b]", "--template", '{"a": 1} {}')
    assert (options.dataset, options.template) == (("folder:[a]", "[b]"), '{"a": 1} {}')


def test_switches_can_be_negated_where_they_are_on():
    options, _ = parse("--dataset", "dtd", "--no-cache", "--quiet")
    assert (options.cache, options.quiet, options.fresh) == (False, True, False)


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'dataset = "dtd"\nviews = 2\nseed = [0, 1]\nlambda = 3\nquiet = true\ncache = false\n'
        "[some]\nsteps = 3\nrho = 0.5\n[sweep]\nlimit = 5\n"
    )
    return path


def test_command_line_wins_over_environment_file_and_default(config, monkeypatch):
    for name, value in {"VIEWS": "4", "STEPS": "5", "DATA": "/data", "SEED": "4,5"}.items():
        monkeypatch.setenv(f"DTPT_{name}", value)
    options, _ = parse("--views", "8", "--config", str(config))
    assert (options.views, options.steps, options.rho, options.limit) == (8, 5, 0.5, 9)
    assert (options.seed, options.lambda_, options.dataset) == ((4, 5), (3.0,), ("dtd",))
    assert (options.quiet, options.cache, str(options.data_root)) == (True, False, "/data")


def test_folder_of_the_cache_is_not_the_option_cache(monkeypatch):
    monkeypatch.setenv("DTPT_CACHE", "/somewhere")
    assert parse("--dataset", "dtd")[0].cache is True


def test_variables_of_other_commands_do_not_set_parameters_of_functions(monkeypatch, tmp_path):
    monkeypatch.setenv("DTPT_FORMAT", "nonsense")
    with pytest.raises(RunError, match="no run"):
        call(["export", str(tmp_path)])


def test_hidden_options_are_unknown(monkeypatch):
    assert "--shard" in message("--dataset", "dtd", "--shard", "1/2")
    monkeypatch.setenv("DTPT_SHARD", "1/2")
    assert parse("--dataset", "dtd")[0].shard is None


WRONG = {
    ("--views", "0"): "1",
    ("--views", "-1"): "1",
    ("--views", "1000000"): "4096",
    ("--views", "many"): "whole number",
    ("--steps", "-1"): "0",
    ("--entropy", "x"): "'of-mean' or 'mean-of'",
    ("--seed", "18446744073709551616"): "9223372036854775807",
    ("--lambda", "-1"): "0",
    ("--rho", "0"): "greater than 0",
    ("--learning-rate", "nan"): "finite",
    ("--max-failures", "2"): "1",
    ("--limit", "some"): "whole number",
}


@pytest.mark.parametrize(("words", "expected"), WRONG.items(), ids=lambda v: " ".join(v)[:30])
def test_wrong_value_is_named_with_its_flag_and_what_is_expected(words, expected):
    text = message("--dataset", "dtd", *words)
    assert text.startswith(f"{words[0]}: ")
    assert repr(words[1]) in text or words[1] in text
    assert expected in text
    assert "\n" not in text


def test_wrong_value_is_named_with_its_variable_or_file(config, monkeypatch):
    config.write_text("views = 0\n")
    text = message("--dataset", "dtd", "--config", str(config))
    assert text.startswith("views in ")
    assert str(config) in text
    monkeypatch.setenv("DTPT_VIEWS", "none")
    assert message("--dataset", "dtd").startswith("DTPT_VIEWS: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("viewz = 8", "viewz"),
        ("views = ", "Invalid"),
        ("some = 1", "[some]"),
        ("views = " + 5000 * "[", "brackets"),
        ("views = " + 5000 * "{a=", "brackets"),
    ],
    ids=lambda value: value[:12],
)
def test_wrong_file_is_named(config, content, expected):
    config.write_text(content)
    text = message("--dataset", "dtd", "--config", str(config))
    assert str(config) in text
    assert expected in text


@pytest.mark.parametrize("path", ["nowhere.toml", "/dev/zero"])
def test_file_that_cannot_be_read_is_named(path):
    assert path in message("--dataset", "dtd", "--config", path)


def test_missing_option_is_named():
    assert "--dataset" in message()


def test_every_option_of_eval_is_in_its_help(dtpt, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = dtpt("eval", "--help")
    for name in EvalOptions.model_fields:
        assert f" {flag(name)} " in done.stdout, name
    assert "--no-cache" in done.stdout
    assert "[default: 64]" in done.stdout
    assert "--empty" not in done.stdout
