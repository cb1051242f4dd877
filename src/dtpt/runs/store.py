"""The one truth of a run: a row per sample, method, λ, seed and template, written as it is known.

All rows of one (image, seed) are in one transaction. A row that succeeded is never written again; a
failed one is replaced when the image can be read later.
"""

import datetime
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self

from dtpt.errors import RunError
from dtpt.runs.locking import lock_store
from dtpt.runs.queries import (
    SampleRecord,
    Weight,
    changed_picture,
    read_finished,
    read_samples,
    read_sessions,
    read_spec,
    read_weights,
)
from dtpt.runs.schema import connect_for_writing, damaged, explained, transaction, version_of
from dtpt.runs.spec import Cell, RunSpec, canonical_json, refusal

_ROW = (
    "cell, sample, status, reason, label, prediction, confidence, entropy, p_label, sum_squares, "
    "top5, zero_shot_prediction, zero_shot_confidence, log_probabilities, weight"
)
_INSERT_ROW = f"""
INSERT INTO rows ({_ROW}) {{values}}
ON CONFLICT (cell, sample) DO UPDATE SET
    status=excluded.status, reason=excluded.reason, prediction=excluded.prediction,
    confidence=excluded.confidence, entropy=excluded.entropy, p_label=excluded.p_label,
    sum_squares=excluded.sum_squares, top5=excluded.top5,
    zero_shot_prediction=excluded.zero_shot_prediction,
    zero_shot_confidence=excluded.zero_shot_confidence,
    log_probabilities=excluded.log_probabilities, weight=excluded.weight
WHERE rows.status = 'failed'
"""
_SAMPLE = 'dataset, sample, label, "group", image_key, stamp'
# nothing is changed, and the count of changes says so, when the picture is another one than before
_INSERT_SAMPLE = f"""
INSERT INTO samples ({_SAMPLE}) {{values}}
ON CONFLICT (dataset, sample) DO UPDATE SET image_key=excluded.image_key, stamp=excluded.stamp
WHERE samples.image_key IS NULL OR samples.image_key = excluded.image_key
"""
_INSERT_SESSIONS = """
INSERT INTO sessions (started, seconds, encoded_images, environment, rows)
SELECT started, seconds, encoded_images, environment, {rows} FROM part.sessions AS theirs
WHERE NOT EXISTS (
    SELECT 1 FROM sessions AS mine
    WHERE mine.started = theirs.started AND mine.environment = theirs.environment)
"""
_COMPARED = (
    "label",
    "prediction",
    "confidence",
    "entropy",
    "p_label",
    "sum_squares",
    "top5",
    "zero_shot_prediction",
    "zero_shot_confidence",
)
_CONTRADICTION = f"""
SELECT mine.sample FROM part.rows AS theirs JOIN rows AS mine USING (cell, sample)
WHERE mine.status = 'ok' AND theirs.status = 'ok'
    AND ({", ".join(f"mine.{name}" for name in _COMPARED)})
    IS NOT ({", ".join(f"theirs.{name}" for name in _COMPARED)})
"""  # noqa: S608
_OTHER_PICTURE = """
SELECT mine.sample FROM part.samples AS theirs JOIN samples AS mine USING (dataset, sample)
WHERE mine.image_key != theirs.image_key
"""
_OTHER_WEIGHT = """
SELECT theirs.cell FROM part.weights AS theirs JOIN weights AS mine USING (cell)
WHERE mine.weight != theirs.weight
"""


@dataclass(frozen=True)
class SampleInfo:
    """What belongs to a sample whatever the method.

    Attributes:
        dataset: Name of the data set.
        id: Of the sample.
        label: True class.
        group: The sample's group in the data set, "" without one.
        image_key: What is in the picture (a hash); None when it could not be read.
        stamp: How its file looks from outside (cheap to compare); None when not known.
    """

    dataset: str
    id: str
    label: int
    group: str = ""
    image_key: str | None = None
    stamp: str | None = None


@dataclass(frozen=True)
class Answer:
    """What one method said about one image; probabilities are fractions, entropy is in nats.

    `p_label` (probability of the true class) and `sum_squares` (Σ p²) make NLL and Brier score
    recomputable from a row; `log_probabilities` (see `dtpt.runs.probabilities`) has all of them to
    three digits, or is None. `weight` is the λ that was used, None where there is none.
    """

    prediction: int
    confidence: float
    entropy: float
    p_label: float
    sum_squares: float
    top5: tuple[tuple[int, float], ...]
    zero_shot_prediction: int
    zero_shot_confidence: float
    log_probabilities: bytes | None = None
    weight: float | None = None


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
        self._connection: sqlite3.Connection | None = None
        self._session: int | None = None
        self._rows = 0  # written in this session
        self._started = time.monotonic()
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock_store(path)
        try:
            self._connection = connect_for_writing(path)
            self._adopt(spec, shard)
        except BaseException:
            self.close()
            raise

    def _adopt(self, spec: RunSpec, shard: str) -> None:
        """Write the configuration into a new store or compare it with the one that is there."""
        try:
            stored = read_spec(self._open)
        except ValueError as error:
            raise RunError(damaged(self.path, error)) from error
        if stored is not None and stored.hash != spec.hash and not spec.only_enlarges(stored):
            raise RunError(refusal(self.path, stored=stored, spec=spec))
        entries = {"spec": spec.canonical(), "spec_hash": spec.hash, "shard": shard}
        cells = [
            (cell.key, cell.dataset, cell.method, cell.lambda_, cell.seed, cell.template)
            for cell in spec.cells()
        ]
        with self._transaction():
            self._open.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", entries.items())
            self._open.executemany("INSERT OR IGNORE INTO cells VALUES (?,?,?,?,?,?)", cells)

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RunError(f"{self.path} is closed already.")
        return self._connection

    def _transaction(self) -> AbstractContextManager[None]:
        if self._open.in_transaction:  # inside `together`
            return nullcontext()
        return transaction(self._open, self.path)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write everything inside in one transaction, so that the disk is waited for once.

        A RunError in between leaves what was written before it; any other error undoes all.
        """
        refused, rows = None, self._rows
        try:
            with self._transaction():
                try:
                    yield
                except RunError as error:
                    refused = error
        except BaseException:
            self._rows = rows
            raise
        if refused is not None:
            raise refused

    def write_classes(self, dataset: str, names: Sequence[str]) -> None:
        """Record the class names of a data set, once."""
        values = [(dataset, label, name) for label, name in enumerate(names)]
        with self._transaction():
            self._open.executemany("INSERT OR IGNORE INTO classes VALUES (?,?,?)", values)

    def write_remarks(self, dataset: str, texts: Iterable[str]) -> None:
        """Record what readers should know about a data set, or about the whole run ("")."""
        values = [(dataset, text) for text in texts]
        with self._transaction():
            self._open.executemany("INSERT OR IGNORE INTO remarks VALUES (?,?)", values)

    def write_weights(self, weights: Mapping[Cell, Weight]) -> None:
        """Record λ that were found without labels; one that is there stays."""
        values = [(cell.key, found.value, found.pictures) for cell, found in weights.items()]
        with self._transaction():
            self._open.executemany("INSERT OR IGNORE INTO weights VALUES (?,?,?)", values)

    def weights(self) -> dict[Cell, Weight]:
        """Return the λ that were found without labels, by cell."""
        with explained(self.path):
            found = read_weights(self._open)
        return {cell: found[cell.key] for cell in self.spec.cells() if cell.key in found}

    def begin_session(self, environment: Mapping[str, Any]) -> None:
        """Record when, where and how this process works on the run."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with self._transaction():
            cursor = self._open.execute(
                "INSERT INTO sessions (started, environment) VALUES (?, ?)",
                (now, canonical_json(environment)),
            )
            self._session = cursor.lastrowid

    def add_machine(self, description: Mapping[str, Any]) -> None:
        """Record that a machine of a cluster works in this session."""
        with self._transaction():
            query = "SELECT environment FROM sessions WHERE id = ?"
            (text,) = self._open.execute(query, (self._session,)).fetchone()
            known = json.loads(text)
            known["machines"] = [*known.get("machines", ()), dict(description)]
            self._open.execute(
                "UPDATE sessions SET environment = ? WHERE id = ?",
                (canonical_json(known), self._session),
            )

    def finished(self, cell: Cell, ids: Sequence[str]) -> set[str]:
        """Return which of some samples have a successful row of a cell."""
        with explained(self.path):
            return read_finished(self._open, cell, ids)

    def sessions(self) -> list[dict[str, Any]]:
        """Return when and where the run was worked on."""
        with explained(self.path):
            return read_sessions(self._open)

    def samples(self, dataset: str, ids: Sequence[str]) -> dict[str, SampleRecord]:
        """Return what is stored about some samples of a data set, by id."""
        with explained(self.path):
            return read_samples(self._open, dataset, ids=ids)

    def restamp(self, dataset: str, stamps: Mapping[str, str]) -> None:
        """Note how the files of some samples look now; their pictures are the same."""
        values = [(stamp, dataset, sample) for sample, stamp in stamps.items()]
        with self._transaction():
            self._open.executemany(
                "UPDATE samples SET stamp = ? WHERE dataset = ? AND sample = ?", values
            )

    def write(self, sample: SampleInfo, answers: Mapping[Cell, Answer]) -> None:
        """Write all rows of one (image, seed), all or none.

        Raises:
            RunError: Rows of another picture under the same id are stored, or the disk is full.
        """
        rows = [_answer_row(cell, sample, answer=answer) for cell, answer in answers.items()]
        self._write(sample, rows)

    def write_failure(self, sample: SampleInfo, cells: Sequence[Cell], *, reason: str) -> None:
        """Record that an image could not be read, for every cell that would have had a row."""
        nothing = (None,) * 10
        rows = [(cell.key, sample.id, "failed", reason, sample.label, *nothing) for cell in cells]
        self._write(sample, rows)

    def _write(self, sample: SampleInfo, rows: list[tuple[Any, ...]]) -> None:
        with self._transaction():
            done = self._open.execute(_insert(_INSERT_SAMPLE, 6), astuple(sample))
            if done.rowcount == 0 and sample.image_key is not None:
                self._replace_picture(sample)
            self._open.executemany(_insert(_INSERT_ROW, 15), rows)
        self._rows += len(rows)

    def _replace_picture(self, sample: SampleInfo) -> None:
        """Take another picture under a known id, unless rows of the old one are there."""
        names = (sample.dataset, sample.id)
        query = "SELECT 1 FROM results WHERE dataset = ? AND sample = ? AND status = 'ok' LIMIT 1"
        if self._open.execute(query, names).fetchone() is not None:
            raise RunError(changed_picture(*names))
        self._open.execute(
            "UPDATE samples SET image_key = ?, stamp = ? WHERE dataset = ? AND sample = ?",
            (sample.image_key, sample.stamp, *names),
        )

    def absorb(self, source: Path) -> None:
        """Take over the rows of another store of the same run, in one transaction.

        Raises:
            RunError: Both have a successful row under one key, and they differ.
        """
        execute = self._open.execute
        with explained(source):
            execute("ATTACH ? AS part", (f"{source.resolve().as_uri()}?mode=ro",))
        try:
            with self._transaction():
                self._check_agreement(source)
                self._copy_part()
        finally:
            execute("DETACH part")

    def _copy_part(self) -> None:
        """Copy what the attached store holds; one of an older version has less to give."""
        execute = self._open.execute
        version = version_of(self._open, "part")
        is_old = version < 2
        samples = _SAMPLE.replace("stamp", "NULL") if is_old else _SAMPLE
        rows = _ROW.replace("log_probabilities", "NULL") if version < 3 else _ROW
        rows = rows.replace("weight", "NULL") if version < 4 else rows
        execute("INSERT OR IGNORE INTO classes SELECT * FROM part.classes")
        execute(_INSERT_SAMPLE.format(values=f"SELECT {samples} FROM part.samples WHERE true"))  # noqa: S608
        execute(_INSERT_ROW.format(values=f"SELECT {rows} FROM part.rows WHERE true"))  # noqa: S608
        execute(_INSERT_SESSIONS.format(rows="NULL" if is_old else "rows"))
        if not is_old:
            execute("INSERT OR IGNORE INTO remarks SELECT * FROM part.remarks")
        if version >= 4:
            execute("INSERT OR IGNORE INTO weights SELECT * FROM part.weights")

    def _check_agreement(self, source: Path) -> None:
        for question in (_CONTRADICTION, _OTHER_PICTURE):
            if found := self._open.execute(question).fetchone():
                raise RunError(
                    f"{source} and {self.path} contradict each other on sample {found[0]!r}: "
                    "they were computed on different machines or data; use one of them."
                )
        if version_of(self._open, "part") >= 4 and self._open.execute(_OTHER_WEIGHT).fetchone():
            raise RunError(
                f"{source} and {self.path} found different lambdas: they were computed on "
                "different machines; use one of them."
            )

    def close(self) -> None:
        """Note how long this session took, close the file and let go of the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # a full disk must not hide the error that led here
                if self._session is not None:
                    seconds = time.monotonic() - self._started
                    connection.execute(
                        "UPDATE sessions SET seconds=?, encoded_images=?, rows=? WHERE id=?",
                        (seconds, self.encoded_images, self._rows, self._session),
                    )
                # one plain file, easy to copy; refused while somebody reads, which does no harm
                connection.execute("PRAGMA journal_mode=DELETE")
            connection.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _insert(statement: str, columns: int) -> str:
    return statement.format(values=f"VALUES ({','.join('?' * columns)})")


def _answer_row(cell: Cell, sample: SampleInfo, *, answer: Answer) -> tuple[Any, ...]:
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
        answer.log_probabilities,
        answer.weight,
    )
