"""Pieces of HTML; every text that comes from outside is escaped here."""

from collections.abc import Iterable, Sequence
from html import escape

from dtpt.report.drawing import Drawing
from dtpt.report.figures import inline_svg, svg_size
from dtpt.report.layout import (
    FAILED,
    interval_text,
    is_outside,
    legend,
    number,
    paper_text,
    spread_text,
)
from dtpt.report.mistakes import Mistake
from dtpt.report.names import set_title
from dtpt.report.tables import Column, Entry, Row, Table

OWN = "d-tpt"  # the paper's method, tinted in tables


def table_html(table: Table) -> str:
    """Return one table with title, caption, sortable headings and notes."""
    heads = "".join(_head(column) for column in table.columns)
    many = " many" if len(table.columns) > 7 else ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in [*table.notes, *legend(table)])
    return (
        f'<div class="tablebox" id="{escape(table.key)}"><h3>{escape(table.title)}</h3>'
        f'<p class="caption">{escape(table.caption)}</p>'
        f'<div class="scroll{many}"><table class="sortable"><thead><tr>'
        f'<th scope="col"><button type="button">Method</button></th>{heads}</tr></thead>'
        f"{_bodies(table)}</table></div>"
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + "</div>"
    )


def _head(column: Column) -> str:
    first = "descending" if column.metric.higher_is_better else "ascending"
    return (
        f'<th scope="col" data-first="{first}" title="{escape(column.metric.meaning)}">'
        f'<button type="button">{escape(column.title)}</button></th>'
    )


def _bodies(table: Table) -> str:
    """Return one tbody per group of rows, so that sorting keeps the groups together."""
    groups: dict[str, list[Row]] = {}
    for row in table.rows:
        groups.setdefault(row.group, []).append(row)
    parts = []
    for name, rows in groups.items():
        span = len(table.columns) + 1
        head = f'<tr class="group"><th colspan="{span}">{escape(name)}</th></tr>' if name else ""
        parts.append(f"<tbody>{head}{''.join(_row(row, table.columns) for row in rows)}</tbody>")
    return "".join(parts)


def _row(row: Row, columns: Sequence[Column]) -> str:
    name, _, weight = row.title.partition(" (λ")
    small = f"<small>λ{escape(weight.rstrip(')'))}</small>" if weight else ""
    cells = "".join(_cell(*pair) for pair in zip(row.entries, columns, strict=True))
    own = ' class="own"' if row.method == OWN else ""
    return f'<tr{own}><th scope="row">{escape(name)}{small}</th>{cells}</tr>'


def _cell(entry: Entry, column: Column) -> str:
    if entry.value is None:
        return f'<td class="none" data-v="">— {escape(entry.missing)}</td>'
    tag = {1: "<b>{}</b>", 2: "<u>{}</u>"}.get(entry.rank, "{}")
    shown = tag.format(number(entry.value, column)) + FAILED * bool(entry.remark)
    text = f'<span class="n">{shown}</span>'
    paper, delta, difference = paper_text(entry).partition(", Δ")
    for small in (spread_text(entry, column), interval_text(entry, column), paper):
        text += f"<small>{escape(small.strip())}</small>" if small else ""
    mark = ' class="out"' if is_outside(entry) else ""
    text += f"<small{mark}>Δ{escape(difference)}</small>" if delta else ""
    return f'<td data-v="{entry.value!r}"{_title(entry)}>{text}</td>'


def _title(entry: Entry) -> str:
    return f' title="{escape(entry.remark)}"' if entry.remark else ""


def plain_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a sortable table of words."""
    top = "".join(
        f'<th scope="col"><button type="button">{escape(head)}</button></th>' for head in heads
    )
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(text)}</td>" for text in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll"><table class="sortable left"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def figure_html(drawing: Drawing, *, name: str) -> str:
    """Return one figure with its caption and its text alternative."""
    wide = ' class="wide"' if svg_size(drawing.svg)[0] > 7 else ""
    svg = inline_svg(drawing.svg, name=name, title=drawing.title, description=drawing.alternative)
    return (
        f'<figure{wide} id="{escape(drawing.key)}"><div class="plate">{svg}</div>'
        f"<figcaption><strong>{escape(drawing.title)}.</strong> {escape(drawing.caption)}"
        "</figcaption></figure>"
    )


def mistakes_html(mistakes: Sequence[Mistake]) -> str:
    """Return the cards of confident mistakes."""
    return f'<ul class="mistakes">{"".join(_mistake(m) for m in mistakes)}</ul>'


def _mistake(mistake: Mistake) -> str:
    words = f"Picture {mistake.sample} of {set_title(mistake.dataset)}, a {mistake.truth}"
    picture = (
        f'<img src="{escape(mistake.picture)}" alt="{escape(words)}" loading="lazy">'
        if mistake.picture
        else '<span class="absent">picture not on this machine</span>'
    )
    percent = f"{100 * mistake.confidence:.1f} %"
    return (
        f'<li><div class="shot">{picture}</div>'
        f'<span class="bar" aria-hidden="true">'
        f'<i style="width:{100 * mistake.confidence:.1f}%"></i></span>'
        f"<p><strong>{escape(mistake.answer)}</strong> {percent}<br>"
        f"<span>is</span> {escape(mistake.truth)}<br>"
        f"<span>untuned: {escape(mistake.untuned)} {100 * mistake.untuned_confidence:.1f} %<br>"
        f"{escape(set_title(mistake.dataset))}, {escape(mistake.sample)}</span></p></li>"
    )


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    """Return name and value pairs."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts
    )
    return f'<dl class="facts">{items}</dl>'


def folded_html(summary: str, inside: str) -> str:
    """Return content that is shown on demand."""
    return (
        f'<details><summary>{escape(summary)}</summary><div class="inside">{inside}</div></details>'
    )


def commands_html(commands: Iterable[str]) -> str:
    """Return shell commands."""
    return "".join(f"<pre>{escape(command)}</pre>" for command in commands)
