"""One writer per store: the lock beside it, and moving a store out of the way."""

import datetime
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.errors import RunError
from dtpt.runs.schema import explained

if TYPE_CHECKING:
    from filelock import BaseFileLock


def lock_store(path: Path) -> "BaseFileLock":
    """Hold a lock beside the store; the system frees it when the process dies.

    It is a file of its own because closing any handle of the database would drop SQLite's locks.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path.with_name(f".{path.name}.lock"), blocking=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"Another process is working on {path}: wait for it, or use another --output."
        ) from None
    return lock


def set_aside(path: Path) -> Path | None:
    """Move an existing store out of the way, never over another one; return its new name."""
    if not path.exists():
        return None
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    target = path.with_name(f"{path.stem}-old-{stamp}{path.suffix}")
    while target.exists():
        target = target.with_name(f"{target.stem}x{target.suffix}")
    lock = lock_store(path)
    try:
        with explained(path):
            _fold_in_log(path)
            for suffix in ("-wal", "-shm"):
                if Path(f"{path}{suffix}").exists():
                    os.replace(f"{path}{suffix}", f"{target}{suffix}")
            os.replace(path, target)
    finally:
        lock.release()
    return target


def _fold_in_log(path: Path) -> None:
    """Bring what is in the write-ahead log into the file itself; a damaged file stays as it is."""
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(path, timeout=30)
        with suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
