"""Reading a finished or running store as NumPy columns, for metrics, exports, analysis and report.

>>> run = open_run("runs/pets")                                             # doctest: +SKIP
>>> rows = run.rows(dataset="oxford_pets", method="d-tpt", seed=0)          # doctest: +SKIP
>>> rows.correct.mean(), rows.confidence.mean()                             # doctest: +SKIP
"""

import json
import sqlite3
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dtpt.errors import RunError
from dtpt.runs.schema import Cell, connect_for_reading, explained
from dtpt.runs.spec import RunSpec
from dtpt.runs.store import MAIN_STORE, cells_of, read_spec, read_top5

_COLUMNS = np.dtype(
    [
        ("sample", np.object_),
        ("label", np.int64),
        ("prediction", np.int64),
        ("confidence", np.float64),
        ("entropy", np.float64),
        ("p_label", np.float64),
        ("sum_squares", np.float64),
        ("zero_shot_prediction", np.int64),
        ("zero_shot_confidence", np.float64),
    ]
)
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
)


@dataclass(frozen=True)
class Rows:
    """Successful rows as columns of equal length, ordered by cell, then sample id.

    Attributes:
        ids: (n,) sample ids.
        labels: (n,) true classes.
        predictions: (n,) predicted classes.
        confidence: (n,) probability of the prediction, a fraction.
        entropy: (n,) of the probabilities, in nats.
        p_label: (n,) probability of the true class.
        sum_squares: (n,) Σ p² over all classes.
        zero_shot_predictions: (n,) what the untuned prompt says about the same image.
        zero_shot_confidence: (n,) and how sure it is.
        cell_index: (n,) index into `cells`.
        cells: the combinations the rows belong to.
    """

    ids: npt.NDArray[np.object_]
    labels: npt.NDArray[np.int64]
    predictions: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]
    entropy: npt.NDArray[np.float64]
    p_label: npt.NDArray[np.float64]
    sum_squares: npt.NDArray[np.float64]
    zero_shot_predictions: npt.NDArray[np.int64]
    zero_shot_confidence: npt.NDArray[np.float64]
    cell_index: npt.NDArray[np.int64]
    cells: tuple[Cell, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """(n,) whether the prediction is the label."""
        return np.equal(self.predictions, self.labels)


@dataclass(frozen=True)
class Failure:
    """An image that could not be evaluated, and why."""

    dataset: str
    sample: str
    reason: str


@dataclass(frozen=True)
class SampleRecord:
    """What is stored about a sample itself."""

    id: str
    label: int
    group: str
    image_key: str | None


class Run:
    """A stored run, read-only.

    Attributes:
        path: The SQLite file.
        spec: The configuration that decides its numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect_for_reading(path)
        with explained(path):
            spec = self._try_spec()
        if spec is None:
            self._connection.close()
            raise RunError(f"{path} holds no run yet: start one with `dtpt eval`.")
        self.spec: RunSpec = spec

    def _try_spec(self) -> RunSpec | None:
        try:
            return read_spec(self._connection)
        except sqlite3.OperationalError:  # a file without our tables
            return None
        except ValueError as error:
            self._connection.close()
            raise RunError(f"{self.path} holds an unreadable configuration: {error}") from error

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
        return tuple(cells_of(self.spec))

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
        """Return the cells that match; None matches all. `method` may be a label (`d-tpt@1e5`)."""
        name, _, written = (method or "").partition("@")
        wanted = float(written) if written else lambda_
        return tuple(
            cell
            for cell in self.cells
            if (dataset is None or cell.dataset == dataset)
            and (method is None or cell.method == name)
            and (wanted is None or cell.lambda_ == wanted)
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

    def rows_of(self, *cells: Cell) -> Rows:
        """Return the successful rows of these cells, in their order, each by sample id."""
        parts = [self._table(cell) for cell in cells]
        found = np.concatenate(parts) if parts else np.empty(0, dtype=_COLUMNS)
        index = np.repeat(np.arange(len(cells)), [len(part) for part in parts]).astype(np.int64)
        column = {name: np.ascontiguousarray(found[name]) for name in _COLUMNS.names or ()}
        return Rows(
            ids=column["sample"],
            labels=column["label"],
            predictions=column["prediction"],
            confidence=column["confidence"],
            entropy=column["entropy"],
            p_label=column["p_label"],
            sum_squares=column["sum_squares"],
            zero_shot_predictions=column["zero_shot_prediction"],
            zero_shot_confidence=column["zero_shot_confidence"],
            cell_index=index,
            cells=cells,
        )

    def _table(self, cell: Cell) -> npt.NDArray[np.void]:
        """Return the successful rows of a cell as one structured array, by sample id."""
        names = ", ".join(_COLUMNS.names or ())
        query = f"SELECT {names} FROM rows WHERE cell = ? AND status = 'ok' ORDER BY sample"  # noqa: S608
        with explained(self.path):
            return np.fromiter(self._connection.execute(query, (cell.key,)), dtype=_COLUMNS)

    def raw_rows(self, cell: Cell) -> list[dict[str, Any]]:
        """Return all rows of a cell, failed ones included, by sample id, as stored."""
        names = _STORED
        query = f"SELECT {', '.join(names)} FROM rows WHERE cell = ? ORDER BY sample"  # noqa: S608
        return [dict(zip(names, row, strict=True)) for row in self._all(query, (cell.key,))]

    def top5(self, cell: Cell) -> dict[str, list[tuple[int, float]]]:
        """Return, by sample id, the five most likely (label, probability) pairs."""
        found = self._all(
            "SELECT sample, top5 FROM rows WHERE cell = ? AND status = 'ok' ORDER BY sample",
            (cell.key,),
        )
        return {sample: read_top5(text) for sample, text in found}

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
        columns = 'sample, label, "group", image_key'
        query = f"SELECT {columns} FROM samples WHERE dataset = ? ORDER BY sample"  # noqa: S608
        return {row[0]: SampleRecord(*row) for row in self._all(query, (dataset,))}

    def sessions(self) -> list[dict[str, Any]]:
        """Return when and where the run was worked on: started, seconds, environment."""
        query = "SELECT started, seconds, encoded_images, environment FROM sessions ORDER BY id"
        return [
            {
                "started": started,
                "seconds": seconds,
                "encoded_images": images,
                **json.loads(environment),
            }
            for started, seconds, images, environment in self._all(query)
        ]

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with explained(self.path):
            return self._connection.execute(query, values).fetchall()


def store_file(path: Path | str) -> Path:
    """Return the SQLite file that a run folder (or the file itself) means."""
    given = Path(path)
    if given.is_dir():
        shards = sorted(given.glob("shard-*-of-*.sqlite"))
        if not (given / MAIN_STORE).exists() and shards:
            raise RunError(
                f"{given} holds {len(shards)} shards: join them with `dtpt merge {given}`."
            )
        return given / MAIN_STORE
    return given


def open_run(path: Path | str) -> Run:
    """Open the run in a folder, or one SQLite file of it.

    Raises:
        RunError: There is none, it is damaged, or it is still in shards.
    """
    return Run(store_file(path))
