"""Tables for a terminal: nothing that one must copy is cut, at 80 columns either."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
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


def terminal_table(table: Table) -> RenderableType:
    """Return a table with its title, caption and notes; best bold, second best underlined."""
    shown = RichTable(title=escape(table.title), title_style="bold", title_justify="left")
    shown.add_column("Method", overflow="fold", min_width=_longest_word(table))
    for column in table.columns:
        shown.add_column(escape(column.title), justify="right", overflow="fold")
    for group, rows in table.grouped().items():
        shown.add_section()
        if group:
            shown.add_row(f"[italic]{escape(group)}[/]")
        for row in rows:
            cells = [_cell(*pair) for pair in zip(row.entries, table.columns, strict=True)]
            shown.add_row(escape(row.title), *cells)
    return Group(shown, *_words_below(table))


def _longest_word(table: Table) -> int:
    """Return the width below which a method's name would be broken inside a word."""
    return max((len(word) for row in table.rows for word in row.title.split()), default=6)


def _words_below(table: Table) -> Iterator[Text]:
    yield Text(table.caption, style="dim")
    for note in [*table.notes, *legend(table)]:
        yield Text(f"  {note}")


def _cell(entry: Entry, column: Column) -> str:
    if entry.value is None:
        return f"[yellow]{escape(entry.missing)}[/]"
    style = {1: "bold", 2: "underline"}.get(entry.rank)
    text = escape(number(entry.value, column))
    text = f"[{style}]{text}[/]" if style else text
    text += FAILED * bool(entry.remark)
    text += escape(spread_text(entry, column) + interval_text(entry, column))
    paper = escape(paper_text(entry))
    if not paper:
        return text
    return f"{text}\n[red]{paper}[/]" if is_outside(entry) else f"{text}\n[dim]{paper}[/]"
