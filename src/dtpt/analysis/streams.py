"""Do online methods gain in any order of the images, and how sure are they along the stream?

Every method runs in several orders of each kind (shuffled, class after class, correlated) and is
compared with zero-shot on the same images; the intervals are over orders. Beside it, tenth by tenth
of the streams: accuracy minus zero-shot's in the same images, signed gap and ECE, in the tenth and
up to its end. The images of all data sets of a family at the same relative position count together.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from dtpt.analysis.study import (
    LEGEND,
    Design,
    Facts,
    Folder,
    Names,
    Part,
    Pooled,
    Study,
    StudyOptions,
    Variant,
    study_tables,
)
from dtpt.data.catalog import family_title
from dtpt.metrics import METRICS, Conventions
from dtpt.metrics.comparison import student_difference
from dtpt.metrics.validation import FloatArray
from dtpt.options import Listed, Seed
from dtpt.tables import Cell, Column, Row, Table, number_text

if TYPE_CHECKING:
    from dtpt.runs import Run

UNTUNED = "zero-shot"
TENTHS = 10


class StreamsOptions(StudyOptions):
    """The options of `dtpt analyze streams`."""

    method: Annotated[
        Names, Field(description="Stream methods, comma-separated; zero-shot is always added.")
    ] = ("tda", "tda+stream-temperature", "dmn-weak", "onzeta", "bca", "dota")
    orders: Annotated[
        tuple[str, ...], Listed, Field(min_length=1, description="Kinds of order, as --order has.")
    ] = ("shuffled", "by-class", "dirichlet=0.1")
    order_seeds: Annotated[
        tuple[Seed, ...],
        Listed,
        Field(min_length=2, description="Seeds of each order; every one is a stream of its own."),
    ] = tuple(range(10))
    output: Folder = Path("runs/streams")


def plan_parts(options: StreamsOptions) -> list[Part]:
    """Return a run for each kind of order."""
    methods = tuple(dict.fromkeys((UNTUNED, *options.method)))
    return [
        Part(order.replace("=", "-"), methods, options.views, options.rho, order)
        for order in options.orders
    ]


def variants(options: StreamsOptions, pooled: Pooled) -> dict[str, Variant]:
    """Return every method under every order, compared with zero-shot."""
    orders = {part.name: part.order for part in plan_parts(options)}
    rows = {}
    for (part, label), predictions in pooled.items():
        group = f"order {orders[part]}"
        reference = None if label == UNTUNED else f"{UNTUNED}, {orders[part]}"
        facts = {"method": label, "order": orders[part]}
        rows[f"{label}, {orders[part]}"] = Variant(group, facts, predictions, reference)
    return rows


def position_facts(options: StreamsOptions, runs: "Mapping[str, Run]") -> dict[str, list[Facts]]:
    """Return what changes along the streams, by family, order and method."""
    orders = {part.name: part.order for part in plan_parts(options)}
    found: list[Facts] = []
    for part, run in runs.items():
        families = dict.fromkeys(entry.family for entry in run.spec.datasets)
        for family in families:
            for label in dict.fromkeys(cell.label for cell in run.cells if cell.order is not None):
                known = {"family": family_title(family), "order": orders[part], "method": label}
                found.append(known | _positions(run, family, label=label))
    return {"positions": found}


def _positions(run: "Run", family: str, *, label: str) -> Facts:
    """Return each quantity at every tenth, as mean over orders with the ends of its interval."""
    streams: dict[int | None, list[Any]] = {}
    for entry in (entry for entry in run.spec.datasets if entry.family == family):
        for cell in run.select(dataset=entry.name, method=label):
            rows = run.rows_of(cell)
            tenth = rows.position * TENTHS // entry.samples
            zero_shot = rows.zero_shot_prediction == rows.label
            parts = (tenth, rows.confidence, rows.correct, zero_shot, rows.zero_shot_confidence)
            streams.setdefault(cell.order, []).append(np.stack(parts))
    curves = [_curves(np.concatenate(parts, axis=1)) for parts in streams.values()]
    return {key: _over_orders([curve[key] for curve in curves]) for key in curves[0]}


def _curves(stream: FloatArray) -> dict[str, list[float]]:
    """Return the quantities of one stream (5, n) in every tenth, and up to its end."""
    curves: dict[str, list[float]] = {}
    for tenth in range(TENTHS):
        for where, chosen in (("", stream[0] == tenth), ("_so_far", stream[0] <= tenth)):
            _, confidence, correct, zero_shot, zero_shot_confidence = stream[:, chosen]
            values = {
                "gain": correct.mean() - zero_shot.mean(),
                "gap": confidence.mean() - correct.mean(),
                "zero_shot_gap": zero_shot_confidence.mean() - zero_shot.mean(),
                "ece": _ece(confidence, correct),
            }
            for key, value in values.items():
                curves.setdefault(f"{key}{where}", []).append(float(value))
    return curves


def _ece(confidence: FloatArray, correct: FloatArray) -> float:
    from dtpt.metrics import Predictions

    predictions = Predictions.from_confidence(confidence, correct > 0)
    return METRICS["ece"].value(predictions, Conventions())


def _over_orders(curves: list[list[float]]) -> list[dict[str, float]]:
    values = np.array(curves)  # (orders, tenths)
    count = len(values)
    errors = values.std(axis=0, ddof=1) / np.sqrt(count)
    ends = [
        student_difference(float(mean), float(error), freedom=count - 1, level=0.95)
        for mean, error in zip(values.mean(axis=0), errors, strict=True)
    ]
    return [{"value": one.estimate, "low": one.low, "high": one.high} for one in ends]


def stream_tables(study: Study) -> Iterator[Table | str]:
    """Yield differences to zero-shot, then accuracy and confidence along the streams."""
    yield from study_tables(study, {"method": "method"})
    titles = {"gain": "accuracy minus zero-shot's in the same images", "gap": "signed gap"}
    columns = tuple(Column(f"{100 * (k + 1) // TENTHS} %") for k in range(TENTHS))
    positions = study.facts["positions"]
    for family in dict.fromkeys(facts["family"] for facts in positions):
        for key, title in titles.items():
            metric = METRICS["signed_gap"]
            rows = tuple(
                Row(
                    facts["method"],
                    tuple(Cell(number_text(p["value"], metric, signed=True)) for p in facts[key]),
                    group=f"order {facts['order']}",
                )
                for facts in positions
                if facts["family"] == family
            )
            yield Table(f"{family}: {title} (%), in tenths of the stream", columns, rows)
    yield (
        "Differences to zero-shot are over orders of the same images: they hold for these images. "
        f"{LEGEND}"
    )


STREAMS = Design(
    "streams", plan_parts, variants, heads={"method": "method"}, legend="", facts=position_facts
)
