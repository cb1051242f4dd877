"""Read anybody's predictions from CSV, Parquet or NPZ.

Recognised columns, in this order of preference:

* `p0`, `p1`, ... and `label` (in Parquet also a list column `probabilities`; in NPZ the arrays
  `probabilities` and `labels`),
* `confidence` and `correct` (true/false or 1/0),
* `confidence`, `prediction` and `label`.

Other columns are ignored. Refusals name the file and, where one value is at fault, line and column.
"""

import csv
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError

Columns = Mapping[str, npt.NDArray[Any]]

# columns of one number per sample
SINGLE = ("label", "labels", "confidence", "correct", "prediction")

_TRUTH = {"true": "1", "false": "0"}
_PROBABILITY = re.compile(r"p(\d+)")


@dataclass(frozen=True)
class PredictionFile:
    """Predictions of one file: probabilities with labels, or confidence with correct.

    Attributes:
        path: where they come from.
        first_line: line of sample 0 for a text file, else `None`.
    """

    path: Path
    probabilities: npt.NDArray[Any] | None = None
    labels: npt.NDArray[Any] | None = None
    confidence: npt.NDArray[Any] | None = None
    correct: npt.NDArray[Any] | None = None
    first_line: int | None = None

    def locate(self, index: int) -> str:
        """Name the place of a sample as its reader sees it."""
        return f"row {index}" if self.first_line is None else f"line {self.first_line + index}"


def read_predictions(path: Path) -> PredictionFile:
    r"""Read predictions from a `.csv`, `.parquet` or `.npz` file.

    Raises:
        MetricError: when the file is missing, damaged, or lacks the columns.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> file = Path(folder.name) / "answers.csv"
        >>> _ = file.write_text("confidence,correct\n0.9,true\n0.4,false\n")
        >>> read_predictions(file).correct.tolist()
        [1.0, 0.0]
        >>> folder.cleanup()
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise MetricError(f"{path}: unknown kind of file; expected .csv, .parquet or .npz.")
    try:
        columns = reader(path)
    except OSError as error:
        raise MetricError(f"{path}: cannot be read: {error.strerror or error}.") from error
    return _choose(path, columns, first_line=2 if path.suffix.lower() == ".csv" else None)


def _choose(path: Path, columns: Columns, *, first_line: int | None) -> PredictionFile:
    """Pick the columns that describe predictions."""
    label = columns.get("label", columns.get("labels"))
    if "probabilities" in columns and label is not None:
        return PredictionFile(
            path,
            probabilities=columns["probabilities"],
            labels=_whole_numbers(path, label, first_line),
            first_line=first_line,
        )
    if "confidence" in columns and "correct" in columns:
        return PredictionFile(
            path,
            confidence=columns["confidence"],
            correct=columns["correct"],
            first_line=first_line,
        )
    if "confidence" in columns and "prediction" in columns and label is not None:
        if columns["prediction"].shape != label.shape:
            raise MetricError(f"{path}: prediction and label have different shapes.")
        correct = columns["prediction"] == label
        return PredictionFile(
            path, confidence=columns["confidence"], correct=correct, first_line=first_line
        )
    found = ", ".join(columns) or "none"
    raise MetricError(
        f"{path}: needs the columns confidence and correct, or p0, p1, ... and label; "
        f"found of use: {found}."
    )


def _whole_numbers(
    path: Path, values: npt.NDArray[Any], first_line: int | None
) -> npt.NDArray[Any]:
    """Turn labels that were read as floats back into integers."""
    if values.dtype.kind != "f":
        return values
    whole = np.isfinite(values) & (np.trunc(values) == values)
    if not whole.all():
        index = int(np.argmin(whole))
        place = f"row {index}" if first_line is None else f"line {first_line + index}"
        raise MetricError(f"{path}, {place}, column label: {values[index]} is no class index.")
    return values.astype(np.int64)


def _read_csv(path: Path) -> Columns:
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = list(csv.reader(file, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise MetricError(f"{path}: is no readable CSV: {error}.") from error
    if not rows:
        raise MetricError(f"{path}: is empty; expected a header line.")
    header = [name.strip() for name in rows[0]]
    body = rows[1:]
    while body and not body[-1]:  # blank lines at the end
        body.pop()
    if not body:
        raise MetricError(f"{path}: has a header but no samples.")
    for line, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise MetricError(
                f"{path}, line {line}: has {len(row)} values, the header has {len(header)}."
            )
    return _gather(path, header, body)


def _gather(path: Path, header: Sequence[str], body: Sequence[Sequence[str]]) -> Columns:
    """Convert the columns of interest, all probabilities into one array."""
    named = {name: i for i, name in enumerate(header)}
    if len(named) != len(header):
        raise MetricError(f"{path}, line 1: a column name occurs twice.")
    columns: dict[str, npt.NDArray[Any]] = {}
    names = _probability_names(path, header)
    if names:
        parts = [_numbers(path, body, named[name], name) for name in names]
        columns["probabilities"] = np.stack(parts, axis=1)  # (samples, classes)
    for name in SINGLE:
        if name in named:
            columns[name] = _numbers(path, body, named[name], name)
    return columns


def _probability_names(path: Path, header: Sequence[str]) -> list[str]:
    """Return p0..pN in numeric order, refusing gaps."""
    numbers = sorted(int(m[1]) for m in map(_PROBABILITY.fullmatch, header) if m)
    if numbers != list(range(len(numbers))):
        missing = min(set(range(len(numbers))) - set(numbers), default=len(numbers))
        raise MetricError(f"{path}: probability columns must run from p0; p{missing} is missing.")
    return [f"p{number}" for number in numbers]


def _numbers(
    path: Path, body: Sequence[Sequence[str]], position: int, name: str
) -> npt.NDArray[np.float64]:
    result = np.empty(len(body))
    for index, row in enumerate(body):
        text = row[position].strip()
        try:
            result[index] = float(_TRUTH.get(text.lower(), text))
        except ValueError:
            place = f"line {index + 2}, column {name}"
            raise MetricError(f"{path}, {place}: {text!r} is no number.") from None
    return result


def _read_parquet(path: Path) -> Columns:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MetricError(
            f"{path}: reading Parquet needs pyarrow; run: pip install 'dtpt[parquet]'"
        ) from error
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MetricError(f"{path}: is no readable Parquet file: {error}") from error
    names = _probability_names(path, table.column_names)
    columns = {
        name: _arrow_column(path, table, name)
        for name in (*names, *SINGLE)
        if name in table.column_names
    }
    if names:
        parts = [columns.pop(name) for name in names]
        columns["probabilities"] = np.stack(parts, axis=1)  # (samples, classes)
    elif "probabilities" in table.column_names:
        columns["probabilities"] = _list_column(path, table["probabilities"].to_pylist())
    return columns


def _arrow_column(path: Path, table: Any, name: str) -> npt.NDArray[Any]:
    column = table[name]
    if column.null_count:
        index = column.is_null().to_pylist().index(True)
        raise MetricError(f"{path}, row {index}, column {name}: the value is missing.")
    array: npt.NDArray[Any] = column.to_numpy()
    return array.astype(np.bool_) if str(column.type) == "bool" else array


def _list_column(path: Path, rows: Sequence[Sequence[float] | None]) -> npt.NDArray[Any]:
    width = len(rows[0] or ()) if rows else 0
    for index, row in enumerate(rows):
        if row is None or len(row) != width or None in row:
            raise MetricError(
                f"{path}, row {index}, column probabilities: expected {width} numbers as in row 0."
            )
    return np.array(rows, dtype=np.float64)


def _read_npz(path: Path) -> Columns:
    wanted = ("probabilities", *SINGLE)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in wanted if name in archive}
    except (ValueError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise MetricError(f"{path}: is no readable NPZ file without objects: {error}") from error
