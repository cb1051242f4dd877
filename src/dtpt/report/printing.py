"""The tables of a report on a terminal."""

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from dtpt.report.layout import (
    FAILED,
    interval_text,
    is_outside,
    legend,
    number,
    paper_text,
    spread_text,
)
from dtpt.report.tables import Column, Entry, Table
from dtpt.report.writing import WrittenReport


def print_report(written: WrittenReport) -> None:
    """Print remarks, the tables of means, and where everything is."""
    console = new_console()
    for remark in written.content.gathered.remarks:
        console.print(f"[yellow]Note:[/] {escape(remark)}")
    for block in written.content.blocks:
        for table in block.means:
            print_table(table, console=console)
    for table in written.content.prompt_tables:
        print_table(table, console=console)
    console.print(f"Page:    {escape(str(written.page.resolve()))}", soft_wrap=True)
    console.print(f"Card:    {escape(str(written.card.resolve()))}", soft_wrap=True)
    console.print(f"Tables:  {escape(str(written.page.parent / 'tables.{md,tex,csv}'))}")
    console.print(f"Figures: {escape(str(written.page.parent / 'figures'))}")


def new_console() -> Console:
    """Return a console on standard output, wide enough for a table when it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def print_table(table: Table, *, console: Console | None = None) -> None:
    """Print one table; best bold, second best underlined."""
    shown = RichTable(title=escape(table.title), caption=escape(table.caption), title_style="bold")
    shown.add_column("Method")
    for column in table.columns:
        shown.add_column(escape(column.title), justify="right")
    group = ""
    for row in table.rows:
        if row.group and row.group != group:
            group = row.group
            shown.add_section()
            shown.add_row(f"[italic]{escape(group)}[/]")
        cells = [_cell(*pair) for pair in zip(row.entries, table.columns, strict=True)]
        shown.add_row(escape(row.title), *cells)
    target = console or new_console()
    target.print(shown)
    for note in [*table.notes, *legend(table)]:
        target.print(f"  {escape(note)}")


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
