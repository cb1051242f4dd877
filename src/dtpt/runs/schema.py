"""The tables of a run's SQLite file, and how a connection is opened safely.

`COLUMNS` and `SAMPLE_COLUMNS` are the one list of what a row and a sample hold: table definitions,
inserts, merges, NumPy columns, exports and the Parquet schema are generated from them.

`journal_mode=WAL` with `synchronous=FULL`: a committed row survives SIGKILL and also a power cut,
because every commit waits for the disk. That wait (about a millisecond) is small beside the work of
one image. The key of a row is its content: `cell` is a hash of (data set, method, λ, seed,
template), so rows of different shards or machines meet under the same key.
"""

import datetime
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dtpt.errors import RunError, os_error

if TYPE_CHECKING:
    from filelock import BaseFileLock

SCHEMA_VERSION = 6
MAGIC = b"SQLite format 3\0"
PAGE_BYTES = 16384  # a row of 1000 probabilities fits; in smaller pages it would waste half of one
MOST_BYTES = 1 << 26  # of one value
APPLICATION_ID = 0x64747074  # "dtpt", shown by `file run.sqlite`


@dataclass(frozen=True)
class Column:
    """A column of `rows` or `samples`."""

    name: str
    type: Literal["INTEGER", "REAL", "TEXT", "BLOB"]
    constraint: str = ""
    is_array: bool = True  # read into NumPy columns
    is_exported: bool = True
    is_compared: bool = True  # stores that are merged must agree on it

    @property
    def ddl(self) -> str:
        return f'"{self.name}" {self.type} {self.constraint}'.rstrip()

    @property
    def dtype(self) -> Any:
        return {"INTEGER": "i8", "REAL": "f8"}.get(self.type, "O")


def _text(name: str, constraint: str = "", *, is_compared: bool = False) -> Column:
    return Column(name, "TEXT", constraint, is_array=False, is_compared=is_compared)


# what one method gave for one image; fractions, entropy in nats
COLUMNS = (
    _text("status", "NOT NULL CHECK (status IN ('ok', 'failed'))"),
    _text("reason"),  # of a failure
    Column("label", "INTEGER", "NOT NULL"),
    Column("prediction", "INTEGER"),
    Column("confidence", "REAL"),
    Column("entropy", "REAL"),
    Column("p_label", "REAL"),  # with Σ p² it makes NLL and Brier score exact
    Column("sum_squares", "REAL"),
    _text("top5", is_compared=True),  # JSON: [[label, probability], ...]
    Column("zero_shot_prediction", "INTEGER"),
    Column("zero_shot_confidence", "REAL"),
    Column("views", "INTEGER"),  # passes through the image tower
    Column("lambda_used", "REAL", is_array=False),  # also where it was selected
    Column("position", "INTEGER"),  # in the stream, from 0; NULL for methods without state
    Column("log_probabilities", "BLOB", is_array=False, is_exported=False, is_compared=False),
)
SAMPLE_COLUMNS = (
    Column("label", "INTEGER", "NOT NULL"),
    _text("group", "NOT NULL"),
    _text("cluster", "NOT NULL"),  # samples of one cluster are not independent
    Column("image_key", "TEXT"),  # hash of the content; NULL: unreadable
    Column("stamp", "TEXT", is_exported=False),  # of the file, cheap to compare
)


def names(columns: tuple[Column, ...], prefix: str = "") -> str:
    """Return columns as SQL lists them."""
    return ", ".join(f'{prefix}"{column.name}"' for column in columns)


TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE classes (
        dataset TEXT NOT NULL, label INTEGER NOT NULL, name TEXT NOT NULL,
        PRIMARY KEY (dataset, label)) WITHOUT ROWID
    """,
    """
    CREATE TABLE cells (
        cell INTEGER PRIMARY KEY, dataset TEXT NOT NULL, method TEXT NOT NULL, lambda REAL,
        seed INTEGER NOT NULL, template TEXT NOT NULL, "order" INTEGER)
    """,
    f"""
    CREATE TABLE samples (
        dataset TEXT NOT NULL, sample TEXT NOT NULL,
        {", ".join(column.ddl for column in SAMPLE_COLUMNS)},
        PRIMARY KEY (dataset, sample)) WITHOUT ROWID
    """,
    f"""
    CREATE TABLE rows (
        cell INTEGER NOT NULL, sample TEXT NOT NULL,
        {", ".join(column.ddl for column in COLUMNS)},
        PRIMARY KEY (cell, sample),
        CHECK (status = 'failed' OR (confidence IS NOT NULL AND prediction IS NOT NULL))
        ) WITHOUT ROWID
    """,
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY, started TEXT NOT NULL, seconds REAL, encoded_images INTEGER,
        environment TEXT NOT NULL, rows INTEGER)
    """,
    """
    CREATE TABLE notes (
        dataset TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (dataset, text)) WITHOUT ROWID
    """,
    # λ that were selected without labels
    """
    CREATE TABLE lambdas (
        cell INTEGER PRIMARY KEY, lambda REAL NOT NULL, images INTEGER NOT NULL)
    """,
    # of unfinished streams: what their method carries, before the image at `position`
    """
    CREATE TABLE states (
        cell INTEGER NOT NULL, part INTEGER NOT NULL, position INTEGER NOT NULL,
        data BLOB NOT NULL, PRIMARY KEY (cell, part)) WITHOUT ROWID
    """,
    """
    CREATE VIEW results AS
        SELECT c.dataset, c.method, c.lambda, c.seed, c.template, c."order", r.*
        FROM rows r JOIN cells c USING (cell)
    """,
)


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Open a store, or make one in a single transaction; nothing else is changed yet."""
    with store_errors(path):
        connection = _connect(path)
        try:
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")  # of a new file
            _create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def begin_writing(connection: sqlite3.Connection) -> None:
    """Choose the journal (see above), which changes the file."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _create_tables(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if _version(connection) == 0:
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open an existing store without the right to change it."""
    if not path.is_file():
        raise RunError(f"There is no run at {path}.")
    with store_errors(path):
        try:
            return _connect(path, "?mode=ro")
        except sqlite3.OperationalError:  # on read-only media only this works
            return _connect(path, "?mode=ro&immutable=1")


def _connect(path: Path, mode: str = "") -> sqlite3.Connection:
    # as a URI, so that other stores can be attached read-only
    address = f"{path.resolve().as_uri()}{mode}"
    connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_BYTES)
    try:
        check_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not a store, one of another version, or one that was rebuilt.

    A view in place of a table could be endless, and a trigger could change what is written.
    """
    version = _version(connection)
    query = "SELECT type, name, sql FROM sqlite_master"
    stored = {name: (kind, _words(text)) for kind, name, text in connection.execute(query)}
    if version == 0 and not stored and _is_new(path):
        return
    if version not in (0, SCHEMA_VERSION):
        raise RunError(
            f"{path} was written by another version of dtpt (schema {version}, this one reads "
            f"{SCHEMA_VERSION}): use that version, or --fresh to start a new run."
        )
    for statement in TABLES:
        kind, name = statement.split()[1:3]
        if stored.get(name) != (kind.lower(), _words(statement)):
            raise RunError(damaged(path, f"it has no {kind.lower()} {name} as dtpt makes it"))
    if triggers := [name for name, (kind, _) in stored.items() if kind == "trigger"]:
        raise RunError(damaged(path, f"it has a trigger, {triggers[0]!r}"))


def _words(statement: str | None) -> str:
    return " ".join((statement or "").split())


def _is_new(path: Path) -> bool:
    """Tell an empty file, or a database without content, from the first bytes of something else."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) in (b"", MAGIC)


def damaged(path: Path, why: object) -> str:
    reason = " ".join(str(why).split())
    return (
        f"{path} is damaged or not a run ({reason}): restore it from a copy, move it away, or use "
        "--fresh to start a new run."
    )


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the operating system into one that names file and remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise RunError(_remedy(path, error)) from error
    except UnicodeDecodeError as error:  # in a text that it returns
        raise RunError(damaged(path, error)) from error
    except OSError as error:
        raise RunError(
            f"Cannot write {error.filename or path}: {os_error(error)}. Finished rows are kept: "
            "run the same command again when it is writable."
        ) from error


def _remedy(path: Path, error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text or "disk I/O error" in text:
        return (
            f"{path}: the disk is full or failing ({text}). Finished rows are kept: free some "
            "space and run the same command again."
        )
    if "readonly" in text or "unable to open" in text:
        return f"{path} cannot be opened or written ({text}): check folder and permissions."
    if "locked" in text:
        return f"{path}: another process is writing to this run: wait, or use another --output."
    if isinstance(error, sqlite3.IntegrityError):
        return f"{path} rejects a row ({text})."
    return damaged(path, text)


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """BEGIN ... COMMIT, rolled back on any exception."""
    with store_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise


def lock_store(path: Path) -> "BaseFileLock":
    """Hold a lock beside the store; the operating system frees it when the process dies.

    It is a file of its own because closing any handle of the database would drop SQLite's locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_name(f".{path.name}.lock"), blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"Another process is writing to {path}: wait for it, or use another --output."
        ) from None
    return lock


def archive(path: Path) -> None:
    """Rename an existing store, never over another one."""
    if not path.exists():
        return
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    target = path.with_name(f"{path.stem}-old-{stamp}{path.suffix}")
    while target.exists():
        target = target.with_name(f"{target.stem}x{target.suffix}")
    lock = lock_store(path)
    try:
        with store_errors(path):
            _checkpoint(path)
            for suffix in ("-wal", "-shm", ""):
                if Path(f"{path}{suffix}").exists():
                    os.replace(f"{path}{suffix}", f"{target}{suffix}")
    finally:
        lock.release()


def replace_store(path: Path, new: Path) -> None:
    """Move a closed store over another one, whose lock the caller holds; or to where none is."""
    with store_errors(path):
        if path.exists():
            _checkpoint(path)
        os.replace(new, path)


def _checkpoint(path: Path) -> None:
    """Bring the write-ahead log into the file itself; a damaged file stays as it is."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
