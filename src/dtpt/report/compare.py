"""When a number may stand beside the paper's, and how far apart they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.metrics import Metric
from dtpt.report.cells import Block
from dtpt.report.paper import (
    PaperNumber,
    backbone_of,
    init_of,
    is_paper_lambda,
    paper_data,
    paper_images,
    paper_mean,
    paper_number,
)

TOLERANCE = 3.0  # of the paper's standard deviations
ROUNDING = 0.005  # the paper prints two decimals


@dataclass(frozen=True)
class Comparison:
    """A number beside the paper's, in the paper's units.

    Attributes:
        value: The paper's number.
        std: Its ±; None where it prints none.
        difference: Ours minus the paper's; None for an erratum.
        outside: Whether it is outside three of the paper's standard deviations; None where the
            paper gives none (per-set tables, zero-shot), so that nothing can be said.
        table: Where the paper prints it.
        erratum: Why it is no target; empty for all but the erroneous block.
    """

    value: float
    std: float | None
    difference: float | None
    outside: bool | None
    table: str
    erratum: str = ""


def compare_set(
    block: Block,
    dataset: str,
    method: str,
    lambda_: float | None,
    *,
    metric: Metric,
    value: float,
) -> Comparison | None:
    """Compare one set's number with tables 4 to 7; None when the run is not the paper's."""
    if not is_comparable(block, [dataset], method, lambda_):
        return None
    if init_of(block.template, block.context) != "photo":
        return None
    found = paper_number(block.model, dataset, method=method, metric=metric.key)
    return _compare(found, value * metric.factor)


def compare_mean(
    block: Block,
    sets: Sequence[str],
    method: str,
    lambda_: float | None,
    *,
    metric: Metric,
    value: float,
) -> Comparison | None:
    """Compare a mean with tables 1 to 3; None unless it is over exactly the paper's sets."""
    init = init_of(block.template, block.context)
    family = block.datasets[sets[0]].family
    if init is None or set(sets) != paper_sets(family):
        return None
    if not is_comparable(block, sets, method, lambda_):
        return None
    found = paper_mean(block.model, family, method=method, metric=metric.key, init=init)
    return _compare(found, value * metric.factor)


def paper_sets(family: str) -> set[str]:
    """Return the paper's data sets of a family, from its per-set tables."""
    names: set[str] = set()
    for table in paper_data()["tables"].values():
        if table["kind"] == "sets" and table["family"] == family:
            for methods in table["sets"].values():
                names |= set(methods["zero-shot"]["accuracy"]) - {"mean"}
    return names


def is_comparable(block: Block, sets: Sequence[str], method: str, lambda_: float | None) -> bool:
    """Tell whether model, pictures, views and λ are those of the paper's experiments."""
    if backbone_of(block.model) is None:
        return False
    entries = [block.datasets[name] for name in sets]
    whole = all(entry.samples == paper_images(entry.name) for entry in entries)
    views = all(entry.views.get("count") == paper_data()["views"] for entry in entries)
    weights = all(is_paper_lambda(method, lambda_, family=entry.family) for entry in entries)
    return whole and views and weights


def _compare(found: PaperNumber | None, ours: float) -> Comparison | None:
    if found is None:
        return None
    if found.erratum:
        return Comparison(found.value, found.std, None, None, found.table, found.erratum)
    difference = ours - found.value
    outside = None
    if found.std is not None:
        outside = abs(difference) > TOLERANCE * found.std + ROUNDING
    return Comparison(found.value, found.std, difference, outside, found.table)
