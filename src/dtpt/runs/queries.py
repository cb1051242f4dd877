"""What a store holds, whether it is open for reading or for writing."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtpt.runs.schema import version_of
from dtpt.runs.spec import Cell, RunSpec


@dataclass(frozen=True)
class SampleRecord:
    """What is stored about a sample itself.

    `image_key` says what was in the picture when it was evaluated, `stamp` how its file looked
    from outside; both are None where nothing could be read.
    """

    id: str
    label: int
    group: str
    image_key: str | None
    stamp: str | None = None


@dataclass(frozen=True)
class Weight:
    """A λ that was found without labels.

    Attributes:
        value: The λ.
        pictures: How many pictures it was found from.
    """

    value: float
    pictures: int


def read_spec(connection: sqlite3.Connection) -> RunSpec | None:
    """Return the configuration in a store, None in a new one."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'spec'").fetchone()
    return None if found is None else RunSpec.model_validate_json(found[0])


def read_samples(
    connection: sqlite3.Connection, dataset: str, *, ids: Sequence[str] | None = None
) -> dict[str, SampleRecord]:
    """Return what a store holds about the samples of a data set, all or some, by id."""
    stamp = "stamp" if version_of(connection) >= 2 else "NULL"
    chosen = "" if ids is None else f"AND sample IN ({_marks(ids)})"
    query = (
        f'SELECT sample, label, "group", image_key, {stamp} FROM samples '  # noqa: S608
        f"WHERE dataset = ? {chosen} ORDER BY sample"
    )
    found = connection.execute(query, (dataset, *(ids or ())))
    return {row[0]: SampleRecord(*row) for row in found}


def read_finished(connection: sqlite3.Connection, cell: Cell, ids: Sequence[str]) -> set[str]:
    """Return which of some samples have a successful row of a cell."""
    query = (
        "SELECT sample FROM rows WHERE cell = ? AND status = 'ok' "  # noqa: S608
        f"AND sample IN ({_marks(ids)})"
    )
    return {sample for (sample,) in connection.execute(query, (cell.key, *ids))}


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def read_sessions(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return the sessions in a store; `seconds` and `rows` are None where one was killed."""
    rows = "rows" if version_of(connection) >= 2 else "NULL"
    query = (
        f"SELECT started, seconds, encoded_images, {rows}, environment "  # noqa: S608
        "FROM sessions ORDER BY id"
    )
    names = ("started", "seconds", "encoded_images", "rows")
    return [
        {**dict(zip(names, found, strict=True)), **json.loads(environment)}
        for *found, environment in connection.execute(query)
    ]


def read_weights(connection: sqlite3.Connection) -> dict[int, Weight]:
    """Return the λ that were found without labels, by the key of their cell."""
    if version_of(connection) < 4:
        return {}
    query = "SELECT cell, weight, pictures FROM weights"
    return {cell: Weight(*found) for cell, *found in connection.execute(query)}


def changed_picture(dataset: str, sample: str) -> str:
    """Say that a picture is not the one that has rows already."""
    return (
        f"{dataset}: the picture {sample!r} changed since its rows were computed. Put the old "
        "picture back, use another --output, or --fresh to start anew."
    )
