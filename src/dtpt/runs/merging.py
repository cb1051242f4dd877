"""Merging the stores of a run: into one file, or in memory for a report."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dtpt.errors import RunError
from dtpt.runs.reading import Run, join_clusters, open_file, open_run
from dtpt.runs.rows import Columns
from dtpt.runs.schema import lock_store, replace_store, store_errors
from dtpt.runs.shards import MAIN_STORE, Shard, shard_files, store_files
from dtpt.runs.spec import Cell, RunSpec, describe_difference
from dtpt.runs.store import SampleRecord, Store


def merge(folder: Path, *, partial: bool = False) -> Run:
    """Merge all shards of a folder into its `run.sqlite`.

    Raises:
        RunError: No shards, different configurations, images or rows that contradict each other, or
            missing rows (unless `partial`); then no file is changed.
    """
    shards, main = shard_files(folder), folder / MAIN_STORE
    if not shards:
        raise RunError(f"{folder} holds no shards (shard-1-of-4.sqlite, ...).")
    with ExitStack() as stack:
        if main.exists():  # whoever made it may still be writing
            stack.callback(lock_store(main).release)
        paths = [*shards, main] if main.exists() else shards
        with store_errors(main):
            scratch = TemporaryDirectory(prefix=".merge-", dir=folder)
        merged = Path(stack.enter_context(scratch)) / MAIN_STORE
        runs = [stack.enter_context(Run(path)) for path in paths]
        _merge_into(merged, runs, spec=_largest({run.path: run.spec for run in runs}))
        with Run(merged) as run:
            if not run.is_complete and not partial:
                raise RunError(
                    f"{folder}: rows are missing ({_describe_missing(run, shards)}), so nothing "
                    "was merged. Finish the shards and merge again, or use --partial."
                )
        if main not in paths:
            stack.callback(lock_store(main).release)
        replace_store(main, merged)
    return open_run(folder)


def join(paths: Sequence[Path | str], joined: Path) -> Run:
    """Join the rows of runs that differ in methods, seeds and data sets alone, in a new store.

    Folders of shards and published runs are taken too.

    Raises:
        RunError: The runs differ in more, contradict each other, or lack a row under some seed.
    """
    files = dict.fromkeys(f.resolve() for path in paths for f in store_files(path))
    with ExitStack() as stack:
        runs = [stack.enter_context(open_file(file)) for file in files]
        _merge_into(joined, runs, spec=_union({run.path: run.spec for run in runs}))
    run = Run(joined, is_trusted=True)
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    lacking = [c for c, pair in run.counts().items() if sum(pair) < expected[c.dataset]]
    if not lacking:
        return run
    run.close()
    first, more = lacking[0], f", and {len(lacking) - 1} more" if lacking[1:] else ""
    raise RunError(
        f"Together {', '.join(map(str, paths))} lack rows of {first.label} on {first.dataset}, "
        f"seed {first.seed}{more}: every method needs all images under all seeds. Finish them, or "
        "leave a run out."
    )


def _merge_into(merged: Path, runs: Sequence[Run], *, spec: RunSpec) -> None:
    pair_samples(runs)
    with Store(merged, spec) as store:
        for count, run in enumerate(runs):
            if what := store.contradiction(run.path):
                first = next(one.path for one in runs[:count] if one.contradiction(run.path))
                raise RunError(_contradiction(first, run.path, what=what))
            store.merge_from(run.path)


def _contradiction(first: Path, second: Path, *, what: str) -> str:
    return (
        f"{first} and {second} contradict each other on {what}: they were computed on different "
        "machines or data; use one of them."
    )


def _largest(specs: Mapping[Path, RunSpec]) -> RunSpec:
    """Return the configuration all shards share (one may have a larger limit)."""
    (first, chosen), *others = specs.items()
    for path, spec in others:
        if spec.only_enlarges(chosen):
            first, chosen = path, spec
        elif not chosen.only_enlarges(spec):
            lines = "".join(f"\n  {line}" for line in describe_difference(chosen, spec))
            raise RunError(f"{first} and {path} are not of one run:{lines}\nMove one of them away.")
    return chosen


def _union(specs: Mapping[Path, RunSpec]) -> RunSpec:
    """Return the configuration with the methods, seeds and data sets of all."""
    (first, joined), *others = specs.items()
    for path, spec in others:
        datasets = {entry.name: entry for entry in joined.datasets}
        for entry in spec.datasets:
            mine = datasets.setdefault(entry.name, entry)
            methods = tuple(dict.fromkeys((*mine.methods, *entry.methods)))
            datasets[entry.name] = mine.model_copy(update={"methods": methods})
        joined = joined.model_copy(
            update={
                "datasets": tuple(datasets.values()),
                "seeds": tuple(sorted({*joined.seeds, *spec.seeds})),
                "order": joined.order or spec.order,
            }
        )
        if differences := describe_difference(_part(joined, spec), spec):
            lines = "".join(f"\n  {line}" for line in differences)
            raise RunError(
                f"{first} and {path} differ in more than methods, seeds and data sets:{lines}"
            )
    return joined


def _part(joined: RunSpec, spec: RunSpec) -> RunSpec:
    """Return of a joined configuration what should be a run of its own."""
    datasets = (
        joined.dataset(e.name).model_copy(update={"methods": e.methods}) for e in spec.datasets
    )
    order = joined.order and spec.order
    return joined.model_copy(
        update={"datasets": tuple(datasets), "seeds": spec.seeds, "order": order}
    )


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
    rows = sum(max(expected[c.dataset] - sum(pair), 0) for c, pair in run.counts().items())
    return f"{rows} rows of unfinished shards"


def pair_samples(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """Return the cluster of every sample, by data set and id, as all stores together know it.

    Raises:
        RunError: Two stores have different images, or labels, under one id.
    """
    clusters = {}
    for name in dict.fromkeys(name for run in runs for name in run.datasets):
        seen: dict[str, tuple[Run, SampleRecord]] = {}
        parts = [(run, run.samples(name)) for run in runs if name in run.datasets]
        for run, samples in parts:
            for sample in samples.values():
                other, first = seen.setdefault(sample.id, (run, sample))
                if what := _difference(first, sample):
                    raise RunError(
                        f"{other.path} and {run.path} have different {what} under {sample.id!r} of "
                        f"{name}, so their rows cannot be paired: evaluate both on the same files, "
                        "or pass them to separate commands."
                    )
                if first.image_key is None:  # it could not be read there
                    seen[sample.id] = run, sample
        clusters[name] = join_clusters(s for _, samples in parts for s in samples.values())
    return clusters


def _difference(first: SampleRecord, second: SampleRecord) -> str:
    if first.label != second.label:
        return f"labels ({first.label} and {second.label})"
    keys = first.image_key, second.image_key
    return "images" if None not in keys and keys[0] != keys[1] else ""


def merge_columns(
    cell: Cell, parts: Sequence[tuple[Run, Columns]], *, clusters: Mapping[str, str]
) -> Columns:
    """Merge the columns of one cell from several stores (shards, copies); equal rows count once.

    `parts` are stores with what `Run.columns` gave, `sample` and `cluster` among it; at least one.
    `clusters` are those of all stores together, by sample id.

    Raises:
        RunError: Two stores have a row of the same sample, and they differ.
    """
    table = np.concatenate([columns for _, columns in parts])
    table["cluster"] = [clusters.get(sample, sample) for sample in table["sample"]]
    if len(parts) == 1:
        return table
    samples = table["sample"].astype(str)
    unique, first, inverse = np.unique(samples, return_index=True, return_inverse=True)
    differing = np.flatnonzero(table != table[first][inverse])
    if len(differing):
        row = int(differing[0])
        # (rows,) the store of each row
        owners = np.repeat(np.arange(len(parts)), [len(columns) for _, columns in parts])
        one, two = (parts[owners[index]][0].path for index in (first[inverse[row]], row))
        what = f"{str(unique[inverse[row]])!r} ({cell.dataset}, {cell.label}, seed {cell.repeat})"
        raise RunError(_contradiction(one, two, what=what))
    merged: Columns = table[first]
    return merged
