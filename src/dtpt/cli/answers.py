"""The files of `dtpt predict --output`: one row for each image, whole or not at all."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

from dtpt.errors import OptionError, os_error
from dtpt.files import open_atomically, printable

Row = dict[str, Any]  # of an image, as `dtpt predict --json` prints it
Write = Callable[[Row], object]

COLUMNS = {
    "image": "string",
    "label": "string",
    "confidence": "float64",
    "zero_shot_label": "string",
    "zero_shot_confidence": "float64",
    "calibrated_confidence": "float64",
    "abstained": "bool",
    "prediction_set": "string",  # a JSON list
    "warning": "string",
    "error": "string",
}
ROWS_PER_GROUP = 10_000  # of a Parquet file


def flat(row: Row) -> Row:
    """Return a row's columns; what it lacks is None.

    Example:
        >>> found = flat({"image": "a.png", "label": "cat", "prediction_set": ["cat", "dog"]})
        >>> found["label"], found["prediction_set"], found["error"]
        ('cat', '["cat", "dog"]', None)
    """
    values = dict.fromkeys(COLUMNS) | {name: row[name] for name in COLUMNS if name in row}
    for name, value in row.get("zero_shot", {}).items():
        values[f"zero_shot_{name}"] = value
    if "prediction_set" in row:
        values["prediction_set"] = json.dumps(row["prediction_set"], ensure_ascii=False)
    return values


@contextmanager
def answers_file(path: Path) -> Iterator[Write]:
    """Yield what takes the rows of a file, which is made or replaced when the block ends.

    Raises:
        OptionError: The suffix is not .csv, .jsonl or .parquet, pyarrow is missing, or the file
            cannot be written.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise OptionError(f"--output {printable(path)} must end in {', '.join(WRITERS)}.")
    try:
        with open_atomically(path) as stream, writer(stream) as write:
            yield write
    except OSError as error:
        raise OptionError(f"Cannot write {printable(path)}: {os_error(error)}.") from error


@contextmanager
def _csv(stream: IO[bytes]) -> Iterator[Write]:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    table = csv.DictWriter(text, COLUMNS)
    table.writeheader()
    yield lambda row: table.writerow(flat(row))
    text.detach()  # the stream is closed by who opened it


@contextmanager
def _jsonl(stream: IO[bytes]) -> Iterator[Write]:
    yield lambda row: stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


@contextmanager
def _parquet(stream: IO[bytes]) -> Iterator[Write]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise OptionError("Parquet needs the extra: pip install 'dtpt[parquet]'.") from None
    types = {"string": pa.string(), "float64": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    rows: list[Row] = []
    with parquet.ParquetWriter(stream, schema, compression="zstd") as table:

        def flush() -> None:
            table.write_table(pa.Table.from_pylist(rows, schema=schema))
            rows.clear()

        def write(row: Row) -> None:
            rows.append(flat(row))
            if len(rows) == ROWS_PER_GROUP:
                flush()

        yield write
        flush()


WRITERS: dict[str, Callable[[IO[bytes]], AbstractContextManager[Write]]] = {
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
