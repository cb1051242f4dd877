"""From one or several runs to cells with metrics, or a refusal: never a wrong mean.

Every metric is recomputed from all rows. What must not be mixed is refused (two class lists under
one name, two versions of a set, rows that contradict each other); what is missing stays visible.
Runs of different models, templates, contexts or tuning settings become separate *blocks*, each with
tables of its own.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dtpt.errors import ReportError
from dtpt.report.cells import RECORD, Block, CellScore, Gathered, Records, Source
from dtpt.report.remarks import remarks
from dtpt.runs.reading import Run
from dtpt.runs.schema import Cell, connect_for_reading, explained
from dtpt.runs.spec import DatasetSpec, RunSpec, canonical_json
from dtpt.runs.store import MAIN_STORE

_QUERY = """
SELECT cell, label = prediction, confidence, coalesce(zero_shot_confidence, -1.0)
FROM rows WHERE status = 'ok'
"""  # the primary key (cell, sample) gives the order


def gather(paths: Sequence[Path | str]) -> Gathered:
    """Read runs and shards into blocks of cells.

    Args:
        paths: Run folders, folders of shards, or SQLite files.

    Raises:
        ReportError: Nothing to report, or runs that must not be put together.
    """
    if not paths:
        raise ReportError("No run is given: name at least one folder made by `dtpt eval`.")
    files = list(dict.fromkeys(f.resolve() for path in paths for f in store_files(Path(path))))
    loaded = [_load(file) for file in files]
    sources = tuple(source for source, _, _ in loaded)
    _check_tasks(sources)
    blocks = _blocks(loaded)
    if not any(cell.effective for block in blocks for cell in block.cells.values()):
        where = ", ".join(str(source.path) for source in sources)
        raise ReportError(f"No picture has been evaluated yet in {where}: finish `dtpt eval`.")
    return Gathered(sources, blocks, tuple(remarks(sources, blocks)))


def store_files(path: Path) -> list[Path]:
    """Return the stores that a folder (or file) means: the whole run, else all its shards."""
    if path.is_file():
        return [path]
    if (path / MAIN_STORE).is_file():
        return [path / MAIN_STORE]
    shards = sorted(path.glob("shard-*-of-*.sqlite"))
    if not shards:
        raise ReportError(f"There is no run at {path}: expected {MAIN_STORE} or shards in it.")
    return shards


Loaded = tuple[Source, dict[int, Records], dict[int, int]]


def _load(path: Path) -> Loaded:
    """Read one store: what it is, its rows and its number of failures by cell key."""
    with Run(path) as run:
        source = Source(
            path=path,
            spec=run.spec,
            sessions=tuple(run.sessions()),
            classes={name: run.classes(name) for name in run.datasets},
            failures=tuple((f.dataset, f.sample, f.reason) for f in run.failures()),
        )
    connection = connect_for_reading(path)
    try:
        with explained(path):
            records = _read_records(connection)
            failed = dict(
                connection.execute(
                    "SELECT cell, count(*) FROM rows WHERE status = 'failed' GROUP BY cell"
                )
            )
    finally:
        connection.close()
    return source, records, failed


def _read_records(connection: sqlite3.Connection) -> dict[int, Records]:
    """Read all successful rows at once and cut them into cells."""
    (count,) = connection.execute("SELECT count(*) FROM rows WHERE status = 'ok'").fetchone()
    table = np.fromiter(connection.execute(_QUERY), dtype=RECORD, count=count)
    if not count:
        return {}
    starts = np.flatnonzero(np.append(True, np.diff(table["cell"]) != 0))
    parts = np.split(table, starts[1:])
    return {int(part["cell"][0]): part for part in parts}


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


def _blocks(loaded: Sequence[Loaded]) -> tuple[Block, ...]:
    grouped: dict[tuple[str, ...], list[Loaded]] = {}
    for item in loaded:
        spec = item[0].spec
        key = (spec.model.fingerprint, spec.template, str(spec.context))
        grouped.setdefault((*key, canonical_json(spec.tuning)), []).append(item)
    return tuple(_block(items) for items in grouped.values())


def _block(items: Sequence[Loaded]) -> Block:
    first = items[0][0].spec
    parts: dict[Cell, list[_Part]] = {}
    expected: dict[Cell, int] = {}
    for source, records, failed in items:
        for cell, entry in _planned(source.spec):
            part = _Part(source.path, records.get(cell.key), failed.get(cell.key, 0))
            parts.setdefault(cell, []).append(part)
            expected[cell] = entry.samples
    return Block(
        model=first.model.name,
        fingerprint=first.model.fingerprint,
        template=first.template,
        context=first.context,
        tuning=first.tuning,
        datasets=_datasets(items),
        seeds=tuple(sorted({seed for source, _, _ in items for seed in source.spec.seeds})),
        cells={
            (cell.dataset, cell.label, cell.seed): _score(cell, found, expected[cell])
            for cell, found in parts.items()
        },
    )


@dataclass(frozen=True)
class _Part:
    """What one store holds of a cell."""

    path: Path
    records: Records | None
    failed: int


def _score(cell: Cell, parts: Sequence[_Part], expected: int) -> CellScore:
    """Put together what the stores (shards, copies) have of one cell."""
    filled = [part for part in parts if part.records is not None]
    if not filled:
        records = np.empty(0, RECORD)
    elif len(filled) == 1:
        records = filled[0].records  # type: ignore[assignment]  # filled means not None
    else:
        records = _union(cell, filled)
    # a picture that failed in one store may have succeeded in another
    failed = min(sum(part.failed for part in parts), max(expected - len(records), 0))
    return CellScore(cell.dataset, cell.method, cell.lambda_, cell.seed, expected, failed, records)


def _union(cell: Cell, parts: Sequence[_Part]) -> Records:
    """Join the rows of several stores by sample id; equal ones count once."""
    ids = np.concatenate([_sample_ids(part.path, cell) for part in parts])
    records = np.concatenate([part.records for part in parts if part.records is not None])
    if len(ids) != len(records):
        raise ReportError(f"{parts[-1].path} changed while it was read: make the report again.")
    unique, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    differing = np.flatnonzero(records != records[first][inverse])
    if len(differing):
        raise ReportError(
            f"{parts[0].path} and {parts[-1].path} contradict each other on sample "
            f"{str(unique[inverse[differing[0]]])!r} of {cell.dataset}, {cell.label}, "
            f"seed {cell.seed}: they were computed on different machines or data; report one."
        )
    chosen: Records = records[first]
    return chosen


def _sample_ids(path: Path, cell: Cell) -> npt.NDArray[np.str_]:
    """Return the ids of a cell's successful rows, in the order of its records."""
    connection = connect_for_reading(path)
    try:
        with explained(path):
            query = "SELECT sample FROM rows WHERE cell = ? AND status = 'ok' ORDER BY sample"
            return np.array([name for (name,) in connection.execute(query, (cell.key,))])
    finally:
        connection.close()


def _planned(spec: RunSpec) -> Iterable[tuple[Cell, DatasetSpec]]:
    for entry in spec.datasets:
        for seed in spec.seeds:
            for method in entry.methods:
                yield Cell(entry.name, method.name, method.lambda_, seed, spec.template), entry


def _datasets(items: Sequence[Loaded]) -> dict[str, DatasetSpec]:
    """Return each data set's entry; refuse one with different sizes or views in one block."""
    found: dict[str, tuple[Path, DatasetSpec]] = {}
    for source, _, _ in items:
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
