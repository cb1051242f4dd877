"""From the stores of a run to a record."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dtpt.errors import ReportError
from dtpt.metrics import Interval, calibrated_ece
from dtpt.report.comparison import POOLED, FamilyComparison, Resampling, compare_families
from dtpt.report.derived_rows import FittedElsewhere, fit_elsewhere, with_derived_rows
from dtpt.report.gathering import Condition, gather
from dtpt.report.gathering.scored_cells import Contender
from dtpt.report.recorded.schema import (
    Record,
    RecordedDifference,
    RecordedFamily,
    RecordedRow,
    RecordedSet,
    RecordedValue,
)
from dtpt.report.repeat_commands import run_command
from dtpt.report.verdict import family_verdict

SET_METRICS = ("accuracy", "signed_gap", "ece", "floor", "brier", "nll", "aurc")


def make_record(
    runs: Sequence[Path | str],
    *,
    methods: Collection[str] = (),
    command: str = "",
    resampling: Resampling | None = None,
) -> Record:
    """Return the record of a run.

    Args:
        runs: Its folder, or its shards; one model, prompt and setting.
        methods: Names of the methods to keep, with all their weights; all when empty.
        command: That makes the run again; the run's own when empty.
        resampling: How differences are judged.

    Raises:
        ReportError: Several models or settings, or a method that lacks pictures.
    """
    with gather(runs) as gathered:
        if len(gathered.conditions) != 1:
            raise ReportError("A record is made of one model, prompt and setting: name one run.")
        gathered = replace(gathered, conditions=(_kept(gathered.conditions[0], methods),))
        fitted = fit_elsewhere(gathered.conditions[0])
        (condition,) = with_derived_rows(gathered, fitted).conditions
        _check_complete(condition)
        own = run_command(gathered.sources[0]).rpartition(" --output ")[0]
        sessions = [session for source in gathered.sources for session in source.sessions]
        version = gathered.sources[0].spec.code_version
    families = compare_families(condition, resampling)
    return Record(
        command=command or f"{own} --output runs/recorded",
        model=condition.model,
        fingerprint=condition.fingerprint,
        template=condition.template,
        tuning=dict(condition.tuning),
        views=dict(next(iter(condition.datasets.values())).views),
        seeds=condition.seeds,
        started=min((str(session["started"]) for session in sessions), default=""),
        seconds=sum(session.get("seconds") or 0.0 for session in sessions),
        environment=dict(sessions[-1].get("environment", {})) if sessions else {},
        code_version=version,
        sets={name: _set(condition, name, fitted=fitted) for name in condition.datasets},
        families=tuple(_family(one) for one in families),
    )


def _kept(condition: Condition, methods: Collection[str]) -> Condition:
    """Return a condition with some of its methods."""
    if not methods:
        return condition
    cells = {key: cell for key, cell in condition.cells.items() if key[1].method in methods}
    return replace(condition, cells=cells)


def _check_complete(condition: Condition) -> None:
    for cell in condition.cells.values():
        if not cell.is_finished:
            raise ReportError(
                f"{cell.dataset}, {cell.contender.label}, seed {cell.seed}: {cell.effective:,} of "
                f"{cell.expected:,} pictures are evaluated; a record needs all. Finish the run."
            )


def _set(condition: Condition, name: str, *, fitted: FittedElsewhere) -> RecordedSet:
    entry = condition.datasets[name]
    return RecordedSet(
        fingerprint=entry.fingerprint,
        pictures=entry.samples,
        classes=entry.classes,
        temperature=fitted.temperatures.get(name),
        weights={m: weight for (m, other), weight in fitted.weights.items() if other == name},
        values={
            contender.label: {
                metric: float(np.mean([cell.metric(metric) for cell in cells]))
                for metric in SET_METRICS
            }
            for contender in condition.contenders([name])
            if (cells := condition.finished(name, contender))
        },
    )


def _family(comparison: FamilyComparison) -> RecordedFamily:
    names = ("first", "second", "metric", "estimate", "low", "high")
    return RecordedFamily(
        title=comparison.title,
        sets=comparison.sets,
        pictures=comparison.pictures,
        rows=tuple(_row(comparison, contender) for contender in comparison.contenders),
        differences=tuple(
            RecordedDifference(**{name: _short(getattr(one, name)) for name in names})
            for one in comparison.comparisons
        ),
        verdict=family_verdict(replace(comparison, size="")).sentences,
    )


def _short(value: Any) -> Any:
    """Return a number in as many digits as an interval is worth."""
    return round(value, 6) if isinstance(value, float) else value


def _row(comparison: FamilyComparison, contender: Contender) -> RecordedRow:
    values = {}
    for metric in POOLED:
        value = comparison.value(contender, metric)
        interval = comparison.interval(contender, metric) or Interval(low=value, high=value)
        seeds = comparison.pooled[contender.label].seeds
        floors = [calibrated_ece(seed.confidence).mean for seed in seeds if metric == "ece"]
        values[metric] = RecordedValue(
            value=value,
            low=_short(interval.low),
            high=_short(interval.high),
            best=comparison.best(metric) == contender,
            floor=float(np.mean(floors)) if floors else None,
        )
    return RecordedRow(
        method=contender.method,
        lambda_=contender.lambda_,
        derived=contender.derived,
        values=values,
    )
