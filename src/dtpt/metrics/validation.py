"""Checks of what goes into a metric, so that a bad number is named instead of averaged away.

Accepted is anything `numpy.asarray` can read: lists, arrays, CPU tensors. Every refusal is a
`MetricError` that names the argument and, where one sample is at fault, its index from 0.
"""

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Probabilities = npt.NDArray[np.floating[Any]]

# A float32 softmax may exceed 1 by rounding; values this close outside [0, 1] are clipped to it.
RANGE_TOLERANCE = 1e-6
# Rounding 1,000 probabilities to float16 moves their sum by at most 5e-4.
SUM_TOLERANCE = 1e-3
# Probabilities converted to float64 at a time.
BLOCK = 2**18
# More bins than this are a typing error; every bin takes memory, in classwise ECE per class.
MOST_BINS = 10_000
# All draws of all metrics are kept until the end.
MOST_RESAMPLES = 100_000


class SampleError(MetricError):
    """One sample that makes a metric impossible; `index` counts from 0."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def read_array(values: npt.ArrayLike, name: str, *, dimensions: int) -> npt.NDArray[Any]:
    """Return a non-empty array of numbers with that many dimensions."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise MetricError(f"{name} cannot be read as an array: {error}") from error
    if array.ndim != dimensions:
        wanted = {1: "(samples,)", 2: "(samples, classes)"}[dimensions]
        raise MetricError(f"{name} has shape {array.shape}; expected {wanted}.")
    if array.size == 0:
        raise MetricError(f"{name} is empty (shape {array.shape}); give at least one sample.")
    if array.dtype.kind not in "biuf":
        raise MetricError(f"{name} has dtype {array.dtype}; expected numbers.")
    return array


def check_same_length(first: int, second: int, *, names: tuple[str, str]) -> None:
    if first != second:
        raise MetricError(f"{names[0]} has {first} samples but {names[1]} has {second}.")


def check_fraction(values: npt.ArrayLike, name: str = "confidence") -> FloatArray:
    """Return fractions as float64 in [0, 1]; at most 1e-6 outside is taken for rounding."""
    array = read_array(values, name, dimensions=1).astype(np.float64)
    inside = (array >= -RANGE_TOLERANCE) & (array <= 1 + RANGE_TOLERANCE)  # False for NaN
    if not inside.all():
        index = int(np.argmin(inside))
        raise SampleError(f"{name}[{index}] is {array[index]}; expected 0 to 1.", index)
    return np.clip(array, 0.0, 1.0)


def check_correct(values: npt.ArrayLike) -> BoolArray:
    """Return correctness as booleans; numbers are taken only when they are exactly 0 or 1."""
    array = read_array(values, "correct", dimensions=1)
    boolean = (array == 0) | (array == 1)
    if not boolean.all():
        index = int(np.argmin(boolean))
        raise SampleError(f"correct[{index}] is {array[index]}; expected true/false or 0/1.", index)
    return array.astype(np.bool_)


def check_pair(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[FloatArray, BoolArray]:
    """Check confidence and correctness of the same samples."""
    checked = check_fraction(confidence), check_correct(correct)
    check_same_length(len(checked[0]), len(checked[1]), names=("confidence", "correct"))
    return checked


def check_probabilities(values: npt.ArrayLike) -> Probabilities:
    """Return (samples, classes) probabilities in their own float precision, unchanged.

    Each row must be non-negative and sum to one within 1e-3, which float16 softmax outputs of a
    thousand classes satisfy. Rows are not renormalised.
    """
    array = read_array(values, "probabilities", dimensions=2)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    sums = array.sum(axis=1, dtype=np.float64)  # (samples,); NaN and infinity survive the sum
    valid = np.abs(sums - 1) <= SUM_TOLERANCE
    if not valid.all() or array.min() < 0:
        valid &= (array >= 0).all(axis=1)
        row = int(np.argmin(valid))
        raise SampleError(_row_problem(array[row], float(sums[row]), row=row), row)
    return array


def _row_problem(values: Probabilities, total: float, *, row: int) -> str:
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        column = int(np.argmax(bad))
        return f"probabilities[{row}, {column}] is {values[column]}; expected 0 to 1."
    return (
        f"probabilities[{row}] sums to {total:.6g}; expected 1 within {SUM_TOLERANCE}. Give "
        "softmax outputs, not logits."
    )


def float64_blocks(rows: Probabilities) -> Iterator[tuple[slice, FloatArray]]:
    """Yield float64 copies of some rows at a time, small enough for the processor's cache."""
    height = max(1, BLOCK // rows.shape[1])
    for start in range(0, len(rows), height):
        part = slice(start, min(start + height, len(rows)))
        yield part, rows[part].astype(np.float64)


def check_labels(values: npt.ArrayLike, *, classes: int) -> IntArray:
    """Return labels as integers in 0..classes-1."""
    array = read_array(values, "labels", dimensions=1)
    if array.dtype.kind not in "iu":
        raise MetricError(f"labels have dtype {array.dtype}; expected integers.")
    inside = (array >= 0) & (array < classes)
    if not inside.all():
        index = int(np.argmin(inside))
        raise SampleError(f"labels[{index}] is {array[index]}; expected 0 to {classes - 1}.", index)
    return array.astype(np.int64)


def check_predictions(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[Probabilities, IntArray]:
    """Check class probabilities and labels of the same samples."""
    rows = check_probabilities(probabilities)
    truth = check_labels(labels, classes=rows.shape[1])
    check_same_length(len(rows), len(truth), names=("probabilities", "labels"))
    return rows, truth


def check_count(value: int, name: str, *, most: int) -> int:
    """Raise unless `value` is a whole number from 1 to `most`."""
    try:
        count = operator.index(value)
    except TypeError:
        raise MetricError(f"{name} is {value!r}; expected a whole number.") from None
    if not 1 <= count <= most:
        raise MetricError(f"{name} is {value}; expected 1 to {most:,}.")
    return count


def check_bins(value: int, name: str = "bins") -> int:
    return check_count(value, name, most=MOST_BINS)


def check_resamples(value: int) -> int:
    return check_count(value, "resamples", most=MOST_RESAMPLES)


def check_level(value: float) -> float:
    if not 0 < value < 1:
        raise MetricError(f"level is {value}; expected between 0 and 1, such as 0.95.")
    return value
