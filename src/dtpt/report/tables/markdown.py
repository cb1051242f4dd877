"""Tables as Markdown."""

from collections.abc import Sequence

from dtpt.report.tables.printed_numbers import (
    FAILED,
    interval_text,
    legend,
    number,
    paper_text,
    spread_text,
)
from dtpt.report.tables.table import Column, Entry, Table

_SPECIAL = {c: f"\\{c}" for c in "|*`["} | {"<": "&lt;", ">": "&gt;", "\n": " "}


def escape_markdown(text: str) -> str:
    r"""Keep a foreign text from being read as Markdown or HTML.

    Example:
        >>> print(escape_markdown("a|b <i> *c*"))
        a\|b &lt;i&gt; \*c\*
    """
    return "".join(_SPECIAL.get(character, character) for character in text)


def markdown(table: Table) -> str:
    """Return a table with title, caption and notes as Markdown."""
    head = ["Method", *(column.title for column in table.columns)]
    lines = [f"### {escape_markdown(table.title)}", "", escape_markdown(table.caption), ""]
    lines += [_line(head), _line([":---"] + ["---:"] * len(table.columns))]
    for group, rows in table.grouped().items():
        if group:
            lines.append(_line([f"*{escape_markdown(group)}*"] + [""] * len(table.columns)))
        for row in rows:
            cells = [_cell(*pair) for pair in zip(row.entries, table.columns, strict=True)]
            lines.append(_line([escape_markdown(row.title), *cells]))
    lines += [_line([f"*{first}*", *others]) for first, *others in table.foot]
    notes = [*table.notes, *legend(table)]
    lines += ["", *(f"- {escape_markdown(note)}" for note in notes)] if notes else []
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(entry: Entry, column: Column) -> str:
    if entry.value is None:
        return f"— ({escape_markdown(entry.missing)})"
    text = number(entry.value, column)
    text = (f"**{text}**" if entry.separated else text) + FAILED * bool(entry.remark)
    text += spread_text(entry, column) + interval_text(entry, column)
    paper = paper_text(entry)
    return f"{text}<br>{paper}" if paper else text
