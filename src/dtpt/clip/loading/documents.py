"""Opening the files of a checkpoint: regular files only, and small ones whole, up to a limit."""

import json
from pathlib import Path
from typing import Any, BinaryIO

from dtpt.errors import CheckpointError, os_error
from dtpt.files import open_regular, printable, read_limited

MAX_BYTES = 64 << 20  # tokenizer.json of a large multilingual model has about 30 MB


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading, at once or not at all.

    Raises:
        CheckpointError: missing, unreadable, or a folder, named pipe, device or socket.
    """
    try:
        return open_regular(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def require_regular(path: Path) -> None:
    """Check that a library which opens files by itself may be given this path.

    Raises:
        CheckpointError: as `open_file`.
    """
    open_file(path).close()


def read_bytes(path: Path) -> bytes:
    """Return the whole file.

    Raises:
        CheckpointError: as `open_file`, or larger than any config or vocabulary is.
    """
    try:
        return read_limited(path, MAX_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return a file's JSON object.

    Raises:
        CheckpointError: the file cannot be read or holds something else.
    """
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{printable(path)} is no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{printable(path)} holds no JSON object.")
    return value


def _unreadable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{printable(path)} cannot be read: {os_error(error)}.")
