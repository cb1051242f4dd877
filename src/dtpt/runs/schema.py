"""The tables of a run's SQLite file, and how a connection is opened safely.

`journal_mode=WAL` with `synchronous=FULL`: a committed row survives SIGKILL and also a power cut,
because every commit waits for the disk. That wait (about a millisecond) is small beside the work of
one image, so the weaker NORMAL would gain nothing that can be felt.

The key of a row is its content: `cell` is a hash of (data set, method, λ, seed, template), so rows
of different shards or machines meet under the same key.

A store of an older version is read as it is and brought up to date when a run is resumed in it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dtpt.errors import RunError, os_error

SCHEMA_VERSION = 4
MAGIC = b"SQLite format 3\0"
PAGE_BYTES = 16384  # a row of 1000 probabilities fits; in smaller pages it would waste half of one
APPLICATION_ID = 0x64747074  # "dtpt", shown by `file run.sqlite`

_REMARKS = """
CREATE TABLE remarks (
    dataset TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (dataset, text)) WITHOUT ROWID
"""
# λ that were found without labels
_WEIGHTS = """
CREATE TABLE weights (
    cell INTEGER PRIMARY KEY, weight REAL NOT NULL, pictures INTEGER NOT NULL)
"""
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
        seed INTEGER NOT NULL, template TEXT NOT NULL)
    """,
    """
    CREATE TABLE samples (
        dataset TEXT NOT NULL, sample TEXT NOT NULL, label INTEGER NOT NULL,
        "group" TEXT NOT NULL, image_key TEXT, stamp TEXT,
        PRIMARY KEY (dataset, sample)) WITHOUT ROWID
    """,
    """
    CREATE TABLE rows (
        cell INTEGER NOT NULL, sample TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('ok', 'failed')), reason TEXT,
        label INTEGER NOT NULL, prediction INTEGER, confidence REAL, entropy REAL,
        p_label REAL, sum_squares REAL, top5 TEXT,
        zero_shot_prediction INTEGER, zero_shot_confidence REAL, log_probabilities BLOB,
        weight REAL,
        PRIMARY KEY (cell, sample),
        CHECK (status = 'failed' OR (confidence IS NOT NULL AND prediction IS NOT NULL))
        ) WITHOUT ROWID
    """,
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY, started TEXT NOT NULL, seconds REAL, encoded_images INTEGER,
        environment TEXT NOT NULL, rows INTEGER)
    """,
    _REMARKS,
    _WEIGHTS,
    """
    CREATE VIEW results AS
        SELECT c.dataset, c.method, c.lambda, c.seed, c.template, r.* FROM rows r JOIN cells c
        USING (cell)
    """,
)
# version -> what brings a store of that version to the next one
UPGRADES = {
    1: (
        "ALTER TABLE samples ADD COLUMN stamp TEXT",
        "ALTER TABLE sessions ADD COLUMN rows INTEGER",
        _REMARKS,
    ),
    2: ("ALTER TABLE rows ADD COLUMN log_probabilities BLOB",),
    3: ("ALTER TABLE rows ADD COLUMN weight REAL", _WEIGHTS),
}


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Open or make a store; tables are made, or brought up to date, in one transaction."""
    with explained(path):
        # as a URI, so that other stores can be attached read-only
        address = path.resolve().as_uri()
        connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None)
        try:
            check_version(connection, path)
            connection.execute(f"PRAGMA page_size={PAGE_BYTES}")  # of a new file
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            _bring_up_to_date(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    version = version_of(connection)
    steps = [UPGRADES[known] for known in range(version, SCHEMA_VERSION)] if version else [TABLES]
    for statements in steps:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open an existing store without the right to change it."""
    if not path.is_file():
        raise RunError(f"There is no run at {path}.")
    with explained(path):
        try:
            return _connect_read_only(path, "mode=ro")
        except sqlite3.OperationalError:  # on read-only media only this works
            return _connect_read_only(path, "mode=ro&immutable=1")


def _connect_read_only(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30)
    try:
        check_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def version_of(connection: sqlite3.Connection, database: str = "main") -> int:
    """Return the version of a store's tables; 0 for a new, empty file."""
    (version,) = connection.execute(f"PRAGMA {database}.user_version").fetchone()
    return int(version)


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no store of ours, or one whose tables we do not know."""
    version = version_of(connection)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if version == 0 and not tables and _is_new(path):
        return
    if version == 0 or (version <= SCHEMA_VERSION and "meta" not in tables):
        raise RunError(damaged(path, "it lacks our tables"))
    if version not in range(1, SCHEMA_VERSION + 1):
        raise RunError(
            f"{path} was written by another version of dtpt (tables {version}, we know up to "
            f"{SCHEMA_VERSION}): use that version, or --fresh to start anew."
        )


def _is_new(path: Path) -> bool:
    """Tell an empty file, or a database without content, from the first bytes of something else."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) in (b"", MAGIC)


def damaged(path: Path, why: object) -> str:
    """Say in one line that a store cannot be trusted, why, and what to do."""
    reason = " ".join(str(why).split())
    return (
        f"{path} is damaged or not a run ({reason}): restore it from a copy, move it away, or use "
        "--fresh to start anew."
    )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into one sentence that names file and remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise RunError(_remedy(path, error)) from error
    except OSError as error:
        raise RunError(
            f"Cannot write {error.filename or path}: {os_error(error)}. Nothing finished "
            "is lost; run the same command again when it is writable."
        ) from error


def _remedy(path: Path, error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text or "disk I/O error" in text:
        return (
            f"{path}: the disk is full or failing ({text}). Every finished image is kept: free "
            "some space and run the same command again."
        )
    if "readonly" in text or "unable to open" in text:
        return f"{path} cannot be opened or written ({text}): check folder and permissions."
    if "locked" in text:
        return f"{path}: another process is writing to this run: wait, or use another --output."
    if isinstance(error, sqlite3.IntegrityError):
        return f"{path} refuses a row ({text})."
    return damaged(path, text)


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """BEGIN ... COMMIT, rolled back on any exception, with explained errors."""
    with explained(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise
