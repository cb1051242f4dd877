"""The paper's numbers: lookup, whether a run is comparable, and the noise floor of its ECEs.

`tables.json` holds every printed table. One block is a printing error and is marked as an erratum,
so that it is no target.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from dtpt.methods import PAPER_METHODS
from dtpt.metrics import Metric, calibrated_ece
from dtpt.report.load import Condition, Variant

Init = Literal["photo", "picture", "coop"]

TOLERANCE = 3.0  # of the paper's standard deviations
ROUNDING = 0.005  # the paper prints two decimals
CONCENTRATIONS = (1.0, 2.0, 5.0)  # of the assumed confidences
SET_TABLES = ("table4", "table5", "table6", "table7")
MEAN_TABLES = ("table1", "table2")
SEEDS = 3
EXACT = 1e-9  # for sums of printed decimals


@dataclass(frozen=True)
class PaperNumber:
    """One printed number, in the paper's units."""

    value: float
    std: float | None  # the paper's ±, whose definition is not given
    table: str  # `table1` to `table7`
    erratum: str = ""  # why the number is no target


@lru_cache(maxsize=1)
def paper_data() -> dict[str, Any]:
    text = (files("dtpt.report.paper") / "tables.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


@lru_cache(maxsize=1)
def _cells() -> dict[tuple[str | None, ...], PaperNumber]:
    """Return the numbers by model, initial prompt, family or data set, method and metric."""
    content = paper_data()
    return {
        tuple(key): PaperNumber(value, std, table, content["errata"].get(f"{table} {key[-1]}", ""))
        for table, *key, value, std in content["cells"]
    }


@dataclass(frozen=True)
class PaperColumn:
    """One column of numbers by method and metric: a data set, or a mean over data sets."""

    table: str
    model: str
    prompt: str
    name: str  # data set, family, or `mean of TABLE`
    numbers: dict[tuple[str, str], float]


def paper_columns(
    tables: Sequence[str], *, model: str = "", prompt: str = "", means: bool = False
) -> list[PaperColumn]:
    """Return the columns of tables, of one model or prompt if given; `means`: the last columns."""
    return [
        column
        for column in _columns()
        if column.table in tables
        and column.name.startswith("mean of ") == means
        and model in ("", column.model)
        and prompt in ("", column.prompt)
    ]


@lru_cache(maxsize=1)
def _columns() -> tuple[PaperColumn, ...]:
    found: dict[tuple[str, ...], PaperColumn] = {}
    for table, model, prompt, name, method, metric, value, _ in paper_data()["cells"]:
        own = PaperColumn(table, model, prompt, name, numbers={})
        found.setdefault((table, model, prompt, name), own).numbers[method, metric] = value
    return tuple(found.values())


def family_of(table: str) -> str:
    """Return the family whose data sets a table has."""
    families: dict[str, list[str]] = paper_data()["set tables"]
    return next(name for name, tables in families.items() if table in tables)


def backbone_of(model: str) -> str | None:
    """Return the paper's backbone that a model name means, None for any other model."""
    backbone: str | None = paper_data()["models"].get(model)
    return backbone


def init_of(template: str, context: str | None) -> Init | None:
    """Return which of the paper's prompt initialisations a run used; any context is CoOp's."""
    init: Init | None = paper_data()["templates"].get(template)
    return init if context is None else "coop"


def is_paper_lambda(method: str, lambda_: float | None, *, family: str) -> bool:
    """Return whether the paper's row may have been computed with a λ."""
    listed = paper_data()["lambdas"].get(method, {}).get(family)
    return lambda_ is None if listed is None else lambda_ in listed


def paper_images(dataset: str) -> int | None:
    """Return how many test images the paper used, None for a set it does not have."""
    count: int | None = paper_data()["images"].get(dataset)
    return count


def paper_sets(family: str) -> set[str]:
    """Return the paper's data sets of a family, from its tables per set."""
    tables, images = paper_data()["set tables"].get(family, ()), paper_data()["images"]
    cells = paper_data()["cells"]
    return {where for table, _, _, where, *_ in cells if table in tables and where in images}


def paper_number(backbone: str, dataset: str, *, method: str, metric: str) -> PaperNumber | None:
    """Look up one cell of the tables per data set (4 to 7).

    Example:
        >>> paper_number("ViT-B-16/openai", "dtd", method="d-tpt", metric="ece").value
        5.2
    """
    return _cells().get((backbone_of(backbone), "photo", dataset, method, metric))


def paper_mean(
    backbone: str, family: str, *, method: str, metric: str, init: Init = "photo"
) -> PaperNumber | None:
    """Look up one cell of the tables of means (1 to 3).

    Example:
        >>> paper_mean("RN50/openai", "natural-shifts", method="zero-shot", metric="accuracy")
        PaperNumber(value=40.66, std=None, table='table2', erratum='')
    """
    return _cells().get((backbone_of(backbone), init, family, method, metric))


@dataclass(frozen=True)
class PaperDifference:
    """A number beside the paper's, in the paper's units."""

    printed: PaperNumber
    difference: float | None  # ours minus the paper's; None for an erratum
    outside: bool | None  # of three standard deviations; None where the paper gives none


def beside_paper(
    condition: Condition, sets: Sequence[str], *, variant: Variant, metric: Metric, value: float
) -> PaperDifference | None:
    """Compare a number, a fraction, with the paper's; None where the run is not the paper's.

    One set is compared with tables 4 to 7, a mean over exactly the paper's sets with tables 1 to 3.
    """
    init = init_of(condition.template, condition.context)
    if variant.derived or init is None or not is_comparable(condition, sets, variant=variant):
        return None
    model, names = condition.model, {"method": variant.method, "metric": metric.key}
    if len(sets) == 1:
        printed = paper_number(model, sets[0], **names) if init == "photo" else None
    else:
        family = condition.datasets[sets[0]].family
        if set(sets) != paper_sets(family):
            return None
        printed = paper_mean(model, family, **names, init=init)
    if printed is None or printed.erratum:
        return PaperDifference(printed, None, None) if printed else None
    difference, std = value * metric.factor - printed.value, printed.std
    outside = None if std is None else abs(difference) > TOLERANCE * std + ROUNDING
    return PaperDifference(printed, difference, outside)


def is_comparable(condition: Condition, sets: Sequence[str], *, variant: Variant) -> bool:
    """Return whether model, tuning, images, views and λ are those of the paper's experiments."""
    return (
        backbone_of(condition.model) is not None
        and set(condition.unusual) <= {condition.precision}
        and all(
            entry.samples == paper_images(entry.name)
            and entry.views.get("count") == paper_data()["views"]
            and is_paper_lambda(variant.method, variant.lambda_, family=entry.family)
            for entry in (condition.datasets[name] for name in sets)
        )
    )


@dataclass(frozen=True)
class PaperFloor:
    """The noise floor of the ECE on one data set of the paper; fractions."""

    dataset: str
    images: int
    low: float  # over the assumed confidences
    high: float
    deviation: float  # largest standard deviation of the ECE of a calibrated model
    printed: dict[str, float]  # the paper's ECE by method


def paper_floors(backbone: str, datasets: Sequence[str]) -> list[PaperFloor]:
    """Return the noise floors of those sets for which the paper prints numbers.

    The paper prints no confidences, so they are assumed: drawn from a beta distribution whose mean
    is the printed accuracy of TPT and whose concentration is 1, 2 or 5. With them and the paper's
    20 bins the expected ECE of a perfectly calibrated model is exact.

    Example:
        >>> (floor,) = paper_floors("ViT-B-16/openai", ["dtd"])
        >>> floor.images, round(100 * floor.low, 1), round(100 * floor.high, 1)
        (1692, 3.0, 3.5)
    """
    floors = []
    for name in datasets:
        accuracy = paper_number(backbone, name, method="tpt", metric="accuracy")
        images = paper_images(name)
        if images is None or accuracy is None:
            continue
        mean = accuracy.value / 100
        expected = [
            calibrated_ece(np.random.default_rng(0).beta(c * mean, c * (1 - mean), images))
            for c in CONCENTRATIONS
        ]
        eces = {m: paper_number(backbone, name, method=m, metric="ece") for m in PAPER_METHODS}
        floors.append(
            PaperFloor(
                dataset=name,
                images=images,
                low=min(ece.mean for ece in expected),
                high=max(ece.mean for ece in expected),
                deviation=max(ece.deviation for ece in expected),
                printed={m: number.value / 100 for m, number in eces.items() if number},
            )
        )
    return floors
