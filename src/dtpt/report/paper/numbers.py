"""The paper's own numbers, as data: what a reproduction stands beside.

`tables.json` holds every printed table in the paper's units (percent, AURC times 1000). One
block is a printing error and is marked as such here, so that nobody takes it for a target.
"""

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

Family = Literal["fine-grained", "natural-shifts"]
Init = Literal["photo", "picture", "coop"]

BACKBONES = ("ViT-B-16/openai", "RN50/openai")
# spellings of the two backbones that mean OpenAI's weights
_SPELLINGS = {"ViT-B/16": BACKBONES[0], "RN50": BACKBONES[1]}


@dataclass(frozen=True)
class PaperNumber:
    """One printed number, in the paper's units.

    Attributes:
        value: As printed.
        std: The paper's ± (its definition is not given); None where none is printed.
        table: Which table, `table1` to `table7`.
        erratum: Why the number is no target; empty for all but the erroneous block.
    """

    value: float
    std: float | None
    table: str
    erratum: str = ""


@lru_cache(maxsize=1)
def paper_data() -> dict[str, Any]:
    """Return the whole data file."""
    text = (files("dtpt.report.paper") / "tables.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def backbone_of(model: str) -> str | None:
    """Return the paper's backbone that a model name means, None for any other model."""
    name = _SPELLINGS.get(model, model)
    return name if name in BACKBONES else None


def init_of(template: str, context: str | None) -> Init | None:
    """Return which of the paper's prompt initialisations a run used, None for another.

    Any trained context counts as CoOp's: which file it was is for the reader to know.
    """
    if context is not None:
        return "coop"
    known: dict[str, Init] = {"a photo of a {}.": "photo", "a picture of a {}.": "picture"}
    return known.get(template)


def is_paper_lambda(method: str, lambda_: float | None, *, family: str) -> bool:
    """Tell whether a weight is one with which the paper's row may have been computed.

    The paper states λ for D-TPT only; for C-TPT and O-TPT their authors' values are accepted.
    """
    listed = paper_data()["lambdas"].get(method, {}).get(family)
    return lambda_ is None if listed is None else lambda_ in listed


def paper_images(dataset: str) -> int | None:
    """Return how many test images the paper used, None for a set it has not."""
    count: int | None = paper_data()["images"].get(dataset)
    return count


def paper_number(backbone: str, dataset: str, *, method: str, metric: str) -> PaperNumber | None:
    """Look up one cell of the tables per data set (4 to 7).

    Args:
        backbone: A model name, `ViT-B-16/openai` or `RN50/openai`.
        dataset: Our name of the set (`dtd`).
        method: `zero-shot`, `tpt`, `c-tpt`, `o-tpt` or `d-tpt`.
        metric: `accuracy`, `ece`, `aece`, `mce` or `aurc`.

    Example:
        >>> paper_number("ViT-B-16/openai", "dtd", method="d-tpt", metric="ece").value
        5.2
        >>> paper_number("ViT-B-16/openai", "imagenet_a", method="tpt", metric="aurc").erratum[:3]
        'All'
    """
    known = backbone_of(backbone)
    for name, table in paper_data()["tables"].items():
        if table["kind"] != "sets" or known not in table["sets"]:
            continue
        value = table["sets"][known].get(method, {}).get(metric, {}).get(dataset)
        if value is not None:
            return PaperNumber(value, None, name, _erratum(name, metric))
    return None


def paper_mean(
    backbone: str, family: str, *, method: str, metric: str, init: Init = "photo"
) -> PaperNumber | None:
    """Look up one cell of the tables of means (1 to 3).

    Example:
        >>> paper_mean("RN50/openai", "natural-shifts", method="zero-shot", metric="accuracy")
        PaperNumber(value=40.66, std=None, table='table2', erratum='')
    """
    known = backbone_of(backbone)
    for name, table in paper_data()["tables"].items():
        if table["kind"] != "means" or table["family"] != family:
            continue
        cell = table["means"].get(known, {}).get(init, {}).get(method, {}).get(metric)
        if cell is not None:
            return PaperNumber(cell["value"], cell.get("std"), name)
    return None


def _erratum(table: str, metric: str) -> str:
    for entry in paper_data()["errata"]:
        if entry["table"] == table and entry["metric"] == metric:
            return str(entry["fact"])
    return ""
