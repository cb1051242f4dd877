"""Compare the mean of 16 views with methods that had 64.

`python docs/sixteen_views.py ALL SIXTEEN`: the arguments are the runs that docs/findings.md names.
Prints differences, paired by image, with intervals corrected for all comparisons of a family.
"""

import sys

import numpy as np

from dtpt.metrics import METRICS, PooledPredictions, compare_table, pool
from dtpt.runs import Run, open_run
from dtpt.runs.results import predictions_of

FEW = ("mean-views", "zero-shot+views=0.4")
COMPARED = (
    "accuracy",
    "signed_gap",
    "absolute_gap",
    "brier",
    "nll",
    "smooth_ece",
    "ece_above_floor",
    "aurc",
)
MANY = ("tpt", "d-tpt@1e6", "mean-views")


def pooled(run: Run, label: str, *, line: bool) -> PooledPredictions:
    """Return all predictions of a method on the sets in colour, or on those of line art."""
    cells = [
        cell
        for cell in run.cells
        if cell.label == label and cell.dataset.startswith("openmoji-line/") == line
    ]
    return pool({cell.dataset: [predictions_of(run.rows_of(cell).table)] for cell in cells})


def compare(many: Run, few: Run, *, line: bool) -> None:
    """Print what few views give minus what many give, in one family."""
    methods = {f"{label}, 16 views": pooled(few, label, line=line) for label in FEW}
    methods |= {f"{label}, 64 views": pooled(many, label, line=line) for label in MANY}
    names = list(methods)
    pairs = [(first, second) for first in names[: len(FEW)] for second in names[len(FEW) :]]
    print("line art" if line else "colour")
    for difference in compare_table(
        methods, pairs, generator=np.random.default_rng(0), metrics=COMPARED
    ):
        factor = METRICS[difference.metric].factor if difference.metric in METRICS else 100
        numbers = (
            factor * value for value in (difference.estimate, difference.low, difference.high)
        )
        text = "{:+.3g} [{:+.3g}, {:+.3g}]".format(*numbers)
        print(f"  {difference.first} - {difference.second}: {difference.metric} {text}")


if __name__ == "__main__":
    with open_run(sys.argv[1]) as everything, open_run(sys.argv[2]) as sixteen:
        for family in (False, True):
            compare(everything, sixteen, line=family)
