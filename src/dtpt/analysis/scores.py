"""Accuracy and ECE of methods, from predictions or from a run; with and without TDD and IDD.

"Without" is a modifier of a method (`zero-shot+no-tdd`, `tpt+no-idd`), so figure 3b is a matter of
putting three scores side by side.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dtpt.analysis.results import MethodScore, WithoutDominant
from dtpt.methods import method_label
from dtpt.metrics import CalibrationReport, Predictions

if TYPE_CHECKING:
    from dtpt.runs import Run

NO_TDD, NO_IDD = "+no-tdd", "+no-idd"


def score_method(
    method: str, lambda_: float | None, *, confidence: npt.ArrayLike, correct: npt.ArrayLike
) -> MethodScore:
    """Score one method from (n,) confidences and whether they were right."""
    report = CalibrationReport.of(Predictions.from_confidence(confidence, correct))
    return MethodScore(
        label=method_label(method, lambda_),
        method=method,
        lambda_=lambda_,
        images=report.n,
        accuracy=report.accuracy,
        ece=report.ece,
        confidence=float(np.mean(np.asarray(confidence, dtype=np.float64))),
    )


def scores_of_run(run: "Run", dataset: str) -> tuple[MethodScore, ...]:
    """Score every method of a run on one data set; several seeds are averaged.

    Methods without rows are left out; `images` is the smallest number over the seeds.
    """
    cells = run.select(dataset=dataset)
    found = []
    for method, lambda_ in dict.fromkeys((cell.method, cell.lambda_) for cell in cells):
        mine = [c for c in cells if (c.method, c.lambda_) == (method, lambda_)]
        rows = [part for part in (run.rows_of(cell) for cell in mine) if len(part)]
        seeds = [
            score_method(method, lambda_, confidence=part.confidence, correct=part.correct)
            for part in rows
        ]
        if seeds and len(seeds) == len(mine):
            found.append(_mean_score(seeds))
    return tuple(found)


def _mean_score(seeds: Sequence[MethodScore]) -> MethodScore:
    return MethodScore(
        label=seeds[0].label,
        method=seeds[0].method,
        lambda_=seeds[0].lambda_,
        images=min(score.images for score in seeds),
        accuracy=float(np.mean([score.accuracy for score in seeds])),
        ece=float(np.mean([score.ece for score in seeds])),
        confidence=float(np.mean([score.confidence for score in seeds])),
    )


def without_dominant(dataset: str, scores: Sequence[MethodScore]) -> tuple[WithoutDominant, ...]:
    """Put every method that was also run without TDD and without IDD beside those."""
    known = {(score.method, score.lambda_): score for score in scores}
    found = []
    for (method, lambda_), score in known.items():
        tdd = known.get((method + NO_TDD, lambda_))
        idd = known.get((method + NO_IDD, lambda_))
        if tdd is not None and idd is not None:
            found.append(WithoutDominant(dataset, score, tdd, idd))
    return tuple(found)
