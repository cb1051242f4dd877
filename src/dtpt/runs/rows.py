"""Stored rows as NumPy columns, and which columns there are."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import RunError
from dtpt.runs.spec import Cell

if TYPE_CHECKING:
    import pandas

Columns = npt.NDArray[Any]
"""A structured array: one record per row, one field per column."""

# column -> (SQL over the table `rows`, type)
COLUMNS: dict[str, tuple[str, Any]] = {
    "sample": ("sample", np.object_),
    "label": ("label", np.int64),
    "prediction": ("prediction", np.int64),
    "correct": ("label = prediction", np.bool_),
    "confidence": ("confidence", np.float64),
    "entropy": ("entropy", np.float64),
    "p_label": ("p_label", np.float64),
    "sum_squares": ("sum_squares", np.float64),
    "zero_shot_prediction": ("coalesce(zero_shot_prediction, -1)", np.int64),
    "zero_shot_confidence": ("coalesce(zero_shot_confidence, -1.0)", np.float64),
}
# what `Rows` is made of
ROW_COLUMNS = tuple(name for name in COLUMNS if name != "correct")


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

    def records(self) -> list[dict[str, Any]]:
        """Return a dictionary of plain values for each row, as tables and JSON take them."""
        columns = {
            "sample": self.ids,
            "label": self.labels,
            "prediction": self.predictions,
            "correct": self.correct,
            "confidence": self.confidence,
            "entropy": self.entropy,
            "p_label": self.p_label,
            "zero_shot_prediction": self.zero_shot_predictions,
            "zero_shot_confidence": self.zero_shot_confidence,
        }
        lists = [column.tolist() for column in columns.values()]
        return [
            {**_cell_record(self.cells[cell]), **dict(zip(columns, values, strict=True))}
            for cell, *values in zip(self.cell_index.tolist(), *lists, strict=True)
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the records as a table of pandas; an error where that is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise RunError(
                "pandas is not installed: `pip install pandas`, or use Run.records()."
            ) from error
        return pandas.DataFrame(self.records())

    @classmethod
    def of(cls, cells: tuple[Cell, ...], parts: Iterable[Columns]) -> "Rows":
        """Put the tables of some cells, in the same order, behind each other."""
        tables = list(parts)
        found = np.concatenate(tables) if tables else np.empty(0, dtype=column_types(ROW_COLUMNS))
        index = np.repeat(np.arange(len(tables)), [len(part) for part in tables]).astype(np.int64)
        column = {name: np.ascontiguousarray(found[name]) for name in ROW_COLUMNS}
        return cls(
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


def _cell_record(cell: Cell) -> dict[str, Any]:
    return {
        "dataset": cell.dataset,
        "method": cell.method,
        "lambda": cell.lambda_,
        "seed": cell.seed,
    }


def column_types(names: Iterable[str]) -> np.dtype[Any]:
    """Return the type of a structured array with these columns."""
    return np.dtype([(name, COLUMNS[name][1]) for name in names])


def column_sql(names: Iterable[str]) -> str:
    """Return what to select from the table `rows` for these columns."""
    return ", ".join(COLUMNS[name][0] for name in names)
