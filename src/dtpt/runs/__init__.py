"""Runs: resumable evaluation with one SQLite file as the truth.

>>> from dtpt.runs import EvalOptions, evaluate, open_run                       # doctest: +SKIP
>>> run = evaluate(EvalOptions(model="ViT-B-16/openai", dataset=("dtd",)))      # doctest: +SKIP
>>> run.rows(method="d-tpt", seed=0).correct.mean()                             # doctest: +SKIP

Every name is imported when it is first used: options need neither NumPy nor torch, reading,
metrics and exports need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtpt.options import EvalOptions as EvalOptions
    from dtpt.runs.exports import export as export
    from dtpt.runs.merging import merge as merge
    from dtpt.runs.reading import Failure as Failure
    from dtpt.runs.reading import Run as Run
    from dtpt.runs.reading import open_parts as open_parts
    from dtpt.runs.reading import open_run as open_run
    from dtpt.runs.results import Results as Results
    from dtpt.runs.results import results_of as results_of
    from dtpt.runs.rows import Rows as Rows
    from dtpt.runs.runner import evaluate as evaluate
    from dtpt.runs.spec import Cell as Cell
    from dtpt.runs.spec import DatasetSpec as DatasetSpec
    from dtpt.runs.spec import MethodSpec as MethodSpec
    from dtpt.runs.spec import ModelSpec as ModelSpec
    from dtpt.runs.spec import RunSpec as RunSpec
    from dtpt.runs.summary import CellResult as CellResult
    from dtpt.runs.summary import MethodResult as MethodResult
    from dtpt.runs.summary import score_cells as score_cells
    from dtpt.runs.summary import score_methods as score_methods
    from dtpt.runs.summary import score_rows as score_rows

_HOMES = {
    "Cell": "spec",
    "CellResult": "summary",
    "DatasetSpec": "spec",
    "EvalOptions": "dtpt.options",
    "Failure": "reading",
    "MethodResult": "summary",
    "MethodSpec": "spec",
    "ModelSpec": "spec",
    "Results": "results",
    "Rows": "rows",
    "Run": "reading",
    "RunSpec": "spec",
    "evaluate": "runner",
    "export": "exports",
    "merge": "merging",
    "open_parts": "reading",
    "open_run": "reading",
    "results_of": "results",
    "score_cells": "summary",
    "score_methods": "summary",
    "score_rows": "summary",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    return getattr(import_module(home if "." in home else f"dtpt.runs.{home}"), name)
