"""One self-contained HTML page: opens from disk, needs no network, sends nothing anywhere.

The templates escape whatever is printed in them. A content security policy allows only what is
inside the page: its style, the pictures as data URIs and the one script, which is named by its
hash.
"""

import base64
import hashlib
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dtpt.report.composing import Report
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.svg import inline_svg, svg_size
from dtpt.report.page.settings import (
    DATASET_HEADS,
    condition_facts,
    dataset_rows,
    environment_facts,
)
from dtpt.report.recorded.tables import recorded_tables
from dtpt.report.set_titles import set_title
from dtpt.report.tables import printed_numbers
from dtpt.report.tables.analysis_tables import analysis_tables
from dtpt.report.tables.table import COLUMNS


def render_page(report: Report) -> str:
    """Return the whole page as HTML."""
    script, style = _resource("page.js"), _resource("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            sections=_sections(report),
            policy=Markup(policy),  # noqa: S704 - our own words
            script=Markup(script),  # noqa: S704 - a file of the package
            style=Markup(style),  # noqa: S704 - a file of the package
        )
    )


def _resource(name: str) -> str:
    return (files("dtpt.report.page") / name).read_text("utf-8")


def _sections(report: Report) -> dict[str, str]:
    """Return the headings by anchor, of all sections that have content."""
    headings = {
        "picture": ("The picture", any(part.pictures for part in report.parts)),
        "results": ("Results", True),
        "recorded": ("Recorded run", report.recorded is not None),
        "coverage": ("Coverage check", any(part.coverage.tables for part in report.parts)),
        "sets": ("Per data set", True),
        "figures": ("Figures", bool(report.figures)),
        "analysis": ("Analysis", report.analysis is not None),
        "mistakes": ("Confident mistakes", any(part.mistakes for part in report.parts)),
        "reading": ("How to read the numbers", True),
        "run": ("Settings", True),
        "commands": ("Commands", True),
    }
    return {key: heading for key, (heading, there) in headings.items() if there}


def _environment() -> Environment:
    """Return Jinja with the functions that the templates use."""
    made = Environment(
        loader=PackageLoader("dtpt.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("number", "spread_text", "interval_text", "paper_text", "is_outside", "legend"):
        made.globals[name] = getattr(printed_numbers, name)
    made.globals |= {
        "FAILED": printed_numbers.FAILED,
        "COLUMNS": COLUMNS,
        "DATASET_HEADS": DATASET_HEADS,
    }
    made.filters |= {
        "analysis_tables": analysis_tables,
        "condition_facts": condition_facts,
        "dataset_rows": dataset_rows,
        "environment_facts": environment_facts,
        "groups_by": _groups_by,
        "inline": _inline,
        "recorded_tables": recorded_tables,
        "percent": lambda share: f"{100 * share:.1f} %",
        "set_title": set_title,
        "svg_width": lambda text: svg_size(text)[0],
        "unbroken": _unbroken,
    }
    return made


def _inline(captioned: CaptionedFigure, name: str) -> list[Markup]:
    """Return the markup of a figure, part by part; its words are escaped by `inline_svg`."""
    return [
        Markup(  # noqa: S704 - drawn by us
            inline_svg(
                svg,
                name=f"{name}p{place}" if place else name,
                title=captioned.title,
                description="Described with the first part." if place else captioned.alternative,
            )
        )
        for place, svg in enumerate(captioned.panel_svgs)
    ]


def _groups_by(items: Iterable[Any], attribute: str) -> list[tuple[str, list[Any]]]:
    """Group items by an attribute, in the order met (Jinja's own filter sorts)."""
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(getattr(item, attribute), []).append(item)
    return list(groups.items())


def _unbroken(text: str) -> str:
    """Keep numbers with their % and points, λ with its value and method names on one line."""
    for together in (" %", "λ = ", " points"):
        text = text.replace(together, together.replace(" ", "\u00a0"))
    return text.replace("-TPT", "\u2011TPT")
