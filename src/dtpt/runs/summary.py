"""Metrics of a run: always recomputed from all of its rows, never kept beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.metrics import CalibrationReport, calibration_report_from_confidence
from dtpt.runs.reading import Rows, Run
from dtpt.runs.schema import Cell

# metrics of the tables, with whether more is better; all fractions (NLL in nats)
HIGHER_IS_BETTER: Mapping[str, bool] = {
    "accuracy": True,
    "ece": False,
    "aece": False,
    "mce": False,
    "aurc": False,
    "augrc": False,
    "smooth_ece": False,
    "brier": False,
    "nll": False,
}
NLL_FLOOR = 1e-12


@dataclass(frozen=True)
class CellResult:
    """One cell with its metrics; `report` is None when no image succeeded.

    Attributes:
        cell: Data set, method, λ, seed, template.
        report: The metrics.
        expected: Samples that should have a row.
        effective: Samples that entered the metrics.
        failed: Samples whose image could not be read.
    """

    cell: Cell
    report: CalibrationReport | None
    expected: int
    effective: int
    failed: int

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the tables as fractions, by name; empty without rows."""
        if self.report is None:
            return {}
        return {name: getattr(self.report, name) for name in HIGHER_IS_BETTER}


@dataclass(frozen=True)
class MethodResult:
    """One data set and method over its seeds.

    Attributes:
        dataset: Name of the data set.
        label: Method and λ.
        seeds: Result by seed.
        mean: Mean over seeds, by metric; empty when a seed has no rows.
        std: Sample standard deviation over seeds (n - 1), by metric; empty for one seed.
    """

    dataset: str
    label: str
    seeds: Mapping[int, CellResult]
    mean: Mapping[str, float]
    std: Mapping[str, float]

    @property
    def is_complete(self) -> bool:
        """Whether every sample has a row under every seed."""
        return all(r.effective + r.failed == r.expected for r in self.seeds.values())


def score_rows(rows: Rows) -> CalibrationReport | None:
    """Compute the metrics of some rows; Brier and NLL from the stored sums."""
    if len(rows) == 0:
        return None
    report = calibration_report_from_confidence(rows.confidence, rows.correct)
    brier = np.maximum(rows.sum_squares - 2 * rows.p_label + 1, 0.0).mean()
    nll = -np.log(np.clip(rows.p_label, NLL_FLOOR, 1.0)).mean()
    return report.model_copy(update={"brier": float(brier), "nll": float(nll)})


def score_cells(run: Run, cells: Iterable[Cell] | None = None) -> list[CellResult]:
    """Compute the metrics of every cell, in the run's order."""
    counts = run.counts()
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    return [
        CellResult(cell, score_rows(run.rows_of(cell)), expected[cell.dataset], *counts[cell])
        for cell in (run.cells if cells is None else cells)
    ]


def score_methods(run: Run) -> list[MethodResult]:
    """Compute mean and spread over seeds for every data set and method."""
    grouped: dict[tuple[str, str], dict[int, CellResult]] = {}
    for result in score_cells(run):
        key = (result.cell.dataset, result.cell.label)
        grouped.setdefault(key, {})[result.cell.seed] = result
    return [
        MethodResult(dataset, label, seeds, *_spread([r.metrics for r in seeds.values()]))
        for (dataset, label), seeds in grouped.items()
    ]


def _spread(metrics: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return mean and sample standard deviation by metric; nothing where a seed has none."""
    if not all(metrics):
        return {}, {}
    columns = {name: np.array([entry[name] for entry in metrics]) for name in HIGHER_IS_BETTER}
    mean = {name: float(values.mean()) for name, values in columns.items()}
    if len(metrics) < 2:
        return mean, {}
    return mean, {name: float(values.std(ddof=1)) for name, values in columns.items()}


def mean_over_datasets(results: Sequence[MethodResult]) -> dict[str, dict[str, float]]:
    """Return, by label, the mean over data sets of methods that have a result on all of them."""
    datasets = {result.dataset for result in results}
    labels = dict.fromkeys(result.label for result in results)
    found = {}
    for label in labels:
        parts = [result for result in results if result.label == label]
        if len(parts) == len(datasets) and all(part.mean for part in parts):
            found[label] = {
                name: float(np.mean([part.mean[name] for part in parts]))
                for name in HIGHER_IS_BETTER
            }
    return found
