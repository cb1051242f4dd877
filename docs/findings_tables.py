"""Print the tables of docs/findings.md, from the output of `dtpt compare runs/all --json`.

The first has every method as a mean over the data sets of a family, the second what single methods
differ by from zero-shot, TPT and the mean of views, with intervals and the detectable effect.
"""

import json
import sys
from typing import Any

from dtpt.metrics import METRICS

SHOWN = ("accuracy", "absolute_gap", "ece_above_floor", "squared_ce", "brier", "nll")
PER_CENT = {"accuracy", "absolute_gap", "signed_gap", "ece_above_floor"}
DIGITS = {"squared_ce": 0, "brier": 3, "nll": 2}


def number(value: float, metric: str, *, sign: bool = False) -> str:
    """Return a value in the unit of the page: percent, squared percent, or its own."""
    scale = 100.0 if metric in PER_CENT else 1e4 if metric == "squared_ce" else 1.0
    text = f"{scale * value:{'+' if sign else ''}.{DIGITS.get(metric, 1)}f}"
    return text.replace("-", "−")


def values(families: list[dict[str, Any]]) -> None:
    """Print every method in every family."""
    for family in families:
        print(f"\n{family['family']}: {family['images']:,} images of {family['clusters']} drawings")
        print("| method |", " | ".join(METRICS[name].title for name in SHOWN), "| worst gap |")
        print("| --- |" + " --- |" * (len(SHOWN) + 1))
        for label, cells in family["values"].items():
            row = [number(cells[name]["value"], name) for name in SHOWN]
            worst = family["worst"][label]["absolute_gap"]
            group = worst["dataset"].partition("/")[2]
            print(
                f"| {label} |", " | ".join(row), f"| {number(worst['value'], 'accuracy')} {group} |"
            )


def differences(families: list[dict[str, Any]]) -> None:
    """Print the differences to the reference methods, one line for each pair and metric."""
    for family in families:
        print(f"\n{family['family']}")
        for one in family["comparisons"]:
            metric = one["metric"]
            low, high, found = (
                number(one[k], metric, sign=True) for k in ("low", "high", "estimate")
            )
            mark = "significant" if one["significant"] else "not significant"
            seen = number(one["detectable"], metric)
            pair = f"{one['first']} − {one['second']}: {metric} {found}"
            print(f"{pair} [{low}, {high}], {mark}, detectable {seen}")


if __name__ == "__main__":
    found = json.load(sys.stdin)["conditions"][0]["families"]
    values(found)
    differences(found)
