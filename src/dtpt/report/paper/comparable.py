"""When a number may stand beside the paper's, and how far apart they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.metrics import Metric
from dtpt.report.gathering.scored_cells import Condition, Contender
from dtpt.report.paper.numbers import (
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
class PaperDifference:
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


def beside_paper(
    condition: Condition, sets: Sequence[str], *, contender: Contender, metric: Metric, value: float
) -> PaperDifference | None:
    """Compare a number with the paper's; None where the run is not the paper's.

    One set is compared with tables 4 to 7, a mean over exactly the paper's sets with tables 1 to 3.

    Args:
        condition: Model, prompt and settings of the number.
        sets: The data sets behind it.
        contender: Method and λ.
        metric: What the number is.
        value: The number, a fraction.
    """
    init = init_of(condition.template, condition.context)
    if contender.derived or init is None or not is_comparable(condition, sets, contender=contender):
        return None
    model, names = condition.model, {"method": contender.method, "metric": metric.key}
    if len(sets) == 1:
        found = paper_number(model, sets[0], **names) if init == "photo" else None
    else:
        family = condition.datasets[sets[0]].family
        if set(sets) != paper_sets(family):
            return None
        found = paper_mean(model, family, **names, init=init)
    return _difference(found, value * metric.factor)


def paper_sets(family: str) -> set[str]:
    """Return the paper's data sets of a family, from its per-set tables.

    Example:
        >>> sorted(paper_sets("natural-shifts"))
        ['imagenet_a', 'imagenet_r', 'imagenet_sketch', 'imagenet_v2']
    """
    names: set[str] = set()
    for table in paper_data()["tables"].values():
        if table["kind"] == "sets" and table["family"] == family:
            for methods in table["sets"].values():
                names |= set(methods["zero-shot"]["accuracy"]) - {"mean"}
    return names


def is_comparable(condition: Condition, sets: Sequence[str], *, contender: Contender) -> bool:
    """Tell whether model, tuning, pictures, views and λ are those of the paper's experiments."""
    is_tuned_alike = set(condition.unusual) <= {condition.precision}
    if backbone_of(condition.model) is None or not is_tuned_alike:
        return False
    entries = [condition.datasets[name] for name in sets]
    whole = all(entry.samples == paper_images(entry.name) for entry in entries)
    views = all(entry.views.get("count") == paper_data()["views"] for entry in entries)
    method, lambda_ = contender.method, contender.lambda_
    weights = all(is_paper_lambda(method, lambda_, family=entry.family) for entry in entries)
    return whole and views and weights


def _difference(found: PaperNumber | None, ours: float) -> PaperDifference | None:
    if found is None:
        return None
    if found.erratum:
        return PaperDifference(found.value, found.std, None, None, found.table, found.erratum)
    difference = ours - found.value
    outside = None
    if found.std is not None:
        outside = abs(difference) > TOLERANCE * found.std + ROUNDING
    return PaperDifference(found.value, found.std, difference, outside, found.table)
