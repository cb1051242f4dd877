"""Analyses and studies as JSON files: fractions, written atomically, checked when read."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.errors import ReportError, os_error
from dtpt.files import write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def to_json(record: "DataclassInstance") -> str:
    """Return an analysis or a study as JSON text; a number that is not finite is an error."""
    return json.dumps(asdict(record), allow_nan=False, ensure_ascii=False, indent=1)


def make_folder(folder: Path) -> None:
    """Make the folder of a result, before the long work rather than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = os_error(error)
        raise ReportError(f"Cannot make {folder}: {reason}. Choose another --output.") from error


def save_json(record: "DataclassInstance", path: Path) -> Path:
    """Write an analysis or a study into a folder, which is made when it is missing."""
    make_folder(path.parent)
    try:
        write_atomically(path, to_json(record).encode())
    except OSError as error:
        raise ReportError(f"Cannot write {path}: {os_error(error)}.") from error
    return path
