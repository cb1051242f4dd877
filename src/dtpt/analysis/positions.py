"""Accuracy and calibration along streams: in windows of positions, and from the start up to them.

The images of several data sets at the same relative position count together, as do those of
several seeds. A value is the mean over orders, with the interval of a t test over them where there
are two. Where a stream has no image in a window, there is none. Every quantity is also that of
zero-shot in the same images: an ECE of few images, above all, lies above 0 by chance.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dtpt.metrics import METRICS, Conventions, Predictions
from dtpt.metrics.comparison import student_difference
from dtpt.metrics.validation import BoolArray, FloatArray
from dtpt.tables import Cell, Column, Row, Table, number_text

WINDOWS = 10
COLUMNS = (
    *("position", "confidence", "correct"),
    *("label", "zero_shot_prediction", "zero_shot_confidence"),
)
"""What is read of a stream's rows."""
SO_FAR = "_so_far"  # follows the name of a quantity that is of all windows up to one
TITLES = {
    "gain": "accuracy minus zero-shot's in the same images",
    "gap": "signed gap",
    "ece": "ECE",
}

Facts = dict[str, Any]


def along_streams(cells: Iterable[tuple[int | None, Any, int]]) -> dict[str, list[Facts]]:
    """Return each quantity in every window, as value with the ends of its interval.

    Args:
        cells: order, rows (a structured array with `COLUMNS`) and number of images of each stream.
    """
    streams: dict[int | None, list[FloatArray]] = {}
    for order, rows, images in cells:
        window = rows["position"] * WINDOWS // images
        zero_shot = rows["zero_shot_prediction"] == rows["label"]
        parts = (rows["confidence"], rows["correct"], rows["zero_shot_confidence"], zero_shot)
        streams.setdefault(order, []).append(np.stack((window, *parts)).astype(float))
    curves = [_curves(np.concatenate(parts, axis=1)) for parts in streams.values()]
    return {
        key: [_over_orders([curve[key][k] for curve in curves]) for k in range(WINDOWS)]
        for key in curves[0]
    }


def _curves(stream: FloatArray) -> dict[str, list[float]]:
    """Return the quantities of one stream (5, n) in every window, and up to its end."""
    curves: dict[str, list[float]] = {}
    for k in range(WINDOWS):
        for suffix, chosen in (("", stream[0] == k), (SO_FAR, stream[0] <= k)):
            for key, value in _quantities(stream[1:, chosen]).items():
                curves.setdefault(f"{key}{suffix}", []).append(value)
    return curves


def _quantities(rows: FloatArray) -> dict[str, float]:
    """Return what is measured of rows (4, n): confidence and correctness, and zero-shot's."""
    if not rows.shape[1]:
        rows = np.full((4, 1), math.nan)
    confidence, correct, zero_shot_confidence, zero_shot = rows
    accuracy, reference = float(correct.mean()), float(zero_shot.mean())
    return {
        "accuracy": accuracy,
        "zero_shot_accuracy": reference,
        "gain": accuracy - reference,
        "gap": float(confidence.mean()) - accuracy,
        "zero_shot_gap": float(zero_shot_confidence.mean()) - reference,
        "ece": _ece(confidence, correct > 0),
        "zero_shot_ece": _ece(zero_shot_confidence, zero_shot > 0),
    }


def _ece(confidence: FloatArray, correct: BoolArray) -> float:
    if math.isnan(confidence[0]):
        return math.nan
    predictions = Predictions.from_confidence(confidence, correct)
    return METRICS["ece"].value(predictions, Conventions())


def _over_orders(values: Sequence[float]) -> Facts:
    count, mean = len(values), float(np.mean(values))
    value = None if math.isnan(mean) else mean
    if value is None or count < 2:
        return {"value": value, "low": None, "high": None}
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    ends = student_difference(mean, error, freedom=count - 1, level=0.95)
    return {"value": value, "low": ends.low, "high": ends.high}


def position_tables(
    positions: Sequence[Facts], *, title: str, key: str = "", name: Callable[[str], str] = str
) -> list[Table]:
    """Return a table for each quantity: methods by order, and zero-shot where it is a number.

    Args:
        positions: what `along_streams` gave, with `order` and `method`.
        title: of all of them.
        key: what the keys of the tables begin with.
        name: from a method to what is printed.
    """
    columns = tuple(Column(f"{100 * (k + 1) // WINDOWS} %") for k in range(WINDOWS))
    tables = []
    for quantity, what in TITLES.items():
        rows = []
        for order in dict.fromkeys(facts["order"] for facts in positions):
            own = [facts for facts in positions if facts["order"] == order]
            lines = [(facts["method"], facts[quantity]) for facts in own]
            if quantity != "gain":
                lines = [("zero-shot", own[0][f"zero_shot_{quantity}"]), *lines]
            group = f"order {order}"
            rows += [Row(name(who), _cells(values, quantity), group=group) for who, values in lines]
        text = f"{title}: {what} (%), in tenths of the stream"
        tables.append(Table(text, columns, tuple(rows), key=key and f"{key}-{quantity}"))
    return tables


def _cells(values: Sequence[Facts], quantity: str) -> tuple[Cell, ...]:
    metric = METRICS["ece" if quantity == "ece" else "signed_gap"]
    is_signed = quantity != "ece"
    return tuple(
        Cell("—", is_missing=True)
        if each["value"] is None
        else Cell(number_text(each["value"], metric, signed=is_signed))
        for each in values
    )
