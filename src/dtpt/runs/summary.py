"""Metrics of a run: always recomputed from all of its rows, never kept beside them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.metrics import CalibrationReport, Predictions
from dtpt.runs.reading import Run
from dtpt.runs.rows import Rows
from dtpt.runs.spec import Cell


@dataclass(frozen=True)
class CellResult:
    """One cell with its metrics; `report` is None when no image succeeded.

    Attributes:
        cell: Data set, method, λ, seed, template.
        report: The metrics.
        expected: Samples that should have a row.
        effective: Samples that entered the metrics.
        failed: Samples whose image could not be read.
        weight: The λ that was found for it without labels (`@auto`); None where it was given.
    """

    cell: Cell
    report: CalibrationReport | None
    expected: int
    effective: int
    failed: int
    weight: float | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """All metrics as fractions (NLL in nats), by key; empty without rows."""
        return {} if self.report is None else dict(self.report.metrics)


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
    def weights(self) -> dict[int, float]:
        """λ that were found without labels, by seed; empty where λ was given."""
        return {s: r.weight for s, r in self.seeds.items() if r.weight is not None}

    @property
    def is_complete(self) -> bool:
        """Whether every sample has a row under every seed."""
        return all(r.effective + r.failed == r.expected for r in self.seeds.values())


def predictions_of(rows: Rows) -> Predictions:
    """Return rows as what metrics and comparisons are computed from; there must be some."""
    return Predictions.from_confidence(
        rows.confidence,
        rows.correct,
        p_label=rows.p_label,
        sum_squares=rows.sum_squares,
        samples=rows.ids,
    )


def score_rows(rows: Rows) -> CalibrationReport | None:
    """Compute the metrics of some rows; None where there are none."""
    return CalibrationReport.of(predictions_of(rows)) if len(rows) else None


def score_cells(run: Run, cells: Iterable[Cell] | None = None) -> list[CellResult]:
    """Compute the metrics of every cell, in the run's order."""
    counts, weights = run.counts(), run.weights()
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    return [
        CellResult(
            cell,
            score_rows(run.rows_of(cell)),
            expected[cell.dataset],
            *counts[cell],
            weight=weights[cell].value if cell in weights else None,
        )
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
    columns = {name: np.array([entry[name] for entry in metrics]) for name in metrics[0]}
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
                name: float(np.mean([part.mean[name] for part in parts])) for name in parts[0].mean
            }
    return found
