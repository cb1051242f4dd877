"""Shares of a run for many processes or machines, and joining them again.

A sample belongs to a shard by the hash of its id, so shards are disjoint and about equally large
whatever the order. Each writes its own SQLite file (one writer per file also suits network file
systems); `merge` compares configurations and rows before it joins them.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dtpt.errors import RunError
from dtpt.runs.reading import Run, open_run
from dtpt.runs.schema import connect_for_reading, explained
from dtpt.runs.spec import RunSpec, describe_difference
from dtpt.runs.store import MAIN_STORE, Store, read_spec

# (number of this process, number of processes) in the environments of torchrun and Slurm
ENVIRONMENTS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


@dataclass(frozen=True)
class Shard:
    """Share `index` (from 1) of `count`."""

    index: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def file_name(self) -> str:
        """Name of the store of this share."""
        if self.count == 1:
            return MAIN_STORE
        return f"shard-{self.index}-of-{self.count}.sqlite"

    def holds(self, sample_id: str) -> bool:
        """Tell whether a sample belongs to this share."""
        if self.count == 1:
            return True
        digest = hashlib.sha256(f"shard:{sample_id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


def find_shard(given: str | None, environment: Mapping[str, str] | None = None) -> Shard:
    """Return the share to work on: as given ("2/4"), else from RANK or Slurm, else all."""
    if given:
        return parse_shard(given)
    variables = os.environ if environment is None else environment
    for rank, size in ENVIRONMENTS:
        if variables.get(rank) and variables.get(size):
            try:
                number, count = int(variables[rank]), int(variables[size])
            except ValueError:
                raise RunError(
                    f"{rank} and {size} must be whole numbers; or use --shard."
                ) from None
            return _checked(number + 1, count, f"{rank}={number} and {size}={count}")
    return Shard()


def parse_shard(text: str) -> Shard:
    """Read "i/n" with i from 1 to n."""
    found = re.fullmatch(r"\s*(\d{1,6})\s*/\s*(\d{1,6})\s*", text)
    if found is None:
        raise RunError(f"--shard is {text!r}; expected i/n, for example 2/4.")
    return _checked(int(found[1]), int(found[2]), f"--shard {text}")


def _checked(index: int, count: int, source: str) -> Shard:
    if not 1 <= index <= count:
        raise RunError(f"{source}: the share must be between 1 and the number of shares.")
    return Shard(index, count)


def other_stores(folder: Path, shard: Shard) -> list[Path]:
    """Return stores that may hold rows of this share: all but those of the same division."""
    same = re.compile(rf"shard-\d+-of-{shard.count}\.sqlite")
    found = sorted(folder.glob("shard-*-of-*.sqlite"))
    if shard.count > 1 and (folder / MAIN_STORE).exists():
        found.append(folder / MAIN_STORE)
    return [path for path in found if not same.fullmatch(path.name)]


def merge(folder: Path, *, partial: bool = False) -> Run:
    """Join all shards of a folder into its `run.sqlite`.

    Args:
        folder: The run's folder.
        partial: Join even if rows are missing.

    Raises:
        RunError: No shards, different configurations, rows that contradict each other, or missing
            rows (unless `partial`); nothing is lost in any case.
    """
    shards = sorted(folder.glob("shard-*-of-*.sqlite"))
    if not shards:
        raise RunError(f"{folder} holds no shards (shard-1-of-4.sqlite, ...).")
    specs = {path: _spec_of(path) for path in shards}
    spec = _largest(specs)
    with Store(folder / MAIN_STORE, spec) as store:
        for path in shards:
            store.absorb(path)
    run = open_run(folder)
    if not run.is_complete and not partial:
        missing = _describe_missing(run, shards)
        run.close()
        raise RunError(
            f"{folder}: joined {len(shards)} shards, but rows are missing ({missing}). Finish the "
            "shards and merge again, or use --partial."
        )
    return run


def _spec_of(path: Path) -> RunSpec:
    connection = connect_for_reading(path)
    try:
        with explained(path):
            spec = read_spec(connection)
    finally:
        connection.close()
    if spec is None:
        raise RunError(f"{path} holds no run.")
    return spec


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


def _describe_missing(run: Run, shards: list[Path]) -> str:
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
