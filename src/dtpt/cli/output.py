"""How commands print: tables that fit the terminal, text, JSON."""

import json

from rich.text import Text

from dtpt.tables import Table
from dtpt.terminal import Console, terminal


def show(*parts: Table | Text | str, framed: bool = True) -> None:
    """Print tables and styled texts that fit the terminal; strings as they are."""
    console = Console()
    for part in parts:
        if isinstance(part, str):
            print(part)
        else:
            shown = terminal(part, framed=framed) if isinstance(part, Table) else part
            console.print(shown, highlight=False, crop=False)


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
