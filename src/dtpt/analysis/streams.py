"""Do online methods gain in any order of the images, and how sure are they along the stream?

Every method runs in several orders of each kind (shuffled, class after class, correlated) and is
compared with zero-shot on the same images; the intervals are over orders. Methods without state are
further references. Beside it stand accuracy and calibration along the streams.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from dtpt.analysis.positions import COLUMNS, along_streams, position_tables
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
from dtpt.options import Listed, Seed
from dtpt.tables import Table

if TYPE_CHECKING:
    from dtpt.runs import Run

UNTUNED = "zero-shot"


class StreamsOptions(StudyOptions):
    """The options of `dtpt analyze streams`."""

    method: Annotated[
        Names,
        Field(
            description="Stream methods, comma-separated, compared with zero-shot; and with "
            "methods without state that are named too, such as mean-views."
        ),
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
    """Return every method under every order, compared with those that carry no state."""
    orders = {part.name: part.order for part in plan_parts(options)}
    still = [
        label for label in options.method if label != UNTUNED and not _is_stream(label, pooled)
    ]
    rows = {}
    for (part, label), predictions in pooled.items():
        order = orders[part]
        further = still if _is_stream(label, pooled) else ()
        rows[f"{label}, {order}"] = Variant(
            f"order {order}",
            {"method": label, "order": order},
            predictions,
            None if label == UNTUNED else f"{UNTUNED}, {order}",
            tuple(f"{other}, {order}" for other in further),
        )
    return rows


def _is_stream(label: str, pooled: Pooled) -> bool:
    """Return whether a method carries state."""
    seeds = next(p.seeds for (_, name), p in pooled.items() if name == label)
    return seeds[0].order is not None


def position_facts(options: StreamsOptions, runs: "Mapping[str, Run]") -> dict[str, list[Facts]]:
    """Return what changes along the streams, by family, order and method."""
    orders = {part.name: part.order for part in plan_parts(options)}
    found: list[Facts] = []
    for part, run in runs.items():
        rows = run.columns(*COLUMNS)
        sizes = {entry.name: entry.samples for entry in run.spec.datasets}
        families = {entry.name: entry.family for entry in run.spec.datasets}
        cells = [cell for cell in rows if cell.order is not None]
        for family, label in dict.fromkeys((families[cell.dataset], cell.label) for cell in cells):
            own = [c for c in cells if (families[c.dataset], c.label) == (family, label)]
            known = {"family": family_title(family), "order": orders[part], "method": label}
            found.append(known | along_streams((c.order, rows[c], sizes[c.dataset]) for c in own))
    return {"positions": found}


def stream_tables(study: Study) -> Iterator[Table | str]:
    """Yield differences to zero-shot, then accuracy and calibration along the streams."""
    yield from study_tables(study, {"method": "method"})
    positions = study.facts["positions"]
    for family in dict.fromkeys(facts["family"] for facts in positions):
        own = [facts for facts in positions if facts["family"] == family]
        yield from position_tables(own, title=family)
    yield (
        "Differences of stream methods are over orders of the same images: they hold for these "
        f"images. {LEGEND}"
    )


STREAMS = Design(
    "streams", plan_parts, variants, heads={"method": "method"}, legend="", facts=position_facts
)
