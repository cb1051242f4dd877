"""Reading the small text files of a checkpoint, with a limit on their size."""

import json
from pathlib import Path
from typing import Any

from dtpt.errors import CheckpointError

MAX_BYTES = 64 << 20  # tokenizer.json of a large multilingual model has about 30 MB


def read_bytes(path: Path) -> bytes:
    """The whole file.

    Raises:
        CheckpointError: missing, unreadable, or larger than any config or vocabulary is.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"{path} is larger than {MAX_BYTES >> 20} MB: not read.")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        CheckpointError: the file cannot be read or holds something else.
    """
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no JSON object.")
    return value
