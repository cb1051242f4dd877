"""Reading a finished or running store as NumPy columns, for metrics, exports, analysis and report.

>>> run = open_run("runs/pets")                                             # doctest: +SKIP
>>> rows = run.rows(dataset="oxford_pets", method="d-tpt", seed=0)          # doctest: +SKIP
>>> rows.correct.mean(), rows.confidence.mean()                             # doctest: +SKIP
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dtpt.errors import RunError
from dtpt.methods import parse_label
from dtpt.runs.probabilities import unpack
from dtpt.runs.queries import (
    SampleRecord,
    Weight,
    read_finished,
    read_samples,
    read_sessions,
    read_spec,
    read_weights,
)
from dtpt.runs.rows import ROW_COLUMNS, Columns, Rows, column_sql, column_types
from dtpt.runs.schema import connect_for_reading, damaged, explained, version_of
from dtpt.runs.sessions import session_remarks
from dtpt.runs.shards import store_file, store_files
from dtpt.runs.spec import Cell, RunSpec

if TYPE_CHECKING:
    import pandas

_STORED = (
    "sample",
    "status",
    "reason",
    "label",
    "prediction",
    "confidence",
    "entropy",
    "p_label",
    "sum_squares",
    "top5",
    "zero_shot_prediction",
    "zero_shot_confidence",
    "weight",
)


@dataclass(frozen=True)
class Failure:
    """An image that could not be evaluated, and why."""

    dataset: str
    sample: str
    reason: str


class Run:
    """A stored run, read-only.

    Attributes:
        path: The SQLite file.
        spec: The configuration that decides its numbers.

    Raises:
        RunError: There is no run in the file, or it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect_for_reading(path)
        try:
            with _trusted(path):
                self._version = version_of(self._connection)
                spec = read_spec(self._connection) if self._version else None
                lost = spec is None and bool(self._version) and self._has_cells()
            if lost:
                raise RunError(damaged(path, "it has rows and no specification"))
            if spec is None:
                raise RunError(f"{path} holds no run yet: start one with `dtpt eval`.")
        except BaseException:
            self._connection.close()
            raise
        self.spec: RunSpec = spec

    def _has_cells(self) -> bool:
        return self._connection.execute("SELECT 1 FROM cells LIMIT 1").fetchone() is not None

    def close(self) -> None:
        """Close the file; reading afterwards is an error."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every combination of the run, in its order, with or without rows."""
        return self.spec.cells()

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets."""
        return tuple(entry.name for entry in self.spec.datasets)

    def classes(self, dataset: str) -> tuple[str, ...]:
        """Return the class names of a data set, in label order."""
        found = self._all("SELECT name FROM classes WHERE dataset = ? ORDER BY label", (dataset,))
        return tuple(name for (name,) in found)

    def select(
        self,
        *,
        dataset: str | None = None,
        method: str | None = None,
        lambda_: float | None = None,
        seed: int | None = None,
    ) -> tuple[Cell, ...]:
        """Return the cells that match; None matches all. `method` may be a label (`d-tpt@1e5`).

        Raises:
            MethodError: What follows the @ is neither a number nor a rule.
        """
        wanted = None if method is None else parse_label(method)
        value = lambda_ if wanted is None or wanted.lambda_ is None else wanted.lambda_
        return tuple(
            cell
            for cell in self.cells
            if (dataset is None or cell.dataset == dataset)
            and (wanted is None or wanted.matches(cell.method, cell.lambda_))
            and (value is None or cell.lambda_ == value)
            and (seed is None or cell.seed == seed)
        )

    def rows(
        self,
        *,
        dataset: str | None = None,
        method: str | None = None,
        lambda_: float | None = None,
        seed: int | None = None,
    ) -> Rows:
        """Return the successful rows of all matching cells (see `select`)."""
        return self.rows_of(
            *self.select(dataset=dataset, method=method, lambda_=lambda_, seed=seed)
        )

    def records(self) -> list[dict[str, Any]]:
        """Return all successful rows as dictionaries, for `pandas.DataFrame` or JSON."""
        return self.rows().records()

    def to_pandas(self) -> "pandas.DataFrame":
        """Return all successful rows as a table of pandas.

        Raises:
            RunError: pandas is not installed; `records` needs none.
        """
        return self.rows().to_pandas()

    def rows_of(self, *cells: Cell) -> Rows:
        """Return the successful rows of these cells, in their order, each by sample id."""
        return Rows.of(cells, (self._table(cell, "ORDER BY sample") for cell in cells))

    def mistakes(self, cell: Cell, count: int) -> Rows:
        """Return the wrong answers of a cell, the most confident ones first."""
        ending = "AND prediction != label ORDER BY confidence DESC, sample LIMIT ?"
        return Rows.of((cell,), [self._table(cell, ending, count)])

    def _table(self, cell: Cell, ending: str, *values: int) -> Columns:
        """Return successful rows of a cell as one structured array."""
        query = (
            f"SELECT {column_sql(ROW_COLUMNS)} FROM rows "  # noqa: S608 - our own words
            f"WHERE cell = ? AND status = 'ok' {ending}"
        )
        with _trusted(self.path):
            found = self._connection.execute(query, (cell.key, *values))
            return np.fromiter(found, dtype=column_types(ROW_COLUMNS))

    def columns(self, *names: str) -> dict[Cell, Columns]:
        """Return some columns of the successful rows of all cells at once, each by sample id.

        This is one pass over the file, for those who need everything; cells without rows are not
        in the result. The names are those of `dtpt.runs.rows.COLUMNS`.
        """
        by_key = {cell.key: cell for cell in self.cells}
        kinds = np.dtype([("cell", np.int64), *column_types(names).descr])
        query = (
            f"SELECT cell, {column_sql(names)} FROM rows "  # noqa: S608 - our own words
            "WHERE status = 'ok' ORDER BY cell, sample"
        )
        with _trusted(self.path):
            table = np.fromiter(self._connection.execute(query), dtype=kinds)
        starts = np.flatnonzero(np.diff(table["cell"], prepend=-1))
        parts = np.split(table[list(names)], starts[1:]) if len(table) else []
        keys = table["cell"][starts].tolist()
        return {by_key[k]: part for k, part in zip(keys, parts, strict=True) if k in by_key}

    def sample_ids(self, cell: Cell) -> npt.NDArray[np.str_]:
        """Return the ids of a cell's successful rows, in the order of its rows."""
        query = "SELECT sample FROM rows WHERE cell = ? AND status = 'ok' ORDER BY sample"
        return np.array([name for (name,) in self._all(query, (cell.key,))], dtype=np.str_)

    def finished(self, cell: Cell, ids: Sequence[str]) -> set[str]:
        """Return which of some samples have a successful row of a cell."""
        with _trusted(self.path):
            return read_finished(self._connection, cell, ids)

    def probabilities(self, cell: Cell) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float32]]:
        """Return the ids of a cell's successful rows, in their order, and (n, C) log-probabilities.

        They have three digits; the exact numbers that metrics need are in `rows_of`.

        Raises:
            RunError: Rows were stored without them (`--keep top5`, or by an older version).
        """
        column = "log_probabilities" if self._version >= 3 else "NULL"
        query = (
            f"SELECT sample, {column} FROM rows "  # noqa: S608 - our own words
            "WHERE cell = ? AND status = 'ok' ORDER BY sample"
        )
        found = self._all(query, (cell.key,))
        if any(data is None for _, data in found):
            raise RunError(
                f"{self.path} holds rows of {cell.label} without all probabilities: they were "
                "stored with --keep top5 or by an older version."
            )
        numbers = np.empty((len(found), self.spec.dataset(cell.dataset).classes), np.float32)
        with _trusted(self.path):
            for row, (_, data) in zip(numbers, found, strict=True):
                row[:] = unpack(data)
        return np.array([name for name, _ in found], dtype=np.object_), numbers

    def weights(self) -> dict[Cell, Weight]:
        """Return the λ that were found without labels (`@auto`), by cell, in the run's order."""
        with _trusted(self.path):
            found = read_weights(self._connection)
        return {cell: found[cell.key] for cell in self.cells if cell.key in found}

    def raw_rows(self, cell: Cell) -> list[dict[str, Any]]:
        """Return all rows of a cell, failed ones included, by sample id, as stored."""
        columns = ", ".join(_STORED if self._version >= 4 else (*_STORED[:-1], "NULL"))
        query = f"SELECT {columns} FROM rows WHERE cell = ? ORDER BY sample"  # noqa: S608
        return [dict(zip(_STORED, row, strict=True)) for row in self._all(query, (cell.key,))]

    def top5(self, cell: Cell) -> dict[str, list[tuple[int, float]]]:
        """Return, by sample id, the five most likely (label, probability) pairs."""
        query = "SELECT sample, top5 FROM rows WHERE cell = ? AND status = 'ok' ORDER BY sample"
        found = self._all(query, (cell.key,))
        with _trusted(self.path):
            return {name: [(int(k), float(p)) for k, p in json.loads(t)] for name, t in found}

    def counts(self) -> dict[Cell, tuple[int, int]]:
        """Return (successful, failed) rows of every cell."""
        query = "SELECT cell, sum(status = 'ok'), sum(status = 'failed') FROM rows GROUP BY cell"
        found = {key: (ok, failed) for key, ok, failed in self._all(query)}
        return {cell: found.get(cell.key, (0, 0)) for cell in self.cells}

    @property
    def is_complete(self) -> bool:
        """Whether every sample has a row, successful or failed, in every cell."""
        expected = {entry.name: entry.samples for entry in self.spec.datasets}
        return all(sum(pair) == expected[cell.dataset] for cell, pair in self.counts().items())

    def failures(self, dataset: str | None = None) -> list[Failure]:
        """Return the images that failed, each once, by data set and id."""
        query = (
            "SELECT dataset, sample, min(reason) FROM results WHERE status = 'failed' "
            "GROUP BY dataset, sample ORDER BY dataset, sample"
        )
        return [Failure(*row) for row in self._all(query) if dataset in (None, row[0])]

    def samples(self, dataset: str) -> dict[str, SampleRecord]:
        """Return what is stored about the samples of a data set, by id."""
        with _trusted(self.path):
            return read_samples(self._connection, dataset)

    def remarks(self, dataset: str | None = None) -> tuple[str, ...]:
        """Return what readers of the numbers should know: of a data set, of the run, or of all.

        Args:
            dataset: Name of a data set; "" for what concerns the whole run; None for everything.
        """
        found = []
        if self._version >= 2:
            found += self._all("SELECT dataset, text FROM remarks ORDER BY dataset, text")
        found += weight_remarks(self.weights())
        found += [("", text) for text in session_remarks(self.sessions())]
        return tuple(text for name, text in found if dataset in (None, name))

    def sessions(self) -> list[dict[str, Any]]:
        """Return when and where the run was worked on: started, seconds, rows, environment."""
        with _trusted(self.path):
            return read_sessions(self._connection)

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with _trusted(self.path):
            return self._connection.execute(query, values).fetchall()


@contextmanager
def _trusted(path: Path) -> Iterator[None]:
    """Explain errors; what does not have the form in which we write it is damaged."""
    with explained(path):
        try:
            yield
        except (ValueError, TypeError, OverflowError, zlib.error) as error:
            raise RunError(damaged(path, error)) from error


def weight_remarks(weights: Mapping[Cell, Weight]) -> list[tuple[str, str]]:
    """Say which λ were found without labels: (data set, text) for every cell."""
    return [
        (
            cell.dataset,
            f"{cell.method}, seed {cell.seed}: lambda {weight.value:.6g} was found from "
            f"{weight.pictures} pictures without their labels.",
        )
        for cell, weight in weights.items()
    ]


def open_run(path: Path | str) -> Run:
    """Open the run in a folder, or one SQLite file of it.

    Raises:
        RunError: There is none, it is damaged, or it is still in shards.
    """
    return Run(store_file(path))


def open_parts(path: Path | str) -> list[Run]:
    """Open every store that a path means: the whole run, else all its shards.

    Raises:
        RunError: There is none, or one is damaged.
    """
    opened: list[Run] = []
    try:
        for file in store_files(path):
            opened.append(Run(file))
    except BaseException:
        for run in opened:
            run.close()
        raise
    return opened
