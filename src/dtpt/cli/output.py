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


def wide_console() -> Console:
    """Return a console as wide as the terminal or $COLUMNS, 120 in files and pipes."""
    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return _Console(width=None if is_known else WIDTH_WITHOUT_TERMINAL)


def show(*parts: Table | Text | str, framed: bool = True) -> None:
    """Print tables, and texts wrapped between words."""
    console = wide_console()
    for part in parts:
        if isinstance(part, Table):
            console.print(terminal(part, framed=framed))
        else:
            console.print(part, markup=False, highlight=False)


def print_json(document: object) -> None:
    """Print what `--json` promises: one JSON document, dataclasses and models as objects."""
    from pydantic_core import to_jsonable_python

    print(json.dumps(to_jsonable_python(document, by_alias=True), indent=2, ensure_ascii=False))
