"""Print the table of docs/streams.md from a study of streams, and write it where it has a part.

    python docs/stream_tables.py NAME runs/streams

The folder is the --output of `dtpt analyze streams`. The table has the differences of accuracy, gap
and Brier score. It replaces what lies between `<!-- made: NAME -->` and `<!-- end -->` on the page,
and the study's figure becomes `docs/streams-NAME.svg`, where the page has them.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from made_parts import brought_up_to_date

from dtpt.metrics import METRICS
from dtpt.tables import MINUS, number_text

PAGE = Path(__file__).with_name("streams.md")
COMPARED = {"accuracy": "accuracy (%)", "signed_gap": "gap (%)", "brier": "Brier"}
Pairs = dict[tuple[str, str], dict[tuple[str, str], Mapping[str, Any]]]
"""Differences by (method, reference), then by (metric, order)."""


def table(study: Mapping[str, Any]) -> str:
    """Return the differences of a study as Markdown, family by family."""
    return "\n\n".join("\n".join(_lines(family)) for family in study["families"])


def _lines(family: Mapping[str, Any]) -> Iterator[str]:
    pairs, orders = _pairs(family)
    images, clusters = sum(count for _, count in family["sets"]), family["clusters"]
    of = f" of {clusters:,} {family['cluster_noun']}" if clusters < images else ""
    yield f"{family['family']}, {images:,} images{of}:"
    yield ""
    heads = [f"{title}, {order}" for title in COMPARED.values() for order in orders]
    yield "| difference | " + " | ".join(heads) + " |"
    yield "| --- |" + " ---: |" * len(heads)
    for (method, reference), found in pairs.items():
        cells = [_cell(found.get((metric, o)), metric) for metric in COMPARED for o in orders]
        yield f"| `{method}` {MINUS} `{reference}` | " + " | ".join(cells) + " |"


def _pairs(family: Mapping[str, Any]) -> tuple[Pairs, Sequence[str]]:
    """Return the differences, those from zero-shot first, and the orders."""
    facts = {row["name"]: row["facts"] for row in family["rows"]}
    pairs: Pairs = {}
    for one in family["comparisons"]:
        first, second = facts[one["first"]], facts[one["second"]]
        key = (first["method"], second["method"])
        pairs.setdefault(key, {})[one["metric"], first["order"]] = one
    ordered = dict(sorted(pairs.items(), key=lambda pair: pair[0][1] != "zero-shot"))
    return ordered, list(dict.fromkeys(row["order"] for row in facts.values()))


def _cell(one: Mapping[str, Any] | None, name: str) -> str:
    """Write a difference with the larger half of its interval; `*`: the interval excludes 0."""
    if one is None:
        return ""
    metric, middle = METRICS[name], one["estimate"]
    half = max(one["high"] - middle, middle - one["low"])
    mark = "" if one["low"] <= 0 <= one["high"] else "*"
    return f"{number_text(middle, metric, signed=True)}{mark} ±{metric.text(half)}"


def write(name: str, folder: Path, *, page: Path = PAGE) -> str:
    """Return the table of a study, and bring its part of the page up to date."""
    made = table(json.loads((folder / "streams.json").read_text("utf-8")))
    text, figure = page.read_text("utf-8"), f"streams-{name}.svg"
    new = brought_up_to_date(text, lambda words: made if words == name else None)
    page.write_text(new, "utf-8")
    if figure in text:
        page.with_name(figure).write_bytes((folder / "streams.svg").read_bytes())
    return made


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(write(sys.argv[1], Path(sys.argv[2])))
