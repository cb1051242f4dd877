"""Reading a finished or running store as NumPy columns, for metrics, exports, analysis and report.

>>> run = open_run("runs/pets")                                             # doctest: +SKIP
>>> rows = run.rows(dataset="oxford_pets", method="d-tpt", seed=0)          # doctest: +SKIP
>>> rows.correct.mean(), rows.confidence.mean()                             # doctest: +SKIP
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dtpt.errors import RunError
from dtpt.methods import parse_label
from dtpt.runs.rows import ARRAY_COLUMNS, Columns, Rows, column_sql, column_types, unpack
from dtpt.runs.schema import COLUMNS, connect_for_reading, damaged, names, store_errors
from dtpt.runs.shards import store_file
from dtpt.runs.spec import Cell
from dtpt.runs.store import (
    SampleRecord,
    SelectedLambda,
    read_finished,
    read_lambdas,
    read_samples,
    read_sessions,
    read_spec,
)

if TYPE_CHECKING:
    import pandas

EXPORTED = tuple(column for column in COLUMNS if column.is_exported)
# properties of a machine that change numbers in their last bits
MACHINE = ("machine", "system", "processor", "device", "torch")


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
            with self._trusted():
                spec = read_spec(self._connection) if self._tables() else None
                lost = spec is None and bool(self._tables()) and self._has_cells()
            if lost:
                raise RunError(damaged(path, "it has rows and no specification"))
            if spec is None:
                raise RunError(f"{path} holds no run yet: start one with `dtpt eval`.")
        except BaseException:
            self._connection.close()
            raise
        self.spec = spec

    def _tables(self) -> list[Any]:
        return self._connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()

    def _has_cells(self) -> bool:
        return self._connection.execute("SELECT 1 FROM cells LIMIT 1").fetchone() is not None

    def close(self) -> None:
        """Close the file; reading afterwards is an error."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _trusted(self) -> Iterator[None]:
        """Report content that does not have the form in which we write it as damage."""
        with store_errors(self.path):
            try:
                yield
            except (ValueError, TypeError, OverflowError, zlib.error) as error:
                raise RunError(damaged(self.path, error)) from error

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self._trusted():
            return self._connection.execute(query, values).fetchall()

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every combination of the run, in its order, with or without rows."""
        return self.spec.cells()

    @property
    def datasets(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.spec.datasets)

    def classes(self, dataset: str) -> tuple[str, ...]:
        """Return the class names of a data set, in label order."""
        rows = self._all("SELECT name FROM classes WHERE dataset = ? ORDER BY label", (dataset,))
        return tuple(name for (name,) in rows)

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
            MethodError: What follows the @ is neither a number nor a rule for λ.
        """
        wanted = None if method is None else parse_label(method)
        return tuple(
            cell
            for cell in self.cells
            if (dataset is None or cell.dataset == dataset)
            and (wanted is None or wanted.matches(cell.method, cell.lambda_))
            and (lambda_ is None or cell.lambda_ == lambda_)
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
        """Return all successful rows as a pandas table.

        Raises:
            RunError: pandas is not installed; `records` needs none.
        """
        return self.rows().to_pandas()

    def rows_of(self, *cells: Cell) -> Rows:
        """Return the successful rows of these cells, in their order, each by sample id."""
        if len(cells) == len(self.cells) > 1:  # all of them: one pass over the file
            tables = self.columns(*ARRAY_COLUMNS)
            empty = np.empty(0, dtype=column_types(ARRAY_COLUMNS))
            return Rows(cells, [tables.get(cell, empty) for cell in cells])
        return Rows(cells, [self._table(cell, "ORDER BY sample") for cell in cells])

    def mistakes(self, cell: Cell, count: int) -> Rows:
        """Return the wrong predictions of a cell, the most confident ones first."""
        ending = "AND prediction != label ORDER BY confidence DESC, sample LIMIT ?"
        return Rows([cell], [self._table(cell, ending, count)])

    def _table(self, cell: Cell, ending: str, *values: int) -> Columns:
        query = (
            f"SELECT {column_sql(ARRAY_COLUMNS)} FROM rows "  # noqa: S608 - our own words
            f"WHERE cell = ? AND status = 'ok' {ending}"
        )
        with self._trusted():
            rows = self._connection.execute(query, (cell.key, *values))
            return np.fromiter(rows, dtype=column_types(ARRAY_COLUMNS))

    def columns(self, *columns: str) -> dict[Cell, Columns]:
        """Return some columns of the successful rows of all cells, each by sample id.

        One pass over the file; cells without rows are not in the result. Columns are `sample`,
        `correct` and those of `dtpt.runs.schema.COLUMNS`.
        """
        by_key = {cell.key: cell for cell in self.cells}
        kinds = np.dtype([("cell", "i8"), *column_types(columns).descr])
        query = (
            f"SELECT cell, {column_sql(columns)} FROM rows "  # noqa: S608 - our own words
            "WHERE status = 'ok' ORDER BY cell, sample"
        )
        with self._trusted():
            table = np.fromiter(self._connection.execute(query), dtype=kinds)
        starts = np.flatnonzero(np.diff(table["cell"], prepend=-1))
        parts = np.split(table[list(columns)], starts[1:]) if len(table) else []
        keys = table["cell"][starts].tolist()
        return {by_key[k]: part for k, part in zip(keys, parts, strict=True) if k in by_key}

    def finished(self, cell: Cell, ids: Sequence[str]) -> set[str]:
        """Return which of some samples have a successful row of a cell."""
        with self._trusted():
            return read_finished(self._connection, cell, ids)

    def probabilities(self, cell: Cell) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.float32]]:
        """Return the ids of a cell's successful rows, in their order, and (n, C) log-probabilities.

        They have three digits; the exact numbers that metrics need are in `rows_of`.

        Raises:
            RunError: Rows were stored without them (`--keep top5`).
        """
        query = (
            "SELECT sample, log_probabilities FROM rows "
            "WHERE cell = ? AND status = 'ok' ORDER BY sample"
        )
        rows = self._all(query, (cell.key,))
        if any(data is None for _, data in rows):
            raise RunError(
                f"{self.path} holds rows of {cell.label} without all probabilities: they were "
                "stored with --keep top5."
            )
        values = np.empty((len(rows), self.spec.dataset(cell.dataset).classes), np.float32)
        with self._trusted():
            for row, (_, data) in zip(values, rows, strict=True):
                row[:] = unpack(data)
        return np.array([name for name, _ in rows], dtype=np.object_), values

    def lambdas(self) -> dict[Cell, SelectedLambda]:
        """Return the λ that were selected without labels (`@auto`), by cell, in the run's order."""
        with self._trusted():
            return read_lambdas(self._connection, self.spec)

    def stored_rows(self, cell: Cell) -> Iterator[dict[str, Any]]:
        """Yield all rows of a cell, failed ones included, by sample id, as stored."""
        query = f"SELECT sample, {names(EXPORTED)} FROM rows WHERE cell = ? ORDER BY sample"  # noqa: S608
        keys = ("sample", *(column.name for column in EXPORTED))
        with self._trusted():
            for row in self._connection.execute(query, (cell.key,)):
                yield dict(zip(keys, row, strict=True))

    def top5(self, cell: Cell) -> dict[str, list[tuple[int, float]]]:
        """Return, by sample id, the five most likely (label, probability) pairs."""
        query = "SELECT sample, top5 FROM rows WHERE cell = ? AND status = 'ok' ORDER BY sample"
        rows = self._all(query, (cell.key,))
        with self._trusted():
            return {name: [(int(k), float(p)) for k, p in json.loads(t)] for name, t in rows}

    def counts(self) -> dict[Cell, tuple[int, int]]:
        """Return (successful, failed) rows of every cell."""
        query = "SELECT cell, sum(status = 'ok'), sum(status = 'failed') FROM rows GROUP BY cell"
        counts = {key: (ok, failed) for key, ok, failed in self._all(query)}
        return {cell: counts.get(cell.key, (0, 0)) for cell in self.cells}

    @property
    def is_complete(self) -> bool:
        """Whether every sample has a row, successful or failed, in every cell."""
        return is_complete(self, self.counts())

    def failures(self) -> list[Failure]:
        """Return the images that failed, each once, by data set and id."""
        query = (
            "SELECT dataset, sample, min(reason) FROM results WHERE status = 'failed' "
            "GROUP BY dataset, sample ORDER BY dataset, sample"
        )
        return [Failure(*row) for row in self._all(query)]

    def samples(self, dataset: str) -> dict[str, SampleRecord]:
        """Return what is stored about the samples of a data set, by id."""
        with self._trusted():
            return read_samples(self._connection, dataset)

    def notes(self) -> dict[str, tuple[str, ...]]:
        """Return what readers of the numbers should know, by data set; "" for the whole run."""
        notes: dict[str, list[str]] = {}
        for dataset, text in self._all("SELECT dataset, text FROM notes ORDER BY dataset, text"):
            notes.setdefault(dataset, []).append(text)
        for dataset, text in lambda_notes(self.lambdas()):
            notes.setdefault(dataset, []).append(text)
        for text in session_notes(self.sessions()):
            notes.setdefault("", []).append(text)
        return {
            dataset: tuple(notes[dataset]) for dataset in ("", *self.datasets) if dataset in notes
        }

    def sessions(self) -> list[dict[str, Any]]:
        """Return when and where the run was worked on: started, seconds, rows, environment."""
        with self._trusted():
            return read_sessions(self._connection)


def is_complete(run: Run, counts: Mapping[Cell, tuple[int, int]]) -> bool:
    """Check, on counts that are known, whether every sample has a row in every cell."""
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    return all(sum(pair) == expected[cell.dataset] for cell, pair in counts.items())


def lambda_notes(lambdas: Mapping[Cell, SelectedLambda]) -> list[tuple[str, str]]:
    """Return (data set, text) for every λ that was selected without labels."""
    return [
        (
            cell.dataset,
            f"{cell.method}, seed {cell.seed}: λ = {selected.value:.6g} was selected on "
            f"{selected.images} images without their labels.",
        )
        for cell, selected in lambdas.items()
    ]


def session_notes(sessions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what differed between the processes that computed the rows.

    Example:
        >>> one, two = ({"rows": 4, "environment": {"threads": n}} for n in (1, 2))
        >>> session_notes([one]), len(session_notes([one, two]))
        ([], 1)
    """
    worked = [session for session in sessions if session.get("rows") != 0]
    notes = []
    threads = {session.get("environment", {}).get("threads") for session in worked} - {None}
    if len(threads) > 1:
        counts = " and ".join(str(count) for count in sorted(threads))
        notes.append(
            f"Rows were computed with {counts} torch threads; numbers differ in their last bits."
        )
    environments = [
        environment
        for session in worked
        for environment in session.get("nodes") or [session.get("environment", {})]
    ]
    differences = []
    for name in MACHINE:
        values = {str(environment.get(name, "")) for environment in environments} - {""}
        if len(values) > 1:
            differences.append(f"{name} {' and '.join(sorted(values))}")
    if differences:
        notes.append(
            f"Rows were computed on different machines ({'; '.join(differences)}); numbers differ "
            "in their last bits."
        )
    return notes


def open_run(path: Path | str) -> Run:
    """Open the run in a folder, or one SQLite file of it.

    Raises:
        RunError: There is none, it is damaged, or it is still in shards.
    """
    return Run(store_file(path))
