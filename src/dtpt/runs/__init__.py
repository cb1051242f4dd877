"""Runs: resumable evaluation with one SQLite file as the truth.

    evaluation.py from options to stored rows
    plan.py       what is missing; schedule.py: tasks to an executor, rows to the store
    worker.py     one copy of the model: image → rows
    spec.py       what decides the numbers; schema.py, store.py, rows.py, reading.py: the store
    results.py    metrics and exported files; shards.py, merging.py: many machines
    published.py  runs as folders that others can check; verification.py checks them

Every name is imported when it is first used: options need neither NumPy nor torch; reading, metrics
and exports need no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtpt.options import EvalOptions as EvalOptions
    from dtpt.runs.evaluation import evaluate as evaluate
    from dtpt.runs.evaluation import load_run as load_run
    from dtpt.runs.evaluation import run_options as run_options
    from dtpt.runs.merging import merge as merge
    from dtpt.runs.reading import Run as Run
    from dtpt.runs.reading import open_run as open_run
    from dtpt.runs.results import MethodResult as MethodResult
    from dtpt.runs.results import Results as Results
    from dtpt.runs.results import export as export
    from dtpt.runs.results import results_of as results_of
    from dtpt.runs.results import score_methods as score_methods
    from dtpt.runs.spec import Cell as Cell
    from dtpt.runs.spec import DatasetSpec as DatasetSpec
    from dtpt.runs.spec import MethodSpec as MethodSpec
    from dtpt.runs.spec import ModelSpec as ModelSpec
    from dtpt.runs.spec import RunSpec as RunSpec

_HOMES = {
    "Cell": "dtpt.runs.spec",
    "DatasetSpec": "dtpt.runs.spec",
    "EvalOptions": "dtpt.options",
    "MethodResult": "dtpt.runs.results",
    "MethodSpec": "dtpt.runs.spec",
    "ModelSpec": "dtpt.runs.spec",
    "Results": "dtpt.runs.results",
    "Run": "dtpt.runs.reading",
    "RunSpec": "dtpt.runs.spec",
    "evaluate": "dtpt.runs.evaluation",
    "export": "dtpt.runs.results",
    "load_run": "dtpt.runs.evaluation",
    "merge": "dtpt.runs.merging",
    "open_run": "dtpt.runs.reading",
    "results_of": "dtpt.runs.results",
    "run_options": "dtpt.runs.evaluation",
    "score_methods": "dtpt.runs.results",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
