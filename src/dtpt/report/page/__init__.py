"""The report for people: one self-contained HTML page and a Markdown card, from templates.

The page opens from disk, needs no network and sends nothing. The templates escape whatever is
printed in them. A content security policy allows only what is inside the page: its style, the
images as data URIs and the one script, which is named by its hash.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from dtpt.analysis.tables import analysis_tables
from dtpt.data import family_title
from dtpt.files import printable
from dtpt.machine import package_version
from dtpt.metrics import metrics_with
from dtpt.report.compose import Report
from dtpt.report.figures import CaptionedFigure, inline_svg, svg_size
from dtpt.report.load import Condition, Loaded, set_title
from dtpt.report.words import template_environment
from dtpt.tables import Table, escape_markdown, markdown, text_table


def render_page(report: Report) -> str:
    return _page(
        "page.html",
        report=report,
        metrics=metrics_with("paper"),
        analysis_tables=list(analysis_tables(report.analysis)) if report.analysis else [],
    )


def render_leaderboard(**content: Any) -> str:
    return _page("leaderboard.html", **content)


def _page(template: str, **content: Any) -> str:
    script, style = (
        (files("dtpt.report.page") / name).read_text("utf-8") for name in ("page.js", "page.css")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    made = _environment(autoescape=True)
    made.filters |= {
        "inline": _inline,
        "percent": lambda fraction: f"{100 * fraction:.1f} %",
        "set_title": set_title,
        "unbroken": _unbroken,
        "width": lambda figure: svg_size(figure.svg)[0],
    }
    return made.get_template(template).render(
        policy=Markup(policy),  # noqa: S704 - our own words
        script=Markup(script),  # noqa: S704 - a file of the package
        style=Markup(style),  # noqa: S704 - a file of the package
        **content,
    )


def run_card(report: Report) -> str:
    """Return the card: what was evaluated, how well, and with which limits, in Markdown."""
    return markdown_card("card.md", report=report)


def markdown_card(template: str, **content: Any) -> str:
    """Return a card from a template; everything that is printed is escaped."""
    made = _environment(
        autoescape=False,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, _Ready) else escape_markdown(str(value)),
    )
    made.filters |= {"code": _code, "markdown": lambda table: _Ready(markdown(table))}
    return re.sub(r"\n{3,}", "\n\n", made.get_template(template).render(**content))


class _Ready(str):
    """Markdown that is finished: not escaped again."""

    __slots__ = ()


def _environment(**options: Any) -> Environment:
    made = template_environment("dtpt.report.page", "templates", **options)
    made.globals["version"] = package_version("dtpt")
    made.filters |= {
        "condition_facts": condition_facts,
        "dataset_table": dataset_table,
        "environment_facts": environment_facts,
    }
    return made


def _inline(figure: CaptionedFigure, name: str) -> list[Markup]:
    """Return the markup of a figure, part by part; its words are escaped by `inline_svg`."""
    drawn = []
    for index, svg in enumerate(figure.parts):
        words = "Described with the first part." if index else figure.alternative
        text = inline_svg(svg, name=f"{name}p{index}", title=figure.title, description=words)
        drawn.append(Markup(text))  # noqa: S704 - drawn by us
    return drawn


def _unbroken(text: str) -> str:
    """Keep numbers with their % and points, λ with its value and method names on one line."""
    for together in (" %", "λ = ", " points"):
        text = text.replace(together, together.replace(" ", "\u00a0"))
    return text.replace("-TPT", "\u2011TPT")


def _code(commands: Sequence[str]) -> _Ready:
    """Return commands as a block whose fence is longer than any run of backticks inside."""
    text = printable("\n".join(commands), keep="\n")
    fence = max(["``", *re.findall("`+", text)], key=len) + "`"
    return _Ready(f"{fence}sh\n{text}\n{fence}")


def condition_facts(condition: Condition) -> list[tuple[str, str]]:
    prompt = f"“{condition.template}”" + (" and a trained context" if condition.context else "")
    tuning = (f"{name.replace('_', ' ')} {value}" for name, value in condition.tuning.items())
    return [
        ("Model", condition.model),
        ("Weights (sha256)", condition.fingerprint[:16]),
        ("Precision", condition.precision),
        ("Prompt", prompt),
        ("Methods", ", ".join(variant.title for variant in condition.stored_variants())),
        ("Seeds", ", ".join(map(str, condition.seeds))),
        ("Images", condition.size_text(condition.datasets)),
        ("Tuning", ", ".join(tuning)),
    ]


def dataset_table(condition: Condition) -> Table:
    rows = [
        (
            set_title(name),
            family_title(entry.family),
            f"{entry.classes:,}",
            condition.size_text([name]),
            f"{entry.views.get('count', '?')}{' with AugMix' * bool(entry.views.get('augmix'))}",
            entry.fingerprint[:12],
        )
        for name, entry in condition.datasets.items()
    ]
    heads = ("Data set", "Family", "Classes", "Images", "Views", "Fingerprint")
    return text_table("", heads, rows=rows)


def environment_facts(loaded: Loaded) -> list[tuple[str, str]]:
    sessions = [session for source in loaded.sources for session in source.sessions]
    seconds = sum(session.get("seconds") or 0.0 for session in sessions)
    started = min((str(session["started"]) for session in sessions), default="not recorded")
    facts: dict[str, list[str]] = {
        "Stores": [str(source.run.path) for source in loaded.sources],
        "First started": [started],
        "Minutes": [f"{seconds / 60:.1f}"],
        "Sessions": [str(len(sessions))],
    }
    for session in sessions:
        for name, value in (session.get("environment") or {}).items():
            facts.setdefault(name.replace("_", " "), []).append(str(value))
    return [(name, ", ".join(dict.fromkeys(values))) for name, values in facts.items()]
