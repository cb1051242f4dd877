"""Shards of a run for many processes or machines, the files of a run, and merging them.

A sample belongs to a shard by the hash of its id, so shards are disjoint and about equally large
whatever the order. Each writes its own SQLite file: one writer per file also suits network file
systems.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dtpt.errors import RunError

MAIN_STORE = "run.sqlite"
MANIFEST = "published.json"  # of a run that `dtpt publish` wrote
# (number of this process, number of processes) in the environments of torchrun and Slurm
ENVIRONMENTS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


@dataclass(frozen=True)
class Shard:
    """Shard `index` (from 1) of `count`.

    Example:
        >>> Shard(2, 4).file_name
        'shard-2-of-4.sqlite'
    """

    index: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def file_name(self) -> str:
        if self.count == 1:
            return MAIN_STORE
        return f"shard-{self.index}-of-{self.count}.sqlite"

    def holds(self, sample_id: str) -> bool:
        if self.count == 1:
            return True
        digest = hashlib.sha256(f"shard:{sample_id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index - 1


def find_shard(given: str | None, environment: Mapping[str, str] | None = None) -> Shard:
    """Return the shard to work on: as given ("2/4"), else from RANK or Slurm, else all.

    Example:
        >>> find_shard(None, {"RANK": "0", "WORLD_SIZE": "4"})
        Shard(index=1, count=4)
    """
    if given:
        match = re.fullmatch(r"\s*(\d{1,6})\s*/\s*(\d{1,6})\s*", given)
        if match is None:
            raise RunError(f"--shard is {given!r}; expected i/n, for example 2/4.")
        return _checked(int(match[1]), int(match[2]), source=f"--shard {given}")
    variables = os.environ if environment is None else environment
    for rank, size in ENVIRONMENTS:
        values = variables.get(rank, ""), variables.get(size, "")
        if all(values):
            if not all(value.isdecimal() for value in values):
                raise RunError(f"{rank} and {size} must be whole numbers; or use --shard.")
            number, count = map(int, values)
            return _checked(number + 1, count, source=f"{rank}={number} and {size}={count}")
    return Shard()


def _checked(index: int, count: int, *, source: str) -> Shard:
    if not 1 <= index <= count:
        raise RunError(f"{source}: the shard must be between 1 and the number of shards.")
    return Shard(index, count)


def shard_files(folder: Path) -> list[Path]:
    """Return the stores of shards in a run's folder, by name."""
    return sorted(folder.glob("shard-*-of-*.sqlite"))


def store_files(path: Path | str) -> list[Path]:
    """Return what holds the rows at a path: a file itself, a folder's run, else its shards."""
    given = Path(path)
    for file in (given, given / MAIN_STORE, given / MANIFEST):
        if file.is_file():
            return [file]
    shards = shard_files(given)
    if not shards:
        raise RunError(
            f"There is no run at {given}: expected {MAIN_STORE} or shards in it, or "
            f"a run that `dtpt publish` wrote."
        )
    return shards


def other_stores(folder: Path, shard: Shard) -> list[Path]:
    """Return stores that may hold rows of this shard: all but those of the same division."""
    same = re.compile(rf"shard-\d+-of-{shard.count}\.sqlite")
    main = folder / MAIN_STORE
    others = [path for path in shard_files(folder) if not same.fullmatch(path.name)]
    return [*others, main] if shard.count > 1 and main.exists() else others
