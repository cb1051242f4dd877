"""How commands print: tables that fit the terminal, text, JSON."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.text import Text

from dtpt.files import printable
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
    print(json.dumps(_plain(document), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return printable(value) if isinstance(value, Path) else value
