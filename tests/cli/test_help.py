"""Every command: examples that parse, required options marked, --json, and 80 columns."""

import json
import shlex
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dtpt.cli.main import COMMANDS, call, make_app
from dtpt.cli.output import show
from dtpt.runs.results import result_table

# Their output is not a result: a service with its own log, a shell's files, a line on stderr.
WITHOUT_JSON = {"serve", "--install-completion", "models remove"}
EXAMPLES = [line for command in COMMANDS.values() for line in command["examples"]]
APP = make_app()


def app_of(name):
    app = APP
    for word in name.split():
        app = app[word]
    return app


def help_of(words, capsys, monkeypatch, *, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    call([*words.split(), "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("line", dict.fromkeys(EXAMPLES))
def test_example_can_be_parsed(line):
    program, *words = shlex.split(line)
    assert program == "dtpt"
    assert len(line) <= 78  # with its frame it stays whole at 80 columns
    make_app(words).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_belong_to_their_command(name):
    assert COMMANDS[name]["examples"]
    for line in COMMANDS[name]["examples"]:
        assert line.startswith(f"dtpt {name}"), line


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_examples_whole_at_80_columns(name, capsys, monkeypatch):
    text = help_of(name, capsys, monkeypatch)
    lines = [line.strip() for line in text.splitlines()]
    for example in COMMANDS[name]["examples"]:
        assert example in lines
    assert max(len(line) for line in lines) <= 80
    assert "…" not in text


@pytest.mark.parametrize("name", [name for name in COMMANDS if "target" in COMMANDS[name]])
def test_results_can_be_printed_as_json(name):
    arguments = app_of(name).assemble_argument_collection()
    has_json = any("--json" in argument.names for argument in arguments)
    assert has_json == (name not in WITHOUT_JSON)


@pytest.mark.parametrize("name", ["eval", "sweep", "analyze", "analyze basis", "analyze views"])
def test_required_options_are_marked(name, capsys, monkeypatch):
    text = help_of(name, capsys, monkeypatch)
    described = text.partition("│ *  --dataset ")[2].partition("│    --")[0]
    assert "[required]" in described


LISTINGS = ("methods", "models", "datasets", "cache show", "doctor --no-self-test")


@pytest.mark.parametrize("words", LISTINGS)
def test_listing_fits_80_columns_and_names_are_whole(words, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("DTPT_CONFIG", str(tmp_path / "config"))
    call(words.split())
    text = capsys.readouterr().out
    for line in text.splitlines():
        is_path = "/" in line and len(line.split()) <= 2
        assert len(line.rstrip()) <= 80 or is_path, line
    assert "…" not in text
    if words in LISTINGS[:3]:
        call([*words.split(), "--json"])
        shown = {word for line in text.splitlines() for word in line.split()}
        names = {row["name"] for row in json.loads(capsys.readouterr().out)}
        assert {name for name in names if not name.endswith("-static")} <= shown


def test_table_of_a_run_is_whole_at_any_width(capsys, monkeypatch):
    from dtpt.metrics import metrics_with

    keys = [metric.key for metric in metrics_with("headline")]

    def result(dataset, label):
        return SimpleNamespace(
            dataset=dataset,
            label=label,
            selected_lambdas={},
            views=64.0,
            mean=dict.fromkeys(keys, 0.123456),
            std=dict.fromkeys(keys, 0.0123456),
            seeds={"0": SimpleNamespace(effective=120, expected=120)},
        )

    results = [
        result("openmoji-line/animals-nature", "o-tpt:printed-static@1e5"),
        result("folder:/somewhere/with/many/images", "tpt"),
    ]
    spec = SimpleNamespace(
        seeds=(0, 1),
        order=None,
        template="a photo of a {}.",
        model=SimpleNamespace(name="ViT-B-16/openai"),
        dataset=lambda _: SimpleNamespace(whole=1692),
    )
    for columns in ("80", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        show(result_table(SimpleNamespace(spec=spec), results))
        text = capsys.readouterr().out
        assert "…" not in text
        assert max(len(line) for line in text.splitlines()) <= int(columns)
        assert "o-tpt:printed-static@1e5" in text
        assert text.count("120 of 1,692") == 2
        assert text.count("12.35 ±1.23") == 6  # accuracy, gap, ECE above its floor


@pytest.mark.parametrize("words", ["--help", "methods", "models", "eval --help", "compare --help"])
def test_nothing_warns_and_nothing_heavy_is_loaded(words):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "importtime", "-m", "dtpt", *words.split()],
        capture_output=True,
        text=True,
        timeout=300,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert done.stdout
    assert not loaded & {"torch", "matplotlib", "pandas", "scipy"}
    assert "numpy" not in loaded or "--help" not in words
    assert [line for line in done.stderr.splitlines() if not line.startswith("import time:")] == []
