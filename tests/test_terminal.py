"""Printed text: control characters are escaped, styles pass, widths make sense."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from rich.text import Text

from dtpt.tables import text_table
from dtpt.terminal import Console, guarded, terminal

EVIL = "cat\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    """Return what a function prints on a terminal."""
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")

    def printed(function):
        screen = Terminal()
        with redirect_stdout(screen), redirect_stderr(screen):
            with guarded():
                function()
            assert sys.stdout is screen
        return screen.getvalue()

    return printed


def test_control_characters_in_what_is_printed_are_escaped(on_terminal):
    def say():
        print(EVIL, "two\tlines\n")
        print(EVIL, file=sys.stderr)
        sys.stderr.writelines([EVIL])

    shown = on_terminal(say)
    assert shown.count("cat\\u001b]0;owned\\u0007") == 3
    assert set(shown) & {"\x1b", "\x07", "\x9b", "\r", "\u202e"} == set()
    assert "two\tlines\n" in shown


def test_json_keeps_its_content(on_terminal):
    document = [EVIL, "\udcff", "é\n"]
    shown = on_terminal(lambda: print(json.dumps(document, ensure_ascii=False)))
    assert json.loads(shown) == document


def test_line_of_progress_may_begin_anew(on_terminal):
    assert on_terminal(lambda: print("\r1 of 2", end="")) == "\r1 of 2"


def test_styles_reach_the_terminal_and_sequences_of_data_do_not(on_terminal):
    table = text_table(EVIL, (EVIL, "n"), rows=[(EVIL, "1")])

    def say():
        console = Console()
        console.print(Text(EVIL, style="bold"), crop=False)
        console.print(terminal(table), crop=False)
        console.print(EVIL, markup=False, highlight=False, crop=False)

    shown = on_terminal(say)
    assert "\x1b[1m" in shown  # bold
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert shown.count("\\u001b[2J") == 5
    frame = [line for line in shown.splitlines() if line.startswith(("┃", "│"))]
    assert len({Text.from_ansi(line).cell_len for line in frame}) == 1  # it still fits


@pytest.mark.parametrize("columns", ["0", "-5", "20", "³", "99999999999", "x", ""])
def test_width_without_sense_is_80(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert Console().width == 80
    monkeypatch.setenv("LINES", "³")
    assert Console(stderr=True).height > 0


def test_width_is_that_of_the_variable_else_120(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert Console().width == 100
    monkeypatch.delenv("COLUMNS")
    assert Console().width == 120
