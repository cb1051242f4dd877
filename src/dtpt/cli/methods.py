"""`dtpt methods`: the table of methods, plug-ins included."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtpt.cli.flags import AsJson
from dtpt.cli.output import emit
from dtpt.tables import Table, text_table

if TYPE_CHECKING:
    from dtpt.methods import Method


LEGEND = """
λ: default for fine-grained sets / natural shifts. image, text: passes through
each tower per image with 64 views; a text pass covers all classes, forward and
backward are two.
Every method with a λ also exists as NAME-static: its regulariser, tuned once.
Modifiers, written method+modifier: {},
  ts=1.16, views=0.3, lr=0.002.
λ, written method@λ: d-tpt@1e6, d-tpt@auto=0.9, d-tpt@auto-each=0.9."""


def methods(*, compare: Path | None = None, as_json: AsJson = False) -> None:
    """List the methods, their default λ and their cost per image.

    Args:
        compare: Run whose methods are compared: metrics and cost.
    """
    from dtpt.methods import MODIFIERS, known_methods

    if compare is not None:
        _compare(compare, as_json=as_json)
        return
    rows = [_row(name, method) for name, method in known_methods().items()]
    legend = LEGEND.format(", ".join(MODIFIERS))
    emit(rows, _table(rows), legend, as_json=as_json, framed=False)


def _compare(run: Path, *, as_json: bool) -> None:
    from dtpt.report.compare import method_choices

    choices = method_choices(run)
    seconds = choices.seconds_per_image
    texts = [] if seconds is None else [f"The whole run took {seconds:.2f} seconds per image."]
    emit(choices.document(), *choices.tables, *texts, as_json=as_json)


def _row(name: str, method: "Method") -> dict[str, Any]:
    from dtpt.methods import ResolvedMethod, method_cost

    return {
        "name": name,
        "title": method.look.title or name,
        "summary": method.summary,
        "lambda": dict(method.lambdas),
        "cost": asdict(method_cost(ResolvedMethod(name, method, None))),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    from dtpt.methods.parse import STATIC

    lines = []
    for row in rows:
        if not row["name"].endswith(STATIC):
            lambdas = " / ".join(dict.fromkeys(f"{value:g}" for value in row["lambda"].values()))
            cost = row["cost"]
            passes = (cost["image_passes"], cost["text_forward"] + cost["text_backward"])
            lines.append((row["name"], row["summary"], lambdas, *map(str, passes)))
    return text_table("", ("method", "summary", "λ", "image", "text"), rows=lines)
