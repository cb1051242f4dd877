"""One self-contained HTML page: opens from disk, needs no network, sends nothing anywhere.

A content security policy allows only what is inside the page: its style, the pictures as data URIs
and the one script, which is named by its hash.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from dtpt.report.analysis_tables import analysis_tables
from dtpt.report.columns import COLUMNS, method_title
from dtpt.report.content import Content, ContentBlock
from dtpt.report.drawing import Drawing
from dtpt.report.facts import block_facts, dataset_rows, environment_facts, summary_sentences
from dtpt.report.markup import (
    commands_html,
    facts_html,
    figure_html,
    folded_html,
    mistakes_html,
    plain_table,
    table_html,
)


def render_page(content: Content) -> str:
    """Return the whole page as HTML."""
    script, style = _resource("page.js"), _resource("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    sections = _sections(content)
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, _ in sections)
    body = "".join(
        f'<section id="{key}"><h2>{name}</h2>{inside}</section>' for key, name, inside in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(content.title)}</title><style>{style}</style></head><body>"
        f"{_header(content)}"
        f'<nav aria-label="Sections"><ul class="column">{links}</ul></nav>'
        f'<main class="column">{body}</main>{_footer(content)}'
        f"<script>{script}</script></body></html>\n"
    )


def _resource(name: str) -> str:
    return (files("dtpt.report") / name).read_text("utf-8")


def _header(content: Content) -> str:
    sentences = "".join(
        f'<p class="lead">{escape(_unbroken(text))}</p>' for text in summary_sentences(content)
    )
    return (
        '<header class="top column"><p class="kicker">Calibration of test-time prompt tuning</p>'
        f"<h1>{escape(content.title)}</h1>{sentences}</header>"
    )


def _unbroken(text: str) -> str:
    """Keep numbers with their % and method names on one line."""
    return text.replace(" %", "\u00a0%").replace("-TPT", "\u2011TPT")


def _footer(content: Content) -> str:
    return (
        '<footer><div class="column">'
        f"Made by dtpt {escape(content.version)} on {escape(content.date)} from "
        f"{_counted(len(content.gathered.sources), 'stored run')}; "
        "every number is recomputed from all rows. This page is one file and loads nothing."
        "</div></footer>"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _sections(content: Content) -> list[tuple[str, str, str]]:
    """Return (anchor, heading, HTML) of every section that has content."""
    sections = [
        ("run", "What was run", _what_was_run(content)),
        ("results", "Results", _results(content)),
        ("sets", "Per data set", _per_set(content)),
        ("figures", "Figures", _figures(content.drawings, start=1)),
        ("analysis", "Analysis", _analysis(content)),
        ("mistakes", "Confident mistakes", _mistakes(content)),
        ("reading", "How to read the numbers", _reading()),
        ("commands", "Commands", _commands(content)),
    ]
    return [section for section in sections if section[2]]


def _what_was_run(content: Content) -> str:
    remarks = ""
    if content.gathered.remarks:
        items = "".join(f"<li>{escape(text)}</li>" for text in content.gathered.remarks)
        remarks = f'<div class="remarks"><h3>Before you read on</h3><ul>{items}</ul></div>'
    blocks = "".join(
        (f"<h3>{escape(block.title)}</h3>" if len(content.blocks) > 1 else "")
        + facts_html(block_facts(block.block))
        + plain_table(
            ("Data set", "Family", "Classes", "Pictures", "Views", "Fingerprint"),
            dataset_rows(block.block),
        )
        for block in content.blocks
    )
    where = folded_html("Machine and time", facts_html(environment_facts(content.gathered)))
    return remarks + blocks + where


def _results(content: Content) -> str:
    tables = [table for block in content.blocks for table in block.means]
    return "".join(table_html(table) for table in [*tables, *content.prompt_tables])


def _per_set(content: Content) -> str:
    parts = []
    for block in content.blocks:
        for family, tables in block.sets:
            several = f"{block.title}: " if len(content.blocks) > 1 else ""
            inside = "".join(table_html(table) for table in tables)
            parts.append(folded_html(f"{several}{family}, {_listed(tables)}", inside))
    return "".join(parts)


def _listed(tables: Sequence[object]) -> str:
    return ", ".join(metric.heading for metric in COLUMNS[: len(tables)])


def _figures(drawings: Sequence[Drawing], *, start: int) -> str:
    """Show the first figures openly and the rest folded by data set."""
    numbered = list(enumerate(drawings, start=start))
    shown = "".join(figure_html(d, name=f"f{i}") for i, d in numbered if not d.folded)
    groups: dict[str, list[str]] = {}
    for i, drawing in numbered:
        if drawing.folded:
            topic = drawing.topic or drawing.title
            groups.setdefault(topic, []).append(figure_html(drawing, name=f"f{i}"))
    folded = "".join(
        folded_html(topic, f'<div class="figures">{"".join(parts)}</div>')
        for topic, parts in groups.items()
    )
    return (f'<div class="figures">{shown}</div>' if shown else "") + folded


def _analysis(content: Content) -> str:
    """Return figures and word tables of an analysis file."""
    if content.analysis is None:
        return ""
    tables = "".join(
        f'<div class="tablebox"><h3>{escape(table.title)}</h3>'
        f'<p class="caption">{escape(table.caption)}</p>'
        f"{plain_table(table.heads, table.rows)}</div>"
        for table in analysis_tables(content.analysis)
    )
    return tables + _figures(content.analysis_drawings, start=1001)


def _mistakes(content: Content) -> str:
    parts = []
    for block in content.blocks:
        if not block.mistakes:
            continue
        name = method_title(*block.mistakes_of)
        intro = (
            f"The wrong answers that {name} gave with the highest confidence "
            f"({block.title}, seed {block.block.seeds[0]}), with what the untuned prompt said."
        )
        parts.append(f"<p>{escape(intro)}</p>{mistakes_html(block.mistakes)}")
    return "".join(parts)


def _reading() -> str:
    facts = [(metric.title, metric.meaning) for metric in COLUMNS]
    return facts_html(facts) + (
        "<p>Best of a column is bold, second best underlined. Calibration errors use 20 bins, open "
        "below and closed above; ties in confidence are averaged in AURC. Confidence is the "
        "probability of the predicted class on the original picture. Headings sort by click or "
        "Enter.</p>"
    )


def _commands(content: Content) -> str:
    parts = [
        "<p>The same commands again continue unfinished runs; finished ones give the same "
        "numbers.</p>",
        commands_html(content.commands),
    ]
    for block in content.blocks:
        parts.append(folded_html(f"Each row by itself, {block.title}", _row_commands(block)))
    return "".join(parts)


def _row_commands(block: ContentBlock) -> str:
    return "".join(
        f"<p>{escape(title)}</p>{commands_html([command])}" for title, command in block.rows
    )
