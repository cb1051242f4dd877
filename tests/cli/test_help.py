"""Every command: examples that parse, required options marked, --json, and 80 columns."""

import json
import shlex
import subprocess
import sys

import pytest
from rich.console import Console

from dtpt.cli.examples import EXAMPLES
from dtpt.cli.main import COMMANDS, make_app

# Their output is no result: a service with its own log, a shell's files, a sentence on stderr.
WITHOUT_JSON = {"serve", "--install-completion", "models remove"}


def commands(app, *names):
    """Yield the name and the application of every command below one."""
    for name in app:
        if not name.startswith("-") or name in COMMANDS:
            yield " ".join((*names, name)), app[name]
            yield from commands(app[name], *names, name)


ALL = dict(commands(make_app()))


def help_of(words, capsys, monkeypatch, *, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    make_app(words.split()[0])([*words.split(), "--help"], exit_on_error=False, print_error=False)
    return capsys.readouterr().out


def test_every_command_has_examples_and_no_other_has():
    assert set(EXAMPLES) == set(ALL)


@pytest.mark.parametrize(
    "line", dict.fromkeys(line for lines in EXAMPLES.values() for line in lines)
)
def test_example_can_be_parsed(line):
    program, *words = shlex.split(line)
    assert program == "dtpt"
    assert len(line) <= 78  # with its frame it stays whole at 80 columns
    make_app(words[0]).parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_belong_to_their_command(name):
    for line in EXAMPLES[name]:
        assert line.startswith(f"dtpt {name}"), line


@pytest.mark.parametrize("name", ALL)
def test_help_shows_examples_whole_at_80_columns(name, capsys, monkeypatch):
    text = help_of(name, capsys, monkeypatch)
    lines = [line.strip() for line in text.splitlines()]
    for example in EXAMPLES[name]:
        assert example in lines
    assert max(len(line) for line in lines) <= 80
    assert "…" not in text


def has_option(app, name):
    return any(name in argument.names for argument in app.assemble_argument_collection())


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].default_command])
def test_results_can_be_printed_as_json(name):
    assert has_option(ALL[name], "--json") == (name not in WITHOUT_JSON)


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].default_command])
def test_json_is_described_alike_and_has_no_negation(name, capsys, monkeypatch):
    text = help_of(name, capsys, monkeypatch, columns=200)
    assert "--no-json" not in text
    assert "[default: False]" not in text


@pytest.mark.parametrize("name", ["eval", "sweep", "analyze", "analyze basis", "analyze views"])
def test_required_options_say_so(name, capsys, monkeypatch):
    text = help_of(name, capsys, monkeypatch)
    described = text.partition("│ --dataset ")[2].partition("│ --")[0]
    assert "[required]" in described


LISTINGS = ("methods", "models", "datasets", "cache show", "doctor --no-self-test")


@pytest.mark.parametrize("words", LISTINGS)
def test_listing_fits_80_columns_and_names_are_whole(words, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("DTPT_CONFIG", str(tmp_path / "config"))
    app = make_app(words.split()[0])
    app(words.split(), exit_on_error=False, print_error=False)
    text = capsys.readouterr().out
    for line in text.splitlines():
        is_path = "/" in line and len(line.split()) <= 2
        assert len(line.rstrip()) <= 80 or is_path, line
    assert "…" not in text
    if words in LISTINGS[:3]:
        app([*words.split(), "--json"], exit_on_error=False, print_error=False)
        shown = {word for line in text.splitlines() for word in line.split()}
        names = {row["name"] for row in json.loads(capsys.readouterr().out)}
        assert {name for name in names if not name.endswith("-static")} <= shown


def test_long_names_are_whole_in_the_table_of_a_run(capsys, monkeypatch):
    from types import SimpleNamespace

    from dtpt.cli.eval import print_table
    from dtpt.metrics import METRICS

    def result(dataset, label):
        counts = SimpleNamespace(effective=120, expected=120)
        numbers = dict.fromkeys(METRICS, 0.123456)
        return SimpleNamespace(
            dataset=dataset, label=label, mean=numbers, std=numbers, seeds={0: counts}, weights={}
        )

    results = [
        result("openmoji-line/animals-nature", "o-tpt:printed-static@100000"),
        result("folder:/somewhere/in/a/very/deep/folder/with/many/pictures/of/mine/today", "tpt"),
    ]
    spec = SimpleNamespace(
        seeds=(0, 1),
        template="a photo of a {}.",
        model=SimpleNamespace(name="ViT-B-16/openai"),
        dataset=lambda _: SimpleNamespace(whole=1692),
    )
    for columns in ("80", "400"):
        monkeypatch.setenv("COLUMNS", columns)
        print_table(SimpleNamespace(spec=spec), results)
        text = capsys.readouterr().out
        assert "…" not in text
        assert max(len(line) for line in text.splitlines()) <= int(columns)
        for found in results:
            assert found.dataset in text
            assert found.label in text
        assert text.count("120 of 1,692") == 2
        assert text.count("±12.35") >= 8


def test_labels_and_numbers_are_whole_in_the_tables_of_an_analysis():
    from dtpt.cli.analyze_tables import _table

    heads = ["method", *(f"a long heading {number}" for number in range(8))]
    rows = [["o-tpt:printed-static@100000", *(["-12.345"] * 8)]]
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(_table("title", heads, rows=rows))
    text = console.export_text()
    assert "…" not in text
    assert "o-tpt:printed-static@100000" in text


@pytest.mark.parametrize("words", ["--help", "methods", "models", "eval --help"])
def test_nothing_warns_and_nothing_heavy_is_loaded(words):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "importtime", "-m", "dtpt", *words.split()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert done.stdout
    assert not loaded & {"torch", "matplotlib", "pandas"}
    assert [line for line in done.stderr.splitlines() if not line.startswith("import time:")] == []
