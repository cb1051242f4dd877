"""How commands print: tables that fit the terminal, text, JSON."""

import json
import os
import sys
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from dtpt.tables import Table, terminal

WIDTH_WITHOUT_TERMINAL = 120


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `dtpt.cli.main.run`, as for everything else that is printed."""
        raise BrokenPipeError


def show(*parts: Table | Text | str, framed: bool = True) -> None:
    """Print tables and styled texts that fit the terminal ($COLUMNS, else 120); strings as is."""
    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = _Console(width=None if is_known else WIDTH_WITHOUT_TERMINAL)
    for part in parts:
        if isinstance(part, str):
            print(part)
        elif isinstance(part, Table):
            console.print(terminal(part, framed=framed))
        else:
            console.print(part, highlight=False)


def print_json(document: object) -> None:
    """Print one JSON document; dataclasses and pydantic models become objects."""
    from pydantic_core import to_jsonable_python

    print(json.dumps(to_jsonable_python(document, by_alias=True), indent=2, ensure_ascii=False))


def emit(document: object, *parts: Table | Text | str, as_json: bool, framed: bool = True) -> None:
    """Print a result: the document with --json, else its tables and texts."""
    if as_json:
        print_json(document)
    else:
        show(*parts, framed=framed)
