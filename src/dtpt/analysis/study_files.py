"""Studies as JSON files: every number that a command prints, and those that it does not."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtpt.analysis.files import prepare_folder
from dtpt.errors import ReportError, os_error
from dtpt.files import write_atomically

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FORMAT = 1


def study_json(study: "DataclassInstance") -> str:
    """Return a study as JSON text; a number that is not finite is an error."""
    content: dict[str, Any] = {"format": FORMAT, **asdict(study)}
    return json.dumps(content, allow_nan=False, ensure_ascii=False, indent=1)


def save_study(study: "DataclassInstance", folder: Path, *, name: str) -> Path:
    """Write `<name>.json` into a folder, which is made when it is missing; return its path."""
    path = folder / f"{name}.json"
    prepare_folder(folder)
    try:
        write_atomically(path, study_json(study).encode())
    except OSError as error:
        raise ReportError(f"Cannot write {path}: {os_error(error)}.") from error
    return path
