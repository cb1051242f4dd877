"""Metrics of a run, always recomputed from its rows, and results.json as a typed record.

The keys follow lm-eval's files. All numbers are fractions (NLL in nats). Only `date` depends on
when and in how many sessions the run was computed.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from dtpt.metrics import Predictions, metrics_with, score
from dtpt.runs.reading import Failure, Run, is_complete
from dtpt.runs.rows import ARRAY_COLUMNS, Columns
from dtpt.runs.spec import Cell, DatasetSpec, RunSpec


@dataclass(frozen=True)
class CellResult:
    """One cell with its metrics."""

    cell: Cell
    metrics: Mapping[str, float]  # fractions, by key; empty without rows
    expected: int  # samples that should have a row
    effective: int  # samples that entered the metrics
    failed: int
    selected_lambda: float | None = None  # without labels (`@auto`); None where λ was given


@dataclass(frozen=True)
class MethodResult:
    """One data set and method over its seeds."""

    dataset: str
    label: str
    seeds: Mapping[int, CellResult]

    @cached_property
    def mean(self) -> dict[str, float]:
        """Mean over seeds, by metric; empty when a seed has no rows."""
        return {key: float(values.mean()) for key, values in self._values.items()}

    @cached_property
    def std(self) -> dict[str, float]:
        """Sample standard deviation over seeds (n - 1), by metric; empty for one seed."""
        if len(self.seeds) < 2:
            return {}
        return {key: float(values.std(ddof=1)) for key, values in self._values.items()}

    @cached_property
    def _values(self) -> dict[str, Any]:
        metrics = [result.metrics for result in self.seeds.values()]
        if not all(metrics):
            return {}
        return {key: np.array([entry[key] for entry in metrics]) for key in metrics[0]}

    @property
    def selected_lambdas(self) -> dict[int, float]:
        """λ that were selected without labels, by seed; empty where λ was given."""
        pairs = ((seed, result.selected_lambda) for seed, result in self.seeds.items())
        return {seed: value for seed, value in pairs if value is not None}


def predictions_of(table: Columns) -> Predictions:
    """Return stored rows as what metrics and comparisons are computed from."""
    return Predictions.from_confidence(
        table["confidence"],
        table["prediction"] == table["label"],
        p_label=table["p_label"],
        sum_squares=table["sum_squares"],
        samples=table["sample"],
    )


def score_methods(run: Run) -> list[MethodResult]:
    """Compute the metrics of every data set and method; one pass over the rows."""
    tables, counts, lambdas = run.columns(*ARRAY_COLUMNS), run.counts(), run.lambdas()
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    grouped: dict[tuple[str, str], dict[int, CellResult]] = {}
    for cell in run.cells:
        grouped.setdefault((cell.dataset, cell.label), {})[cell.seed] = CellResult(
            cell,
            score(predictions_of(tables[cell])) if cell in tables else {},
            expected[cell.dataset],
            *counts[cell],
            selected_lambda=lambdas[cell].value if cell in lambdas else None,
        )
    return [MethodResult(*key, seeds) for key, seeds in grouped.items()]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class MethodRecord(_Record):
    """One method on one data set."""

    mean: dict[str, float] | None  # over seeds; None when a seed has no rows
    std: dict[str, float] | None  # sample standard deviation over seeds; None for one seed
    seeds: dict[str, dict[str, int | float]]  # metrics, `n` samples behind them, `failed` samples
    selected_lambda: dict[str, float] = Field(default_factory=dict)  # by seed (`@auto`)


class GroupRecord(_Record):
    """Means over the data sets of one family; methods that lack a set are left out."""

    datasets: tuple[str, ...]
    mean: dict[str, dict[str, float]]


class SampleCounts(_Record):
    """How many images of a data set are behind the numbers."""

    original: int  # to evaluate
    effective: int  # with a row in every cell
    failed: int
    whole: int  # of the complete set


class Fingerprints(_Record):
    """Hashes (sha256) of what decides the numbers."""

    run: str
    model: str
    datasets: dict[str, str]


class Dates(_Record):
    exported: str
    sessions: tuple[dict[str, JsonValue], ...]


class Results(_Record):
    """The content of results.json."""

    results: dict[str, dict[str, MethodRecord]]  # by data set and method (`d-tpt@100000`)
    groups: dict[str, GroupRecord]  # by family with more than one data set
    configs: dict[str, DatasetSpec]
    versions: dict[str, str | int]
    higher_is_better: dict[str, bool | None]  # by metric; None where neither direction is better
    units: dict[str, str]
    n_samples: dict[str, SampleCounts] = Field(
        validation_alias="n-samples", serialization_alias="n-samples"
    )
    config: RunSpec
    fingerprints: Fingerprints
    complete: bool  # whether every image has a row everywhere
    failures: tuple[Failure, ...]
    notes: dict[str, tuple[str, ...]]  # by data set; "" for the whole run
    environment: tuple[dict[str, JsonValue], ...]  # distinct machines and versions
    date: Dates  # the only entry that differs between equal runs

    def document(self) -> dict[str, Any]:
        """Return the content as plain data, with the keys of the file."""
        return self.model_dump(mode="json", by_alias=True)

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def results_of(run: Run, scores: Sequence[MethodResult] | None = None) -> Results:
    """Summarise a run; `scores` are those of `score_methods`, when the caller has them."""
    methods = score_methods(run) if scores is None else scores
    metrics = metrics_with(known=("confidence", "label"))
    counts, failures, sessions = run.counts(), run.failures(), run.sessions()
    environments = {json.dumps(s.get("environment", {}), sort_keys=True) for s in sessions}
    spec = run.spec
    return Results(
        results={
            name: {m.label: _method_record(m) for m in methods if m.dataset == name}
            for name in run.datasets
        },
        groups=_groups(spec, methods),
        configs={entry.name: entry for entry in spec.datasets},
        versions={"dtpt": spec.code_version, "spec": spec.format},
        higher_is_better={metric.key: metric.higher_is_better for metric in metrics},
        units={metric.key: metric.file_unit for metric in metrics},
        n_samples={
            entry.name: SampleCounts(
                original=entry.samples,
                effective=min(ok for c, (ok, _) in counts.items() if c.dataset == entry.name),
                failed=sum(failure.dataset == entry.name for failure in failures),
                whole=entry.whole,
            )
            for entry in spec.datasets
        },
        config=spec,
        fingerprints=Fingerprints(
            run=spec.hash,
            model=spec.model.fingerprint,
            datasets={entry.name: entry.fingerprint for entry in spec.datasets},
        ),
        complete=is_complete(run, counts),
        failures=tuple(failures),
        notes=run.notes(),
        environment=tuple(map(json.loads, sorted(environments))),
        date=_dates(sessions),
    )


def _method_record(result: MethodResult) -> MethodRecord:
    return MethodRecord(
        mean=result.mean or None,
        std=result.std or None,
        seeds={
            str(seed): {**cell.metrics, "n": cell.effective, "failed": cell.failed}
            for seed, cell in result.seeds.items()
        },
        selected_lambda={str(seed): value for seed, value in result.selected_lambdas.items()},
    )


def _groups(spec: RunSpec, methods: Sequence[MethodResult]) -> dict[str, GroupRecord]:
    families: dict[str, list[str]] = {}
    for entry in spec.datasets:
        families.setdefault(entry.family, []).append(entry.name)
    groups = {}
    for family, datasets in families.items():
        means: dict[str, list[dict[str, float]]] = {}
        for method in methods:
            if method.dataset in datasets and method.mean:
                means.setdefault(method.label, []).append(method.mean)
        if len(datasets) > 1:
            groups[family] = GroupRecord(
                datasets=tuple(datasets),
                mean={
                    label: {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}
                    for label, parts in means.items()
                    if len(parts) == len(datasets)
                },
            )
    return groups


def _dates(sessions: Sequence[Mapping[str, Any]]) -> Dates:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    kept = ({k: v for k, v in session.items() if k != "environment"} for session in sessions)
    return Dates(exported=now, sessions=tuple(kept))
