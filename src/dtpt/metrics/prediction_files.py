"""Read predictions from CSV, Parquet or NPZ files, as `dtpt score` and the web page take them.

Recognised columns, in this order of preference:

* `p0`, `p1`, ... and `label` (in Parquet also a list column `probabilities`; in NPZ the arrays
  `probabilities` and `labels`),
* `confidence` and `correct` (true/false or 1/0),
* `confidence`, `prediction` and `label`.

Other columns are ignored. Errors name the file and, where one value is at fault, line and column.
Regular files only, and nothing that would take more than two gigabytes of memory: the sizes that a
file declares are checked before it is read.
"""

import array
import csv
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError, os_error
from dtpt.files import open_regular, printable
from dtpt.metrics.predictions import Predictions
from dtpt.metrics.validation import SampleError

Columns = dict[str, npt.NDArray[Any]]

# Columns of one number per sample.
SINGLE = ("label", "labels", "confidence", "correct", "prediction")
# Bytes of a text file, and of the arrays that a binary file declares.
MOST_BYTES = 2**31
# Characters of one line: a thousand classes take 25,000.
MOST_LINE = 2**24
MAX_LABEL = 2**31  # beyond any class list; 64-bit integers do not hold every float

# What damaged or hostile archives raise in NumPy and zipfile: a header may declare any size.
_NPZ_ERRORS = (ValueError, EOFError, TypeError, RuntimeError, MemoryError, zlib.error, BadZipFile)
_TRUTH = {"true": "1", "false": "0"}
_PROBABILITY = re.compile(r"p(\d{1,9})")


def read_predictions(path: Path) -> Predictions:
    """Read predictions from a `.csv`, `.parquet` or `.npz` file.

    Raises:
        MetricError: the file is missing, damaged, too large or not a regular file, or it lacks
            columns or holds values from which no metric can be computed.
    """
    name, suffix = printable(path), path.suffix.lower()
    if suffix not in _READERS:
        raise MetricError(f"{name}: unknown kind of file; expected .csv, .parquet or .npz.")
    try:
        with open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_size > MOST_BYTES:
                raise _too_large(name)
            columns = _READERS[suffix](stream, name)
    except OSError as error:
        raise MetricError(f"{name}: cannot be read: {os_error(error)}.") from error
    return _predictions(columns, name, first_line=2 if suffix == ".csv" else None)


def parse_predictions(data: bytes, *, name: str) -> Predictions:
    r"""Read predictions from the content of a CSV file; errors call it `name`.

    Example:
        >>> parse_predictions(b"confidence,correct\n0.9,true\n", name="a.csv").confidence.tolist()
        [0.9]
    """
    return _predictions(_read_csv(io.BytesIO(data), name), name, first_line=2)


def _too_large(name: str) -> MetricError:
    return MetricError(
        f"{name}: needs more than {MOST_BYTES / 2**30:.0f} GB of memory; give fewer samples, or "
        "confidence and correct instead of all probabilities."
    )


def _predictions(columns: Columns, name: str, *, first_line: int | None) -> Predictions:
    """Check the columns that describe predictions; `first_line` is that of sample 0 in a text."""
    try:
        return _choose(columns)
    except SampleError as error:
        row = f"row {error.index}" if first_line is None else f"line {first_line + error.index}"
        raise MetricError(f"{name}, {row}: {error}") from error
    except MetricError as error:
        raise MetricError(f"{name}: {error}") from error


def _choose(columns: Columns) -> Predictions:
    label = columns.get("label", columns.get("labels"))
    confidence, prediction = columns.get("confidence"), columns.get("prediction")
    if "probabilities" in columns and label is not None:
        return Predictions.from_probabilities(columns["probabilities"], _class_indices(label))
    if confidence is not None and "correct" in columns:
        return Predictions.from_confidence(confidence, columns["correct"])
    if confidence is not None and prediction is not None and label is not None:
        if prediction.shape != label.shape:
            raise MetricError("prediction and label have different shapes.")
        return Predictions.from_confidence(confidence, prediction == label)
    raise MetricError(
        "needs the columns confidence and correct, or p0, p1, ... and label; usable columns here: "
        f"{', '.join(columns) or 'none'}."
    )


def _class_indices(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Turn labels that were read as floats back into integers."""
    if values.dtype.kind != "f":
        return values
    whole = (np.abs(values) < MAX_LABEL) & (np.trunc(values) == values)
    if not whole.all():
        index = int(np.argmin(whole))
        raise SampleError(f"column label: {values[index]} is not a class index.", index)
    return values.astype(np.int64)


def _read_csv(stream: BinaryIO, name: str) -> Columns:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    try:
        rows = csv.reader(_lines(text, name), strict=True)
        header = [word.strip() for word in next(rows, [])]
        if not header:
            raise MetricError(f"{name}: is empty; expected a header line.")
        return _csv_columns(rows, header, name=name)
    except (csv.Error, UnicodeDecodeError) as error:
        raise MetricError(f"{name}: is not a readable CSV file: {error}.") from error


def _lines(text: io.TextIOWrapper, name: str) -> Iterator[str]:
    while line := text.readline(MOST_LINE):
        if len(line) == MOST_LINE:
            raise MetricError(f"{name}: has a line of more than {MOST_LINE:,} characters.")
        yield line


def _csv_columns(rows: Iterator[list[str]], header: Sequence[str], *, name: str) -> Columns:
    """Convert the columns of interest row by row, all probabilities into one array."""
    position = {word: i for i, word in enumerate(header)}
    if len(position) != len(header):
        raise MetricError(f"{name}, line 1: a column name occurs twice.")
    classes = _probability_names(header, name=name)
    wanted = {word: position[word] for word in (*classes, *SINGLE) if word in position}
    values, count = array.array("d"), 0
    for line, row in _complete_rows(rows, len(header), name=name):
        try:
            values.extend([float(row[i]) for i in wanted.values()])
        except ValueError:  # true, false, or a mistake
            where = f"{name}, line {line}"
            values.extend([_number(row[i], word, where=where) for word, i in wanted.items()])
        count += 1
    if not count:
        raise MetricError(f"{name}: has a header but no samples.")
    table = np.frombuffer(values).reshape(count, len(wanted))  # (samples, columns)
    columns = {word: table[:, i] for i, word in enumerate(wanted) if word in SINGLE}
    return {"probabilities": table[:, : len(classes)], **columns} if classes else columns


def _complete_rows(
    rows: Iterator[list[str]], width: int, *, name: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and values; refuse short rows, and blank ones before the end."""
    blank = 0
    for line, row in enumerate(rows, start=2):
        if not row:
            blank = blank or line
        elif blank or len(row) != width:
            at, length = (blank, 0) if blank else (line, len(row))
            raise MetricError(f"{name}, line {at}: has {length} values, the header has {width}.")
        else:
            yield line, row


def _number(text: str, column: str, *, where: str) -> float:
    word = text.strip()
    try:
        return float(_TRUTH.get(word.lower(), word))
    except ValueError:
        raise MetricError(f"{where}, column {column}: {word!r} is not a number.") from None


def _probability_names(header: Sequence[str], *, name: str) -> list[str]:
    """Return p0..pN in numeric order, refusing gaps."""
    numbers = sorted(int(m[1]) for m in map(_PROBABILITY.fullmatch, header) if m)
    if numbers != list(range(len(numbers))):
        missing = min(set(range(len(numbers))) - set(numbers), default=len(numbers))
        raise MetricError(f"{name}: probability columns must run from p0; p{missing} is missing.")
    return [f"p{number}" for number in numbers]


def _read_parquet(stream: BinaryIO, name: str) -> Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MetricError(f"{name}: needs pyarrow; run: pip install 'dtpt[parquet]'") from error
    try:
        file = pq.ParquetFile(stream)
        present = file.schema_arrow.names
        classes = _probability_names(present, name=name)
        wanted = [word for word in (*classes, *SINGLE, "probabilities") if word in present]
        if _declared_bytes(file.metadata, wanted) > MOST_BYTES:
            raise _too_large(name)
        table = file.read(columns=wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MetricError(f"{name}: is not a readable Parquet file: {error}") from error
    columns = {word: _arrow_column(table, word, name=name) for word in wanted if word in SINGLE}
    if classes:
        parts = [_arrow_column(table, word, name=name) for word in classes]
        columns["probabilities"] = np.stack(parts, axis=1)  # (samples, classes)
    elif "probabilities" in wanted:
        columns["probabilities"] = _list_column(table["probabilities"], name=name)
    return columns


def _declared_bytes(metadata: Any, wanted: Sequence[str]) -> int:
    """Return the memory that columns need: repeated values take no room in the file."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    columns = [group.column(i) for group in groups for i in range(metadata.num_columns)]
    return sum(8 * c.num_values for c in columns if c.path_in_schema.split(".")[0] in wanted)


def _arrow_column(table: Any, word: str, *, name: str) -> npt.NDArray[Any]:
    column = table[word]
    if column.null_count:
        index = column.is_null().to_pylist().index(True)
        raise MetricError(f"{name}, row {index}, column {word}: the value is missing.")
    values: npt.NDArray[Any] = column.to_numpy()
    return values.astype(np.bool_) if str(column.type) == "bool" else values


def _list_column(column: Any, *, name: str) -> npt.NDArray[Any]:
    rows = column.to_pylist()
    width = len(rows[0] or ()) if rows else 0
    for index, row in enumerate(rows):
        if row is None or len(row) != width or None in row:
            raise MetricError(
                f"{name}, row {index}, column probabilities: expected {width} numbers as in row 0."
            )
    return np.array(rows, dtype=np.float64)


def _read_npz(stream: BinaryIO, name: str) -> Columns:
    try:
        with ZipFile(stream) as packed:
            if sum(member.file_size for member in packed.infolist()) > MOST_BYTES:
                raise _too_large(name)
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            return {word: archive[word] for word in ("probabilities", *SINGLE) if word in archive}
    except _NPZ_ERRORS as error:
        raise MetricError(f"{name}: is not a readable NPZ file of plain arrays: {error}") from error


_READERS: Mapping[str, Callable[[BinaryIO, str], Columns]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
