"""How commands print: tables that fit, and broken pipes that end the command in order."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 120
FRAME = 3  # what a column takes beside its text


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `dtpt.cli.main.run`, as for everything else that is printed."""
        raise BrokenPipeError


def wide_console() -> Console:
    """Return a console for tables: as wide as the terminal or $COLUMNS, 120 in files and pipes."""
    is_known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return _Console(width=None if is_known else WIDTH_WITHOUT_TERMINAL)


def fits(heads: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> bool:
    """Tell whether a table can be printed within a width without breaking any cell.

    Example:
        >>> fits(["method", "ECE (%)"], [["d-tpt", "5.20"]], width=21)
        True
        >>> fits(["method", "ECE (%)"], [["d-tpt@100000", "5.20"]], width=21)
        False
    """
    return sum(_widths(heads, rows)) + FRAME * len(heads) + 1 <= width


def fitting_tables(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, title: str = ""
) -> Iterator[Table]:
    """Yield a table, or several with the first column each, so that no cell is broken or cut.

    Args:
        heads: Headings, which may be broken between words.
        rows: Texts, as many as headings; the first one is a name. What begins with a letter stands
            at the left of its column.
        width: Columns of the terminal.
        title: Above the first table.
    """
    widths = _widths(heads, rows)
    first = widths[0] + FRAME + 1
    places: list[int] = []
    for place in range(1, len(heads)):
        used = first + sum(widths[other] + FRAME for other in places)
        if places and used + widths[place] + FRAME > width:
            yield _table(heads, rows, places=places, title=title)
            places, title = [], ""
        places.append(place)
    yield _table(heads, rows, places=places, title=title)


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Return what each column needs: its longest cell, and the longest word of its heading."""
    return [
        max(cell_len(text) for text in (*head.split(), *(row[place] for row in rows), ""))
        for place, head in enumerate(heads)
    ]


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, places: Sequence[int], title: str
) -> Table:
    table = Table(title=escape(title) or None, title_justify="left")
    table.add_column(escape(heads[0]), no_wrap=True, overflow="ignore")
    widths = _widths(heads, rows)
    for place in places:
        is_text = any(row[place][:1].isalpha() for row in rows)
        justify: JustifyMethod = "left" if is_text else "right"
        table.add_column(
            escape(heads[place]), justify=justify, overflow="fold", min_width=widths[place]
        )
    for row in rows:
        table.add_row(escape(row[0]), *(escape(row[place]) for place in places))
    return table
