"""Merging the stores of a run: into one file, or in memory for a report."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from dtpt.errors import RunError
from dtpt.runs.reading import Run, open_run
from dtpt.runs.rows import Columns
from dtpt.runs.shards import MAIN_STORE, Shard, shard_files
from dtpt.runs.spec import Cell, RunSpec, describe_difference
from dtpt.runs.store import Store


def merge(folder: Path, *, partial: bool = False) -> Run:
    """Merge all shards of a folder into its `run.sqlite`.

    Raises:
        RunError: No shards, different configurations, rows that contradict each other, or missing
            rows (unless `partial`); the shards stay as they are.
    """
    shards = shard_files(folder)
    if not shards:
        raise RunError(f"{folder} holds no shards (shard-1-of-4.sqlite, ...).")
    specs = {}
    for path in shards:
        with Run(path) as part:
            specs[path] = part.spec
    with Store(folder / MAIN_STORE, _largest(specs)) as store:
        for path in shards:
            store.merge_from(path)
    run = open_run(folder)
    if not run.is_complete and not partial:
        missing = _describe_missing(run, shards)
        run.close()
        raise RunError(
            f"{folder}: {len(shards)} shards were merged, but rows are missing "
            f"({missing}). Finish the shards and merge again, or use --partial."
        )
    return run


def _largest(specs: Mapping[Path, RunSpec]) -> RunSpec:
    """Return the configuration all shards share (one may have a larger limit)."""
    (first, chosen), *others = specs.items()
    for path, spec in others:
        if spec.only_enlarges(chosen):
            first, chosen = path, spec
        elif not chosen.only_enlarges(spec):
            lines = "".join(f"\n  {line}" for line in describe_difference(chosen, spec))
            raise RunError(f"{first} and {path} are not of one run:{lines}")
    return chosen


def _describe_missing(run: Run, shards: Sequence[Path]) -> str:
    counts = {int(path.stem.rsplit("-", 1)[1]) for path in shards}
    names = {path.name for path in shards}
    absent = [
        Shard(i, n).file_name
        for n in counts
        for i in range(1, n + 1)
        if Shard(i, n).file_name not in names
    ]
    if absent and len(counts) == 1:
        return f"{', '.join(absent[:5])} not found"
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    rows = sum(expected[cell.dataset] - sum(pair) for cell, pair in run.counts().items())
    return f"{rows} rows of unfinished shards"


def merge_columns(cell: Cell, parts: Sequence[tuple[Run, Columns]]) -> Columns:
    """Merge the columns of one cell from several stores (shards, copies); equal rows count once.

    `parts` are stores with what `Run.columns` gave, `sample` among it; at least one.

    Raises:
        RunError: Two stores have a row of the same sample, and they differ.
    """
    if len(parts) == 1:
        return parts[0][1]
    table = np.concatenate([columns for _, columns in parts])
    samples = table["sample"].astype(str)
    unique, first, inverse = np.unique(samples, return_index=True, return_inverse=True)
    differing = np.flatnonzero(table != table[first][inverse])
    if len(differing):
        raise RunError(
            f"{parts[0][0].path} and {parts[-1][0].path} contradict each other on sample "
            f"{str(unique[inverse[differing[0]]])!r} of {cell.dataset}, {cell.label}, "
            f"seed {cell.seed}: they were computed on different machines or data; use one of them."
        )
    merged: Columns = table[first]
    return merged
