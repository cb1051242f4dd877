"""`dtpt methods`: the table of methods, plug-ins included."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dtpt.cli.flags import AsJson

if TYPE_CHECKING:
    from dtpt.methods import Method


def methods(
    *,
    compare: Annotated[
        Path | None, Parameter(help="Run whose methods are compared: what each gives and costs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods, their default lambdas and what they cost per picture."""
    from dtpt.methods import known_methods

    if compare is not None:
        from dtpt.cli.methods_compare import compare_methods

        compare_methods(compare, as_json=as_json)
        return

    rows = [_row(name, method) for name, method in known_methods().items()]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        _print_table(rows)


def _row(name: str, method: "Method") -> dict[str, Any]:
    from dtpt.methods import ResolvedMethod, method_cost

    passes = method_cost(ResolvedMethod(name, method, None))
    return {
        "name": name,
        "title": method.look.title or name,
        "summary": method.summary,
        "lambda": dict(method.lambdas),
        "cost": asdict(passes),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from dtpt.methods import MODIFIERS
    from dtpt.methods.parse import STATIC

    table = Table(box=None, pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for head in ("λ", "image", "text"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        if row["name"].endswith(STATIC):
            continue
        lambdas = dict.fromkeys(f"{value:g}" for value in row["lambda"].values())
        spent = row["cost"]
        text = spent["text_forward"] + spent["text_backward"]
        numbers = (" / ".join(lambdas), str(spent["image_passes"]), str(text))
        table.add_row(row["name"], row["summary"], *numbers)
    console = Console()
    console.print(table)
    console.print(
        "\nλ: default for fine-grained sets / natural shifts. image, text: passes through each "
        "tower per picture with 64 views; a text pass covers all classes, there and back are two.\n"
        "Every method with a λ also exists as NAME-static: its regulariser alone, tuned once.\n"
        f"Modifiers, written method+modifier: {', '.join(MODIFIERS)}, ts=1.16, views=0.3, lr=0.002."
        "\nWeights, written method@weight: d-tpt@1e6, d-tpt@auto=0.9, d-tpt@auto-each=0.9.",
        highlight=False,
    )
