"""Commands beside broken plug-ins: never exit 0 with nothing done, never a traceback."""

import json
from types import SimpleNamespace

import pytest

from dtpt.cli.flags import offer_methods
from dtpt.methods import plugins
from dtpt.runs import open_run

SOUND = """
from dtpt.methods import regularised
METHOD = regularised("x", lambda text: text.square().mean(), lambda_=4.0)
"""
EXITS_LATER = """
import sys
from dtpt.methods import regularised

def leave(text):
    sys.exit(0)

METHOD = regularised("x", leave, lambda_=4.0)
"""
PLUGINS = {
    "exits-at-import": "import sys; sys.exit(0)",
    "exits-when-used": EXITS_LATER,
    "raises-at-import": "raise RuntimeError('no GPU\\x1b[2J here')",
    "sound-tpt": SOUND,
}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, code in PLUGINS.items():
        module = f"{name}_{tmp_path.name}".replace("-", "_")
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (tmp_path / f"{module}.py").write_text(code)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[dtpt.methods]\n{name} = {module}:METHOD\n")


@pytest.fixture
def evaluate(dtpt, world, tmp_path):
    def run(method):
        words = ("--model", f"local-dir:{world / 'tiny'}", "--views", "2", "--view-workers", "0")
        data = ("--dataset", f"folder:{world / 'images'}", "--limit", "2", "--quiet")
        return dtpt("eval", "--method", method, *words, *data, "--output", tmp_path / "run")

    return run


def test_list_has_all_others_and_names_each_broken_one_in_a_line(dtpt, installed):
    done = dtpt("methods", "--json")
    names = {row["name"] for row in json.loads(done.stdout)}
    assert {"tpt", "sound-tpt", "sound-tpt-static", "exits-when-used"} <= names
    assert not {"exits-at-import", "raises-at-import"} & names
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 2
    assert "exits-at-import" in done.stderr
    assert "no GPU\\u001b[2J here" in done.stderr


def test_methods_of_the_table_run_beside_broken_plugins(installed, evaluate, tmp_path):
    assert evaluate("tpt,d-tpt-static,sound-tpt").returncode == 0
    with open_run(tmp_path / "run") as run:
        assert len(run.cells) == 3


@pytest.mark.parametrize("name", ["exits-at-import", "exits-when-used", "raises-at-import"])
def test_broken_plugin_never_ends_a_command_with_0(installed, evaluate, name):
    done = evaluate(name)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert name == "exits-when-used" or name in done.stderr


def test_completion_imports_no_plugin(installed, monkeypatch):
    def fail(_point):
        raise AssertionError

    monkeypatch.setattr(plugins, "_load", fail)
    assert "tpt,sound-tpt" in offer_methods(SimpleNamespace(incomplete="tpt,s"))
