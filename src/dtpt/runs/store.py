"""The one truth of a run: a row per sample, method, λ, seed and template, written as it is known.

All rows of one (image, seed) are one transaction. A row that succeeded is never written again; a
failed one is replaced when the image can be read later.
"""

import datetime
import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from dtpt.errors import RunError
from dtpt.runs.schema import Cell, connect_for_writing, explained
from dtpt.runs.spec import RunSpec, canonical_json, describe_difference

MAIN_STORE = "run.sqlite"

_FIVE = "VALUES (?,?,?,?,?)"
_THIRTEEN = "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
_INSERT_ROW = f"""
INSERT INTO rows {_THIRTEEN}
ON CONFLICT (cell, sample) DO UPDATE SET
    status=excluded.status, reason=excluded.reason, prediction=excluded.prediction,
    confidence=excluded.confidence, entropy=excluded.entropy, p_label=excluded.p_label,
    sum_squares=excluded.sum_squares, top5=excluded.top5,
    zero_shot_prediction=excluded.zero_shot_prediction,
    zero_shot_confidence=excluded.zero_shot_confidence
WHERE rows.status = 'failed'
"""
_INSERT_SAMPLE = f"""
INSERT INTO samples {_FIVE}
ON CONFLICT (dataset, sample) DO UPDATE SET image_key=excluded.image_key
WHERE samples.image_key IS NULL
"""
_INSERT_SESSIONS = """
INSERT INTO sessions (started, seconds, encoded_images, environment)
SELECT started, seconds, encoded_images, environment FROM part.sessions AS theirs
WHERE NOT EXISTS (
    SELECT 1 FROM sessions AS mine
    WHERE mine.started = theirs.started AND mine.environment = theirs.environment)
"""
_CONTRADICTION = """
SELECT mine.sample FROM part.rows AS theirs JOIN rows AS mine USING (cell, sample)
WHERE mine.status = 'ok' AND theirs.status = 'ok' AND
    (mine.label, mine.prediction, mine.confidence, mine.entropy, mine.p_label, mine.sum_squares,
     mine.top5, mine.zero_shot_prediction, mine.zero_shot_confidence)
    IS NOT
    (theirs.label, theirs.prediction, theirs.confidence, theirs.entropy, theirs.p_label,
     theirs.sum_squares, theirs.top5, theirs.zero_shot_prediction, theirs.zero_shot_confidence)
"""


@dataclass(frozen=True)
class SampleInfo:
    """What belongs to a sample whatever the method."""

    dataset: str
    id: str
    label: int
    group: str = ""
    image_key: str | None = None


@dataclass(frozen=True)
class Answer:
    """What one method said about one image; probabilities are fractions, entropy is in nats.

    `p_label` (probability of the true class) and `sum_squares` (Σ p²) make NLL and Brier score
    recomputable without storing all probabilities.
    """

    prediction: int
    confidence: float
    entropy: float
    p_label: float
    sum_squares: float
    top5: tuple[tuple[int, float], ...]
    zero_shot_prediction: int
    zero_shot_confidence: float


class Store:
    """The writer of one SQLite file; a lock keeps a second writer out.

    Args:
        path: The file; its folder is made when missing.
        spec: The configuration; a store of another one is refused.
        shard: "i/n" for the record; "" for a whole run.
    """

    def __init__(self, path: Path, spec: RunSpec, *, shard: str = "") -> None:
        self.path = path
        self.spec = spec
        self.encoded_images = 0  # by the image tower in this session, for the record
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock_file(path)
        try:
            self._connection = connect_for_writing(path)
            self._adopt(spec, shard)
        except BaseException:
            self.close()
            raise
        self._session: int | None = None
        self._started = time.monotonic()

    def _adopt(self, spec: RunSpec, shard: str) -> None:
        """Write the configuration into a new store or compare it with the one that is there."""
        stored = read_spec(self._connection)
        if stored is not None and stored.hash != spec.hash and not spec.only_enlarges(stored):
            raise RunError(refusal(self.path, stored, spec))
        entries = {"spec": spec.canonical(), "spec_hash": spec.hash, "shard": shard}
        cells = [
            (cell.key, cell.dataset, cell.method, cell.lambda_, cell.seed, cell.template)
            for cell in cells_of(spec)
        ]
        with self._transaction():
            self._connection.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?,?)", entries.items()
            )
            self._connection.executemany("INSERT OR IGNORE INTO cells VALUES (?,?,?,?,?,?)", cells)

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._connection, self.path)

    def write_classes(self, dataset: str, names: Sequence[str]) -> None:
        """Record the class names of a data set, once."""
        values = [(dataset, label, name) for label, name in enumerate(names)]
        with self._transaction():
            self._connection.executemany("INSERT OR IGNORE INTO classes VALUES (?,?,?)", values)

    def begin_session(self, environment: Mapping[str, Any]) -> None:
        """Record when, where and how this process works on the run."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with self._transaction():
            cursor = self._connection.execute(
                "INSERT INTO sessions (started, environment) VALUES (?, ?)",
                (now, canonical_json(environment)),
            )
            self._session = cursor.lastrowid

    def finished(self, cell: Cell) -> set[str]:
        """Return the ids of the samples whose row of this cell is there and succeeded."""
        with explained(self.path):
            found = self._connection.execute(
                "SELECT sample FROM rows WHERE cell = ? AND status = 'ok'", (cell.key,)
            )
            return {sample for (sample,) in found}

    def write(self, sample: SampleInfo, answers: Mapping[Cell, Answer]) -> None:
        """Write all rows of one (image, seed) in one transaction."""
        rows = [_answer_row(cell, sample, answer) for cell, answer in answers.items()]
        self._write(sample, rows)

    def write_failure(self, sample: SampleInfo, cells: Sequence[Cell], *, reason: str) -> None:
        """Record that an image could not be read, for every cell that would have had a row."""
        nothing = (None,) * 8
        rows = [(cell.key, sample.id, "failed", reason, sample.label, *nothing) for cell in cells]
        self._write(sample, rows)

    def _write(self, sample: SampleInfo, rows: list[tuple[Any, ...]]) -> None:
        info = (sample.dataset, sample.id, sample.label, sample.group, sample.image_key)
        with self._transaction():
            self._connection.execute(_INSERT_SAMPLE, info)
            self._connection.executemany(_INSERT_ROW, rows)

    def absorb(self, source: Path) -> None:
        """Take over the rows of another store of the same run, in one transaction.

        Raises:
            RunError: Both have a successful row under one key, and they differ.
        """
        execute = self._connection.execute
        with explained(source):
            execute("ATTACH ? AS part", (f"{source.resolve().as_uri()}?mode=ro",))
        try:
            with self._transaction():
                self._check_agreement(source)
                execute("INSERT OR IGNORE INTO classes SELECT * FROM part.classes")
                execute(_INSERT_SAMPLE.replace(_FIVE, "SELECT * FROM part.samples WHERE true"))
                execute(_INSERT_ROW.replace(_THIRTEEN, "SELECT * FROM part.rows WHERE true"))
                execute(_INSERT_SESSIONS)
        finally:
            execute("DETACH part")

    def _check_agreement(self, source: Path) -> None:
        found = self._connection.execute(_CONTRADICTION).fetchone()
        if found is not None:
            raise RunError(
                f"{source} and {self.path} contradict each other on sample {found[0]!r}: "
                "they were computed on different machines or data; use one of them."
            )

    def close(self) -> None:
        """Note how long this session took, close the file and let go of the lock."""
        connection = getattr(self, "_connection", None)
        if connection is not None:
            with suppress(sqlite3.Error):  # a full disk must not hide the error that led here
                if getattr(self, "_session", None) is not None:
                    seconds = time.monotonic() - self._started
                    connection.execute(
                        "UPDATE sessions SET seconds = ?, encoded_images = ? WHERE id = ?",
                        (seconds, self.encoded_images, self._session),
                    )
                # one plain file, easy to copy; refused while somebody reads, which does no harm
                connection.execute("PRAGMA journal_mode=DELETE")
            connection.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Transaction:
    """BEGIN ... COMMIT, rolled back on any exception, with explained errors."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def __enter__(self) -> None:
        with explained(self._path):
            self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if kind is None:
            try:
                with explained(self._path):
                    self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            return
        self._roll_back()
        if isinstance(error, sqlite3.Error):
            with explained(self._path):
                raise error

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def cells_of(spec: RunSpec) -> list[Cell]:
    """Return every combination a run evaluates, in its order."""
    return [
        Cell(dataset.name, method.name, method.lambda_, seed, spec.template)
        for dataset in spec.datasets
        for seed in spec.seeds
        for method in dataset.methods
    ]


def read_spec(connection: sqlite3.Connection) -> RunSpec | None:
    """Return the configuration in a store, None in a new one."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'spec'").fetchone()
    return None if found is None else RunSpec.model_validate_json(found[0])


def refusal(path: Path, stored: RunSpec, spec: RunSpec) -> str:
    """Say why a folder cannot be used for another configuration."""
    lines = "".join(f"\n  {line}" for line in describe_difference(stored, spec))
    return (
        f"{path} holds a run with another configuration (there → asked for):{lines}\n"
        "Use another --output, or --fresh to move the old run aside and start anew."
    )


def lock_file(path: Path) -> IO[str] | None:
    """Hold an advisory lock beside the store; the system frees it when the process dies.

    It is a file of its own because closing any handle of the database would drop SQLite's locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows: SQLite's own locks remain
        return None
    handle = path.with_name(f".{path.name}.lock").open("a")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        raise RunError(
            f"Another process is working on {path}: wait for it, or use another --output."
        ) from None
    except OSError:  # a file system without locks
        return handle
    return handle


def set_aside(path: Path) -> Path | None:
    """Move an existing store out of the way, never over another one; return its new name."""
    if not path.exists():
        return None
    lock = lock_file(path)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    target = path.with_name(f"{path.stem}-old-{stamp}{path.suffix}")
    while target.exists():
        target = target.with_name(f"{target.stem}x{target.suffix}")
    try:
        with explained(path):
            _fold_in_log(path)
            for suffix in ("-wal", "-shm"):
                if Path(f"{path}{suffix}").exists():
                    os.replace(f"{path}{suffix}", f"{target}{suffix}")
            os.replace(path, target)
    finally:
        if lock is not None:
            lock.close()
    return target


def _fold_in_log(path: Path) -> None:
    """Bring what is in the write-ahead log into the file itself; a damaged file stays as it is."""
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(path, timeout=30)
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()


def _answer_row(cell: Cell, sample: SampleInfo, answer: Answer) -> tuple[Any, ...]:
    # nine digits give back every float32 exactly
    top5 = "[" + ",".join(f"[{label},{p:.9g}]" for label, p in answer.top5) + "]"
    return (
        cell.key,
        sample.id,
        "ok",
        None,
        sample.label,
        answer.prediction,
        answer.confidence,
        answer.entropy,
        answer.p_label,
        answer.sum_squares,
        top5,
        answer.zero_shot_prediction,
        answer.zero_shot_confidence,
    )


def read_top5(text: str) -> list[tuple[int, float]]:
    """Read the five most likely (label, probability) pairs of a row."""
    return [(int(label), float(p)) for label, p in json.loads(text)]
