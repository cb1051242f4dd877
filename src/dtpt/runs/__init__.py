"""Runs: resumable evaluation with one SQLite file as the truth.

>>> from dtpt.runs import EvalOptions, evaluate, open_run                       # doctest: +SKIP
>>> run = evaluate(EvalOptions(model="ViT-B-16/openai", dataset=("dtd",)))      # doctest: +SKIP
>>> run.rows(method="d-tpt", seed=0).correct.mean()                             # doctest: +SKIP

Reading, metrics and exports need no torch; `evaluate` imports it when it is first used.
"""

from typing import TYPE_CHECKING

from dtpt.runs.export import export, results_document
from dtpt.runs.options import EvalOptions
from dtpt.runs.reading import Failure, Rows, Run, open_run
from dtpt.runs.schema import Cell
from dtpt.runs.shards import merge
from dtpt.runs.spec import DatasetSpec, MethodSpec, ModelSpec, RunSpec
from dtpt.runs.summary import CellResult, MethodResult, score_cells, score_methods, score_rows

if TYPE_CHECKING:
    from dtpt.runs.runner import evaluate

__all__ = [
    "Cell",
    "CellResult",
    "DatasetSpec",
    "EvalOptions",
    "Failure",
    "MethodResult",
    "MethodSpec",
    "ModelSpec",
    "Rows",
    "Run",
    "RunSpec",
    "evaluate",
    "export",
    "merge",
    "open_run",
    "results_document",
    "score_cells",
    "score_methods",
    "score_rows",
]


def __getattr__(name: str) -> object:
    """Import torch only when something is really evaluated."""
    if name == "evaluate":
        from dtpt.runs.runner import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
