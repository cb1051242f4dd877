"""One row: from the engine's outcome to what is stored, and back as NumPy columns."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dtpt.runs.schema import COLUMNS
from dtpt.runs.spec import Cell

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.tuning import Outcome

Columns = npt.NDArray[Any]  # a structured array: one record per row, one field per column
Floats = npt.NDArray[np.float64]

TOP = 5
LEAST_LOG = -60000.0  # float16 ends soon after
ARRAY_COLUMNS = ("sample", "cluster", *(column.name for column in COLUMNS if column.is_array))
DTYPES = {"sample": "O", "cluster": "O", "correct": "?", **{c.name: c.dtype for c in COLUMNS}}


@dataclass(frozen=True)
class Row:
    """What one method gave for one image; see `schema.COLUMNS`."""

    prediction: int
    confidence: float
    entropy: float
    p_label: float
    sum_squares: float
    top5: str
    zero_shot_prediction: int
    zero_shot_confidence: float
    views: int = 1
    lambda_used: float | None = None
    position: int | None = None
    log_probabilities: bytes | None = None

    @classmethod
    def from_outcome(
        cls,
        outcome: "Outcome",
        label: int,
        *,
        keep_all: bool = True,
        position: int | None = None,
    ) -> "Row":
        """Reduce the (C,) probabilities to a row; arithmetic in float64, ties to the first class.

        `keep_all` stores all probabilities beside the five largest.
        """
        p = _numbers(outcome.probabilities)
        zero_shot = softmax(_numbers(outcome.zero_shot_logits))
        order = np.argsort(-p, kind="stable")[:TOP]
        positive = p[p > 0]
        # nine digits give back every float32 exactly
        top5 = ",".join(f"[{k},{p[k]:.9g}]" for k in order)
        return cls(
            prediction=int(order[0]),
            confidence=float(p[order[0]]),
            entropy=float(max(0.0, -(positive * np.log(positive)).sum())),
            p_label=float(p[label]),
            sum_squares=float((p * p).sum()),
            top5=f"[{top5}]",
            zero_shot_prediction=int(zero_shot.argmax()),
            zero_shot_confidence=float(zero_shot.max()),
            views=outcome.views,
            lambda_used=outcome.lambda_,
            position=position,
            log_probabilities=pack(log_softmax(_numbers(outcome.logits))) if keep_all else None,
        )


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _numbers(tensor: "Tensor") -> Floats:
    return np.asarray(tensor.detach().cpu().double().numpy())


def pack(log_probabilities: Floats) -> bytes:
    """Return (C,) log-probabilities in few bytes: float16 through zlib, to three digits.

    Example:
        >>> unpack([pack(np.log(np.array([0.25, 0.5])))], 2).tolist()
        [[-1.38671875, -0.693359375]]
    """
    return zlib.compress(np.clip(log_probabilities, LEAST_LOG, 0.0).astype("<f2").tobytes())


def unpack(packed: Sequence[bytes], classes: int) -> npt.NDArray[np.float32]:
    """Return the (n, C) log-probabilities that `pack` was given row by row, to three digits.

    Raises:
        ValueError: Some bytes hold another number of them; no more than these are unpacked.
    """
    size = 2 * classes
    parts = [zlib.decompressobj().decompress(data, size + 1) for data in packed]
    if any(len(part) != size for part in parts):
        raise ValueError(f"stored probabilities are not those of {classes} classes")
    logs = np.frombuffer(b"".join(parts), dtype="<f2")  # (n * C,)
    return logs.reshape(len(parts), classes).astype(np.float32)


def column_types(names: Iterable[str]) -> np.dtype[Any]:
    return np.dtype([(name, DTYPES[name]) for name in names])


def column_sql(names: Iterable[str]) -> str:
    """Return what to select from the table `rows` for these columns.

    In place of the cluster it is the sample, of which the reader knows the cluster.
    """
    computed = {"correct": "label = prediction", "cluster": "sample"}
    computed |= {"position": "ifnull(position, -1)"}
    return ", ".join(computed.get(name, f'"{name}"') for name in names)


class Rows:
    """Successful rows as columns of equal length, ordered by cell, then sample id.

    Every column of the store is an attribute: `rows.label`, `rows.confidence`, `rows.p_label`, ...
    """

    sample: npt.NDArray[np.object_]
    cluster: npt.NDArray[np.object_]
    label: npt.NDArray[np.int64]
    prediction: npt.NDArray[np.int64]
    confidence: Floats
    entropy: Floats
    p_label: Floats
    sum_squares: Floats
    zero_shot_prediction: npt.NDArray[np.int64]
    zero_shot_confidence: Floats
    views: npt.NDArray[np.int64]
    position: npt.NDArray[np.int64]  # in the stream, from 0; -1 for methods without state

    def __init__(self, cells: Sequence[Cell], parts: Sequence[Columns]) -> None:
        empty = np.empty(0, dtype=column_types(ARRAY_COLUMNS))
        # all columns as one structured array
        self.table: Columns = np.concatenate([empty, *parts])
        for name in ARRAY_COLUMNS:
            setattr(self, name, np.ascontiguousarray(self.table[name]))
        self.cells = tuple(cells)
        # (n,) index into `cells`
        self.cell_index = np.repeat(np.arange(len(parts)), [len(part) for part in parts])

    def __len__(self) -> int:
        return len(self.label)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """(n,) whether the prediction is the label."""
        return np.equal(self.prediction, self.label)

    def records(self) -> list[dict[str, Any]]:
        """Return a dictionary of plain values for each row, as tables and JSON take them."""
        names = [*ARRAY_COLUMNS, "correct"]
        lists = [getattr(self, name).tolist() for name in names]
        described = [
            {
                "dataset": c.dataset,
                "method": c.method,
                "lambda": c.lambda_,
                "seed": c.seed,
                "order": c.order,
            }
            for c in self.cells
        ]
        return [
            {**described[index], **dict(zip(names, values, strict=True))}
            for index, *values in zip(self.cell_index.tolist(), *lists, strict=True)
        ]
