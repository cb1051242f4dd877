"""Tables for a terminal: nothing that one must copy is cut, at 80 columns either.

A table that is too wide is broken into several, each with the first column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from dtpt.report.tables.printed_numbers import (
    FAILED,
    interval_text,
    is_outside,
    legend,
    number,
    paper_text,
    spread_text,
)
from dtpt.report.tables.table import Column, Entry, Table
from dtpt.report.verdict import Verdict

FIRST_COLUMN = 28  # names of methods are broken between words above this
FRAME = 3  # what a column takes beside its text


def terminal_verdict(verdict: Verdict) -> Text:
    """Return a verdict as a paragraph."""
    return Text.assemble((f"\n{verdict.where}. ", "bold"), " ".join(verdict.sentences))


@dataclass(frozen=True)
class TerminalTable:
    """A table with its title, caption and notes, as wide as the terminal; see `terminal_table`."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Print the parts below each other."""
        table = self.table
        first = _first_width(table)
        for places in _parts(table, options.max_width - first - FRAME - 1):
            yield _part(table, places, first=first, is_first=places[0] == 0)
        yield Text(table.caption, style="dim")
        for note in [*table.notes, *legend(table)]:
            yield Text(f"  {note}")


def terminal_table(table: Table) -> TerminalTable:
    """Return a table for a terminal; bold as its legend says."""
    return TerminalTable(table)


def _first_width(table: Table) -> int:
    """Return the width of the names: whole ones where they are short, never broken in a word."""
    names = [row.title for row in table.rows] + [line[0] for line in table.foot]
    longest = max((len(name) for name in names), default=6)
    words = max((len(word) for name in names for word in name.split()), default=6)
    return max(words, min(longest, FIRST_COLUMN), len("Method"))


def _parts(table: Table, room: int) -> Iterator[list[int]]:
    """Yield the places of the columns that fit beside each other."""
    places: list[int] = []
    used = 0
    for place in range(len(table.columns)):
        width = _width(table, place) + FRAME
        if places and used + width > room:
            yield places
            places, used = [], 0
        places.append(place)
        used += width
    yield places


def _width(table: Table, place: int) -> int:
    """Return the width that a column needs; its heading may be broken between words."""
    column = table.columns[place]
    cells = [Text.from_markup(_cell(row.entries[place], column)).plain for row in table.rows]
    lines = [line for cell in cells for line in cell.split("\n")]
    lines = [line for line in lines if not line.startswith("incomplete")]
    words = [*column.title.split(), *(line[place + 1] for line in table.foot)]
    return max((len(text) for text in (*lines, *words)), default=0)


def _part(table: Table, places: Sequence[int], *, first: int, is_first: bool) -> RichTable:
    title = escape(table.title) + ("" if is_first else " (continued)")
    shown = RichTable(title=title, title_style="bold", title_justify="left")
    shown.add_column("Method", overflow="fold", width=first)
    for place in places:
        shown.add_column(escape(table.columns[place].title), justify="right", overflow="fold")
    for group, rows in table.grouped().items():
        shown.add_section()
        if group:
            shown.add_row(f"[italic]{escape(group)}[/]")
        for row in rows:
            cells = [_cell(row.entries[place], table.columns[place]) for place in places]
            shown.add_row(escape(row.title), *cells)
    for name, *texts in table.foot:
        if any(texts[place] for place in places):
            shown.add_section()
            shown.add_row(escape(name), *(texts[place] for place in places), style="dim")
    return shown


def _cell(entry: Entry, column: Column) -> str:
    if entry.value is None:
        return f"[yellow]{escape(entry.missing)}[/]"
    text = escape(number(entry.value, column))
    text = f"[bold]{text}[/]" if entry.separated else text
    text += FAILED * bool(entry.remark) + escape(spread_text(entry, column))
    interval = interval_text(entry, column).strip()
    text += f"\n[dim]{escape(interval)}[/]" if interval else ""
    paper = escape(paper_text(entry))
    if not paper:
        return text
    return f"{text}\n[red]{paper}[/]" if is_outside(entry) else f"{text}\n[dim]{paper}[/]"
