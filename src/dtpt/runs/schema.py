"""The tables of a run's SQLite file, and how a connection is opened safely.

`journal_mode=WAL` with `synchronous=FULL`: a committed row survives SIGKILL and also a power cut,
because every commit waits for the disk. That wait (about a millisecond) is small beside the work of
one image, so the weaker NORMAL would gain nothing that can be felt.

The key of a row is its content: `cell` is a hash of (data set, method, λ, seed, template), so rows
of different shards or machines meet under the same key.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dtpt.errors import RunError
from dtpt.runs.spec import canonical_json, method_label

SCHEMA_VERSION = 1
APPLICATION_ID = 0x64747074  # "dtpt", shown by `file run.sqlite`

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS classes (
    dataset TEXT NOT NULL, label INTEGER NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (dataset, label)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cells (
    cell INTEGER PRIMARY KEY, dataset TEXT NOT NULL, method TEXT NOT NULL, lambda REAL,
    seed INTEGER NOT NULL, template TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS samples (
    dataset TEXT NOT NULL, sample TEXT NOT NULL, label INTEGER NOT NULL,
    "group" TEXT NOT NULL, image_key TEXT,
    PRIMARY KEY (dataset, sample)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rows (
    cell INTEGER NOT NULL, sample TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('ok', 'failed')), reason TEXT,
    label INTEGER NOT NULL, prediction INTEGER, confidence REAL, entropy REAL,
    p_label REAL, sum_squares REAL, top5 TEXT,
    zero_shot_prediction INTEGER, zero_shot_confidence REAL,
    PRIMARY KEY (cell, sample),
    CHECK (status = 'failed' OR (confidence IS NOT NULL AND prediction IS NOT NULL))
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY, started TEXT NOT NULL, seconds REAL, encoded_images INTEGER,
    environment TEXT NOT NULL);
CREATE VIEW IF NOT EXISTS results AS
    SELECT c.dataset, c.method, c.lambda, c.seed, c.template, r.* FROM rows r JOIN cells c
    USING (cell);
"""


@dataclass(frozen=True)
class Cell:
    """One combination of which every sample has one row."""

    dataset: str
    method: str
    lambda_: float | None
    seed: int
    template: str

    @property
    def key(self) -> int:
        """A 63-bit hash of the content: the same on every machine."""
        content = [self.dataset, self.method, self.lambda_, self.seed, self.template]
        digest = hashlib.sha256(canonical_json(content).encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    @property
    def label(self) -> str:
        """Method and λ as one word: `d-tpt@100000`."""
        return method_label(self.method, self.lambda_)


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Open or make a store; the tables are made in one transaction."""
    with explained(path):
        # as a URI, so that other stores can be attached read-only
        address = path.resolve().as_uri()
        connection = sqlite3.connect(address, uri=True, timeout=30, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            _create(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _create(connection: sqlite3.Connection, path: Path) -> None:
    check_version(connection, path)
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open an existing store without the right to change it."""
    if not path.is_file():
        raise RunError(f"There is no run at {path}.")
    with explained(path):
        for mode in ("mode=ro", "mode=ro&immutable=1"):  # the second works on read-only media
            connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30)
            try:
                check_version(connection, path)
            except sqlite3.OperationalError:
                connection.close()
                if "immutable" in mode:
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return connection
    raise RunError(f"Cannot open {path}.")


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a store of another version of the tables (0 is a new, empty file)."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # is it a database at all?
    if version not in (0, SCHEMA_VERSION):
        raise RunError(
            f"{path} was written by another version of dtpt (tables {version}, we know "
            f"{SCHEMA_VERSION}): use that version, or --fresh to start anew."
        )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's and the system's errors into one sentence that names file and remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise RunError(f"{path}: {_remedy(error)}") from error
    except OSError as error:
        raise RunError(
            f"Cannot write {error.filename or path}: {error.strerror or error}. Nothing finished "
            "is lost; run the same command again when it is writable."
        ) from error


def _remedy(error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text or "disk I/O error" in text:
        return (
            f"the disk is full or failing ({text}). Every finished image is kept: free some space "
            "and run the same command again."
        )
    if "readonly" in text or "unable to open" in text:
        return f"cannot be opened or written ({text}): check folder and permissions."
    if "locked" in text:
        return "another process is writing to this run: wait for it, or use another --output."
    if "malformed" in text or "not a database" in text:
        return f"is damaged or not a run ({text}): move it away, or use --fresh to start anew."
    return f"{text}."
