"""From one or several runs to cells with metrics, or a refusal: never a wrong mean.

Every metric is recomputed from all rows. What must not be mixed is refused (two class lists under
one name, two versions of a set, rows that contradict each other); what is missing stays visible.
Runs of different models, templates, contexts, tuning settings or precision are separate
*conditions*, each with tables of its own.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dtpt.errors import ReportError
from dtpt.report.gathering.remarks import remarks
from dtpt.report.gathering.scored_cells import (
    RECORD,
    Condition,
    Contender,
    Gathered,
    ScoredCell,
    Source,
)
from dtpt.runs.merging import join_columns
from dtpt.runs.reading import Run
from dtpt.runs.rows import Columns, column_types
from dtpt.runs.shards import store_files
from dtpt.runs.spec import Cell, DatasetSpec, canonical_json


def gather(paths: Sequence[Path | str]) -> Gathered:
    """Read runs and shards into conditions with cells.

    The stores stay open until `Gathered.close`; after an error none is.

    Args:
        paths: Run folders, folders of shards, or SQLite files.

    Raises:
        ReportError: Nothing to report, or runs that must not be put together.
        RunError: There is no run, or it is damaged.
    """
    if not paths:
        raise ReportError("No run is given: name at least one folder made by `dtpt eval`.")
    files = list(dict.fromkeys(f.resolve() for path in paths for f in store_files(path)))
    with ExitStack() as stack:
        loaded = [_load(stack.enter_context(Run(file))) for file in files]
        gathered = _gathered(loaded)
        stack.pop_all()
    return gathered


@dataclass(frozen=True)
class _Loaded:
    """One store: what it is, its rows, and its numbers of successes and failures by cell."""

    source: Source
    columns: dict[Cell, Columns]
    counts: dict[Cell, tuple[int, int]]


def _load(run: Run) -> _Loaded:
    names = ("", *run.datasets)
    source = Source(
        run=run,
        path=run.path,
        spec=run.spec,
        sessions=tuple(run.sessions()),
        classes={name: run.classes(name) for name in run.datasets},
        failures=tuple((f.dataset, f.sample, f.reason) for f in run.failures()),
        remarks=tuple((name, text) for name in names for text in run.remarks(name)),
    )
    return _Loaded(source, run.columns(*RECORD), run.counts())


def _gathered(loaded: Sequence[_Loaded]) -> Gathered:
    sources = tuple(item.source for item in loaded)
    _check_tasks(sources)
    conditions = _conditions(loaded)
    if not any(cell.effective for condition in conditions for cell in condition.cells.values()):
        where = ", ".join(str(source.path) for source in sources)
        raise ReportError(f"No picture has been evaluated yet in {where}: finish `dtpt eval`.")
    return Gathered(sources, conditions, tuple(remarks(sources, conditions)))


def _check_tasks(sources: Sequence[Source]) -> None:
    """Refuse one data set name that means two class lists or two sets of pictures."""
    seen: dict[str, tuple[Source, DatasetSpec]] = {}
    for source in sources:
        for entry in source.spec.datasets:
            other, known = seen.setdefault(entry.name, (source, entry))
            if entry.fingerprint == known.fingerprint:
                continue
            theirs, ours = other.classes.get(entry.name), source.classes.get(entry.name)
            what = "class lists" if theirs != ours else "pictures or labels"
            raise ReportError(
                f"{other.path} and {source.path} have different {what} under the name "
                f"{entry.name!r}: no mean over them would mean anything. Report them apart."
            )


def _conditions(loaded: Sequence[_Loaded]) -> tuple[Condition, ...]:
    grouped: dict[tuple[str, ...], list[_Loaded]] = {}
    for item in loaded:
        spec = item.source.spec
        key = (spec.model.fingerprint, spec.template, str(spec.context), spec.precision)
        grouped.setdefault((*key, canonical_json(spec.tuning)), []).append(item)
    return tuple(_condition(items) for items in grouped.values())


def _condition(items: Sequence[_Loaded]) -> Condition:
    first = items[0].source.spec
    parts: dict[Cell, list[_Part]] = {}
    expected: dict[Cell, int] = {}
    for item in items:
        for cell in item.source.run.cells:
            part = _Part(item.source.run, item.columns.get(cell), item.counts[cell][1])
            parts.setdefault(cell, []).append(part)
            expected[cell] = item.source.spec.dataset(cell.dataset).samples
    scored = [_score(cell, found, expected=expected[cell]) for cell, found in parts.items()]
    return Condition(
        model=first.model.name,
        fingerprint=first.model.fingerprint,
        template=first.template,
        context=first.context,
        tuning=first.tuning,
        datasets=_datasets(items),
        seeds=tuple(sorted({seed for item in items for seed in item.source.spec.seeds})),
        cells={(cell.dataset, cell.contender, cell.seed): cell for cell in scored},
        sources=tuple(item.source for item in items),
        precision=first.precision,
    )


@dataclass(frozen=True)
class _Part:
    """What one store holds of a cell."""

    run: Run
    records: Columns | None
    failed: int


def _score(cell: Cell, parts: Sequence[_Part], *, expected: int) -> ScoredCell:
    """Put together what the stores (shards, copies) have of one cell."""
    filled = [(part.run, part.records) for part in parts if part.records is not None]
    records = join_columns(cell, filled) if filled else np.empty(0, column_types(RECORD))
    # a picture that failed in one store may have succeeded in another
    failed = min(sum(part.failed for part in parts), max(expected - len(records), 0))
    contender = Contender(cell.method, cell.lambda_)
    return ScoredCell(cell.dataset, contender, cell.seed, expected, failed, records)


def _datasets(items: Sequence[_Loaded]) -> dict[str, DatasetSpec]:
    """Return each data set's entry; refuse one with different sizes or views in one condition."""
    found: dict[str, tuple[Path, DatasetSpec]] = {}
    for source in (item.source for item in items):
        for entry in source.spec.datasets:
            other, known = found.setdefault(entry.name, (source.path, entry))
            for name in ("samples", "presentation", "views"):
                mine, theirs = getattr(entry, name), getattr(known, name)
                if mine != theirs:
                    raise ReportError(
                        f"{other} and {source.path} evaluate {entry.name!r} with different {name} "
                        f"({theirs} and {mine}): their cells must not share a table. Report them "
                        "apart."
                    )
    return {name: entry for name, (_, entry) in found.items()}
