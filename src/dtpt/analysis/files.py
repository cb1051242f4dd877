"""analysis.json: the whole analysis as plain JSON, written atomically and checked when read."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.analysis.results import FORMAT, Analysis
from dtpt.errors import ReportError, explain, os_error
from dtpt.files import write_atomically

if TYPE_CHECKING:
    pass

FILE_NAME = "analysis.json"


def to_json(analysis: Analysis) -> str:
    """Return the analysis as JSON text; a number that is not finite is an error."""
    return json.dumps(asdict(analysis), allow_nan=False, ensure_ascii=False)


def prepare_folder(folder: Path) -> None:
    """Make the folder of analysis.json, before the long work rather than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = os_error(error)
        raise ReportError(f"Cannot make {folder}: {reason}. Choose another --output.") from error


def save_analysis(analysis: Analysis, folder: Path) -> Path:
    """Write analysis.json into a folder, which is made when it is missing; return its path."""
    path = folder / FILE_NAME
    prepare_folder(folder)
    try:
        write_atomically(path, to_json(analysis).encode())
    except OSError as error:
        raise ReportError(f"Cannot write {path}: {os_error(error)}.") from error
    return path


def load_analysis(path: Path | str) -> Analysis:
    """Read analysis.json, given the file or its folder.

    Raises:
        ReportError: It is missing, damaged, or of another version.
    """
    from pydantic import TypeAdapter, ValidationError

    given = Path(path)
    file = given / FILE_NAME if given.is_dir() else given
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ReportError(
            f"Cannot read {file}: {os_error(error)}. `dtpt analyze` writes it."
        ) from error
    try:
        analysis = TypeAdapter(Analysis).validate_json(data)
    except ValidationError as error:
        raise ReportError(f"{file} is no analysis of ours: {explain(error)}.") from error
    if analysis.format != FORMAT:
        raise ReportError(
            f"{file} has format {analysis.format}, we read {FORMAT}: run `dtpt analyze` again."
        )
    return analysis
