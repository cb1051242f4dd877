"""The writer of a run: a row per sample, method, λ, seed and template, stored as it is computed.

All rows of one (image, seed) are in one transaction. A row that succeeded is never written again; a
failed one is replaced when the image can be read later.
"""

import datetime
import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from dtpt.errors import RunError, short_repr
from dtpt.files import canonical_json, parse_json, printable
from dtpt.runs.integrity import problems_of_tables
from dtpt.runs.rows import Row
from dtpt.runs.schema import (
    COLUMNS,
    SAMPLE_COLUMNS,
    begin_writing,
    connect_for_writing,
    damaged,
    lock_store,
    names,
    store_errors,
    transaction,
)
from dtpt.runs.spec import Cell, RunSpec, hash_of, refusal

MOST_PART = 1 << 24  # bytes of a state in one value
_MEASURED = tuple(c for c in COLUMNS if c.name not in ("status", "reason", "label"))
_INSERT_ROW = f"""
INSERT INTO rows (cell, sample, {names(COLUMNS)}) {{values}}
ON CONFLICT (cell, sample) DO UPDATE SET
    ({names(COLUMNS)}) = ({names(COLUMNS, "excluded.")})
WHERE rows.status = 'failed'
"""
# nothing is changed, and the count of changes says so, when the image is another one than before
_INSERT_SAMPLE = f"""
INSERT INTO samples (dataset, sample, {names(SAMPLE_COLUMNS)}) {{values}}
ON CONFLICT (dataset, sample) DO UPDATE SET image_key=excluded.image_key, stamp=excluded.stamp
WHERE samples.image_key IS NULL OR samples.image_key = excluded.image_key
"""
_INSERT_SESSIONS = """
INSERT INTO sessions (started, seconds, encoded_images, environment, rows)
SELECT started, seconds, encoded_images, environment, rows FROM part.sessions AS theirs
WHERE NOT EXISTS (
    SELECT 1 FROM sessions AS mine
    WHERE mine.started = theirs.started AND mine.environment = theirs.environment)
"""
_COMPARED = tuple(column for column in COLUMNS if column.is_compared)
_CONTRADICTIONS = (
    f"""
    SELECT mine.sample FROM part.rows AS theirs JOIN rows AS mine USING (cell, sample)
    WHERE mine.status = 'ok' AND theirs.status = 'ok'
        AND ({names(_COMPARED, "mine.")}) IS NOT ({names(_COMPARED, "theirs.")})
    """,  # noqa: S608
    """
    SELECT 'lambdas of ' || method FROM part.lambdas AS theirs JOIN lambdas AS mine USING (cell)
    JOIN cells USING (cell) WHERE mine.lambda != theirs.lambda
    """,
)


@dataclass(frozen=True)
class SampleRecord:
    """What is stored about a sample, whatever the method; see `schema.SAMPLE_COLUMNS`."""

    id: str
    label: int
    group: str = ""
    cluster: str = ""  # the id where nothing is given
    image_key: str | None = None
    stamp: str | None = None

    def __post_init__(self) -> None:
        if not self.cluster:
            object.__setattr__(self, "cluster", self.id)


@dataclass(frozen=True)
class StreamState:
    """What a method carries, before the image at a position of its stream."""

    position: int
    data: bytes  # of `dtpt.tuning.state.pack_state`


@dataclass(frozen=True)
class SelectedLambda:
    """A λ that was selected without labels, from so many images."""

    value: float
    images: int


class StoreFile:
    """One SQLite file of a run: what its readers and its writer query."""

    path: Path
    spec: RunSpec
    _connection: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the file; reading afterwards is an error."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RunError(f"{self.path} is closed already.")
        return self._connection

    @contextmanager
    def _trusted(self) -> Iterator[None]:
        """Report content that does not have the form in which we write it as damage."""
        with store_errors(self.path):
            try:
                yield
            except (ValueError, TypeError, OverflowError, zlib.error) as error:
                raise RunError(damaged(self.path, error)) from error

    def query(self, query: str, *values: Any, **named: Any) -> list[Any]:
        """Return all rows of an SQL query."""
        with self._trusted():
            return self._open.execute(query, named or values).fetchall()

    def chunks(self, query: str, *values: Any, size: int) -> Iterator[list[Any]]:
        """Yield the rows of an SQL query, some at a time."""
        with self._trusted():
            cursor = self._open.execute(query, values)
            while rows := cursor.fetchmany(size):
                yield rows

    def _stored_spec(self) -> RunSpec | None:
        stored = dict(self.query("SELECT key, value FROM meta WHERE key IN ('spec', 'spec_hash')"))
        if "spec" not in stored:
            return None
        with self._trusted():
            content = parse_json(str(stored["spec"]).encode())
            spec = RunSpec.model_validate(content)
            if hash_of(content) != stored.get("spec_hash"):
                raise ValueError("its specification is not the one that was written")
            return spec

    def check(self, problems: Iterable[str]) -> None:
        """Raise a RunError with the first of some problems (see `dtpt.runs.integrity`)."""
        with self._trusted():
            for problem in problems:
                raise RunError(
                    f"{self.path} was changed after it was written, or is damaged: it has "
                    f"{problem}. Restore it from a copy, or use --fresh to start a new run; "
                    f"`dtpt doctor {printable(self.path)}` lists everything."
                )

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.spec.datasets)

    def classes(self, dataset: str) -> tuple[str, ...]:
        """Return the class names of a data set, in label order."""
        query = "SELECT name FROM classes WHERE dataset = ? ORDER BY label"
        return tuple(name for (name,) in self.query(query, dataset))

    @contextmanager
    def _attached(self, source: Path) -> Iterator[None]:
        with store_errors(source):
            self._open.execute("ATTACH ? AS part", (f"{source.resolve().as_uri()}?mode=ro",))
        try:
            yield
        finally:
            self._open.execute("DETACH part")

    def contradiction(self, source: Path) -> str:
        """Return a sample whose rows differ in another store, or a λ that does; else nothing."""
        with self._attached(source):
            found = [row for query in _CONTRADICTIONS for row in self.query(f"{query} LIMIT 1")]
        return repr(found[0][0]) if found else ""

    def finished(self, cell: Cell, ids: Sequence[str]) -> set[str]:
        """Return which of some samples have a successful row of a cell."""
        query = f"SELECT sample FROM rows WHERE cell = ? AND status = 'ok' AND {_among(ids)}"  # noqa: S608
        return {sample for (sample,) in self.query(query, cell.key, *ids)}

    def samples(self, dataset: str, ids: Sequence[str] | None = None) -> dict[str, SampleRecord]:
        """Return what is stored about the samples of a data set, all or some, by id."""
        chosen = "true" if ids is None else _among(ids)
        columns = f"sample, {names(SAMPLE_COLUMNS)}"
        query = f"SELECT {columns} FROM samples WHERE dataset = ? AND {chosen} ORDER BY sample"  # noqa: S608
        return {row[0]: SampleRecord(*row) for row in self.query(query, dataset, *(ids or ()))}

    def sessions(self) -> list[dict[str, Any]]:
        """Return when and where the run was worked on; `seconds` and `rows` None where killed."""
        columns = ("started", "seconds", "encoded_images", "rows")
        query = f"SELECT {', '.join(columns)}, environment FROM sessions ORDER BY id"  # noqa: S608
        with self._trusted():
            return [
                {**dict(zip(columns, values, strict=True)), **_session(environment)}
                for *values, environment in self.query(query)
            ]

    def lambdas(self) -> dict[Cell, SelectedLambda]:
        """Return the λ that were selected without labels (`@auto`), by cell, in the run's order."""
        rows = self.query("SELECT cell, lambda, images FROM lambdas")
        stored = {key: SelectedLambda(*values) for key, *values in rows}
        return {cell: stored[cell.key] for cell in self.spec.cells() if cell.key in stored}


class Store(StoreFile):
    """The writer of one SQLite file; a lock keeps a second writer out.

    A store of another configuration is refused; `shard` ("i/n") is recorded.
    """

    def __init__(self, path: Path, spec: RunSpec, *, shard: str = "") -> None:
        self.path = path
        self.spec = spec
        self.encoded_images = 0  # in this session, for the record
        self._session: int | None = None
        self._rows = 0  # written in this session
        self._started = time.monotonic()
        with store_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock_store(path)
        try:
            self._connection = connect_for_writing(path)
            self._adopt(spec, shard)
        except BaseException:
            self.close()
            raise

    def _adopt(self, spec: RunSpec, shard: str) -> None:
        """Write the configuration into a new store or compare it with the stored one."""
        stored = self._stored_spec()
        if stored is not None and stored.hash != spec.hash and not spec.only_enlarges(stored):
            raise RunError(refusal(self.path, stored=stored, spec=spec))
        if stored is not None:
            self.spec = stored
            self.check(problems_of_tables(self))
            self.spec = spec
        with store_errors(self.path):
            begin_writing(self._open)
        entries = {"spec": spec.canonical(), "spec_hash": spec.hash, "shard": shard}
        cells = [(cell.key, *astuple(cell)) for cell in spec.cells()]
        columns = 'cell, dataset, method, lambda, seed, template, "order"'
        with self._transaction():
            self._open.executemany("INSERT OR REPLACE INTO meta VALUES (?,?)", entries.items())
            self._open.executemany(f"INSERT OR IGNORE INTO cells ({columns}) {_values(7)}", cells)

    def _transaction(self) -> AbstractContextManager[None]:
        if self._open.in_transaction:  # inside `together`
            return nullcontext()
        return transaction(self._open, self.path)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write everything inside in one transaction, so that the disk is waited for once.

        A RunError in between keeps what was written before it; any other error undoes all.
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

    def _insert(self, table: str, values: Iterable[tuple[Any, ...]]) -> None:
        """Insert what is not there yet."""
        rows = list(values)
        if rows:
            with self._transaction():
                statement = f"INSERT OR IGNORE INTO {table} {_values(len(rows[0]))}"
                self._open.executemany(statement, rows)

    def write_classes(self, dataset: str, classes: Sequence[str]) -> None:
        self._insert("classes", ((dataset, label, name) for label, name in enumerate(classes)))

    def write_notes(self, dataset: str, texts: Iterable[str]) -> None:
        """Record what readers should know about a data set, or about the whole run ("")."""
        self._insert("notes", ((dataset, text) for text in texts))

    def write_lambdas(self, lambdas: Mapping[Cell, SelectedLambda]) -> None:
        """Record λ that were selected without labels; one that is there stays."""
        self._insert("lambdas", ((cell.key, *astuple(value)) for cell, value in lambdas.items()))

    def begin_session(self, environment: Mapping[str, Any]) -> None:
        """Record when, where and how this process works on the run."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with self._transaction():
            query = "INSERT INTO sessions (started, environment) VALUES (?, ?)"
            values = (now, canonical_json(environment))
            self._session = self._open.execute(query, values).lastrowid

    def add_node(self, description: Mapping[str, Any]) -> None:
        """Record that a node of a cluster works in this session."""
        with self._transaction():
            query = "SELECT environment FROM sessions WHERE id = ?"
            ((text,),) = self.query(query, self._session)
            environment = json.loads(text)
            environment["nodes"] = [*environment.get("nodes", ()), dict(description)]
            query = "UPDATE sessions SET environment = ? WHERE id = ?"
            self.query(query, canonical_json(environment), self._session)

    def update_samples(
        self, dataset: str, column: Literal["stamp", "cluster"], *, values: Mapping[str, str]
    ) -> None:
        """Record what changed about samples, by id, without a change of their images."""
        if not values:
            return
        query = f'UPDATE samples SET "{column}" = ? WHERE dataset = ? AND sample = ?'  # noqa: S608
        with self._transaction():
            changes = ((value, dataset, sample) for sample, value in values.items())
            self._open.executemany(query, changes)

    def write(self, dataset: str, sample: SampleRecord, *, rows: Mapping[Cell, Row]) -> None:
        """Write all rows of one (image, seed), all or none.

        Raises:
            RunError: Rows of another image under the same id are stored, or the disk is full.
        """
        values = [
            (
                cell.key,
                sample.id,
                "ok",
                None,
                sample.label,
                *(getattr(row, c.name) for c in _MEASURED),
            )
            for cell, row in rows.items()
        ]
        self._write(dataset, sample, values=values)

    def write_failure(
        self, dataset: str, sample: SampleRecord, *, cells: Sequence[Cell], reason: str
    ) -> None:
        """Record that an image could not be evaluated, for every cell that would have had a row."""
        nothing = (None,) * len(_MEASURED)
        values = [(c.key, sample.id, "failed", reason, sample.label, *nothing) for c in cells]
        self._write(dataset, sample, values=values)

    def remove_rows(self, cell: Cell) -> None:
        """Remove all rows of a cell, before they are written anew in the same transaction."""
        with self._transaction():
            self.query("DELETE FROM rows WHERE cell = ?", cell.key)

    def write_state(self, cell: Cell, state: StreamState | None) -> None:
        """Replace what is stored of an unfinished stream; None removes it."""
        with self._transaction():
            self.query("DELETE FROM states WHERE cell = ?", cell.key)
            data = b"" if state is None else state.data
            parts = [data[k : k + MOST_PART] for k in range(0, len(data), MOST_PART)]
            position = 0 if state is None else state.position
            values = [(cell.key, n, position, part) for n, part in enumerate(parts)]
            self._open.executemany(f"INSERT INTO states {_values(4)}", values)

    def state(self, cell: Cell) -> StreamState | None:
        """Return where an unfinished stream is to be taken up; None at its start."""
        query = "SELECT position, data FROM states WHERE cell = ? ORDER BY part"
        parts = self.query(query, cell.key)
        if not parts:
            return None
        return StreamState(parts[0][0], b"".join(data for _, data in parts))

    def _write(
        self, dataset: str, sample: SampleRecord, *, values: Sequence[tuple[Any, ...]]
    ) -> None:
        with self._transaction():
            statement = _INSERT_SAMPLE.format(values=_values(2 + len(SAMPLE_COLUMNS)))
            done = self._open.execute(statement, (dataset, *astuple(sample)))
            if done.rowcount == 0 and sample.image_key is not None:
                self._replace_image(dataset, sample)
            statement = _INSERT_ROW.format(values=_values(2 + len(COLUMNS)))
            self._open.executemany(statement, values)
        self._rows += len(values)

    def _replace_image(self, dataset: str, sample: SampleRecord) -> None:
        """Accept another image under a stored id, unless the old one has rows."""
        key = (dataset, sample.id)
        query = "SELECT 1 FROM results WHERE dataset = ? AND sample = ? AND status = 'ok' LIMIT 1"
        if self.query(query, *key):
            raise RunError(changed_image(*key))
        query = "UPDATE samples SET image_key = ?, stamp = ? WHERE dataset = ? AND sample = ?"
        self.query(query, sample.image_key, sample.stamp, *key)

    def merge_from(self, source: Path) -> None:
        """Take over the rows of another store of the same run, in one transaction.

        Where both have a successful row under one key, ours stays (see `contradiction`).
        """
        with self._attached(source), self._transaction():
            self._copy_part()

    def _copy_part(self) -> None:
        execute = self._open.execute
        samples = f"SELECT dataset, sample, {names(SAMPLE_COLUMNS)} FROM part.samples WHERE true"  # noqa: S608
        execute(_INSERT_SAMPLE.format(values=samples))
        rows = f"SELECT cell, sample, {names(COLUMNS)} FROM part.rows WHERE true"  # noqa: S608
        execute(_INSERT_ROW.format(values=rows))
        execute(_INSERT_SESSIONS)
        for table in ("classes", "notes", "lambdas"):
            execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM part.{table}")  # noqa: S608

    def close(self) -> None:
        """Record how long this session took, close the file and release the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):  # a full disk must not hide the error that led here
                if self._session is not None:
                    seconds = time.monotonic() - self._started
                    connection.execute(
                        "UPDATE sessions SET seconds=?, encoded_images=?, rows=? WHERE id=?",
                        (seconds, self.encoded_images, self._rows, self._session),
                    )
                # one plain file, easy to copy; refused while another process reads: harmless
                connection.execute("PRAGMA journal_mode=DELETE")
            connection.close()
        self._lock.release()


def _session(text: str) -> dict[str, Any]:
    """Parse the description of a session; a ValueError where it is not one that we wrote."""
    session = parse_json(text.encode())
    if not isinstance(session, dict):
        raise ValueError(f"a session is described by {short_repr(session)}")
    kinds = {"environment": dict, "nodes": list, "command": list, "data_root": str | None}
    for name, kind in kinds.items():
        if name in session and not isinstance(session[name], kind):
            raise ValueError(f"{name} of a session is {short_repr(session[name])}")
    if not all(isinstance(node, dict) for node in session.get("nodes", ())):
        raise ValueError("a node of a session is not described")
    return session


def _values(count: int) -> str:
    return f"VALUES ({','.join('?' * count)})"


def _among(ids: Sequence[str]) -> str:
    return f"sample IN ({','.join('?' * len(ids))})"


def changed_image(dataset: str, sample: str) -> str:
    return (
        f"{dataset}: the image {sample!r} changed since its rows were computed. Restore the old "
        "image, use another --output, or --fresh to start a new run."
    )
