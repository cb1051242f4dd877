"""The terminal: where all printed text leaves, and tables that fit.

Names of classes, folders, models and runs come from files. A terminal obeys the control characters
in what it prints, so they are escaped here, whoever prints: `guarded` does it for both output
streams, `Console` for styled text, whose own sequences must pass.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TextIO, cast

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from dtpt.files import printable
from dtpt.tables import Cell, Table

WIDTH_WITHOUT_TERMINAL = 120
USUAL_WIDTH = 80  # where $COLUMNS makes no sense
WIDTHS = range(40, 1001)  # that make sense
WRAPPED_WIDTH = 28  # names and texts wider than this are broken between words
FRAME = 3  # characters that a framed column takes beside its text; without a frame it is 1
# newlines of texts; bytes that are not UTF-8, which the streams write so that JSON stays valid
_KEPT = "\n\t" + "".join(map(chr, range(0xD800, 0xE000)))


class _Guarded:
    """An output stream that escapes control characters in all that is written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def rich_proxied_file(self) -> TextIO:
        """What rich writes to instead: its own sequences must reach the terminal."""
        return self._stream

    def write(self, text: str) -> int:
        start = "\r" if text.startswith("\r") else ""  # of a line that shows progress
        self._stream.write(start + printable(text[len(start) :], keep=_KEPT))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def guarded() -> Iterator[None]:
    """Escape control characters in all that this process prints meanwhile."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Guarded(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class Console(RichConsole):
    """Rich's console for output or errors: as wide as the terminal, else $COLUMNS, else 120.

    Control characters in what it prints are escaped.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        usual = USUAL_WIDTH if "COLUMNS" in os.environ else WIDTH_WITHOUT_TERMINAL
        width, height = shutil.get_terminal_size((usual, 25))
        super().__init__(
            stderr=stderr, width=width if width in WIDTHS else USUAL_WIDTH, height=height
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Escape text, but not what rich adds for colours and the cursor."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text, keep=_KEPT), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Leave it to `dtpt.cli.main.run`, as for everything else that is printed."""
        raise BrokenPipeError


@dataclass(frozen=True)
class TerminalTable:
    """A table for rich's console: no name or number is cut, however narrow the terminal.

    A table that is too wide is broken into several, each with the first column.
    """

    table: Table
    framed: bool = True

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        """Print the parts below each other, then caption and notes."""
        table, frame = _escaped(self.table), FRAME if self.framed else 1
        names = [row.title for row in table.rows] + [line[0] for line in table.foot]
        groups = min(_wrapped_width([row.group for row in table.rows]), WRAPPED_WIDTH)
        first = max(_wrapped_width(names), groups, len(table.heading))
        for part in _parts(table, options.max_width - first - frame - 1, frame=frame):
            if table.title:
                yield Text(table.title + " (continued)" * (0 not in part), style="bold")
            # where one column needs more, the table is wider than the terminal: nothing is cut
            width = (
                first + sum(part.values()) + frame * (len(part) + 1) + (1 if self.framed else -1)
            )
            wide = options.update(width=max(width, options.max_width))
            shown = _rich_table(table, part, first=first, framed=self.framed)
            yield from console.render(shown, wide)
        if table.caption:
            yield Text(table.caption, style="dim")
        yield from (Text(f"  {note}") for note in table.notes)


def terminal(table: Table, *, framed: bool = True) -> TerminalTable:
    """Return a table that rich's console prints; `framed` draws lines between the cells."""
    return TerminalTable(table, framed)


def _escaped(table: Table) -> Table:
    """Escape what can be names before widths are computed."""
    rows = [
        replace(
            row,
            title=printable(row.title),
            group=printable(row.group),
            cells=tuple(replace(cell, text=printable(cell.text)) for cell in row.cells),
        )
        for row in table.rows
    ]
    columns = (replace(column, title=printable(column.title)) for column in table.columns)
    title = printable(table.title)
    return replace(table, title=title, columns=tuple(columns), rows=tuple(rows))


def _wrapped_width(texts: Iterable[str]) -> int:
    """Return the width of texts that may be broken between words, but not inside one."""
    lines = list(texts)
    words = max((cell_len(word) for line in lines for word in line.split()), default=0)
    return max(words, min(max(map(cell_len, lines), default=0), WRAPPED_WIDTH))


def _parts(table: Table, room: int, *, frame: int) -> Iterator[dict[int, int]]:
    """Yield the columns that fit beside each other: their indices and least widths."""
    part: dict[int, int] = {}
    for index in range(len(table.columns)):
        width = _column_width(table, index)
        if table.columns[index].is_text:  # a word that is too long, such as a path, is broken
            width = min(width, max(room - frame, WRAPPED_WIDTH))
        if part and sum(part.values()) + width + frame * (len(part) + 1) > room:
            yield part
            part = {}
        part[index] = width
    titled = {i: max(width, len(table.columns[i].title)) for i, width in part.items()}
    # with room for all titles in one line they are not broken
    yield titled if sum(titled.values()) + frame * len(part) <= room else part


def _column_width(table: Table, index: int) -> int:
    """Return the width that a column needs; its heading may be broken between words."""
    column = table.columns[index]
    cells = [row.cells[index] for row in table.rows if not row.cells[index].is_missing]
    lines = [line for cell in cells for line in _terminal_cell(cell).plain.split("\n")]
    words = ["", *column.title.split(), *(line[index + 1] for line in table.foot)]
    widest = max(map(cell_len, words))
    return max(
        widest, _wrapped_width(lines) if column.is_text else max(map(cell_len, ["", *lines]))
    )


def _rich_table(table: Table, part: Mapping[int, int], *, first: int, framed: bool) -> RichTable:
    shown = RichTable()
    if not framed:
        shown.box, shown.pad_edge, shown.padding = None, False, (0, 1, 0, 0)
    shown.add_column(escape(table.heading), overflow="fold", width=first)
    for index, width in part.items():
        column = table.columns[index]
        shown.add_column(
            escape(column.title),
            justify="left" if column.is_text else "right",
            overflow="fold",
            min_width=width,
            width=None if column.is_text else width,  # rich would shrink all columns alike
        )
    for group, rows in table.grouped().items():
        shown.add_section()
        if group:
            shown.add_row(f"[italic]{escape(group)}[/]")
        for row in rows:
            shown.add_row(escape(row.title), *(_terminal_cell(row.cells[i]) for i in part))
    for name, *texts in table.foot:
        if any(texts[index] for index in part):
            shown.add_section()
            shown.add_row(escape(name), *(texts[index] for index in part), style="dim")
    return shown


def _terminal_cell(cell: Cell) -> Text:
    if cell.is_missing:
        return Text(cell.text, style="yellow")
    spread = f" {cell.spread}" if cell.spread else ""
    shown = Text.assemble((cell.text, "bold" if cell.bold else ""), cell.mark, spread)
    if cell.interval:
        shown.append(f"\n{cell.interval}", style="dim")
    if cell.compared:
        shown.append(f"\n{cell.compared}", style="red" if cell.is_outside else "dim")
    return shown
