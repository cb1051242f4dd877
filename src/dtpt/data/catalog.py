"""What is known about the paper's fifteen test sets: facts in `catalog/*.json`, read here.

Class names are stored as the peers' code has them (underscores and all); `Dataset.classes` has them
as they enter the prompt. The index in the list is the label.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, cast

from dtpt.data.dataset import Family
from dtpt.errors import DatasetError, UnknownName

Kind = Literal["split", "variants", "wnid-folders", "number-folders"]

FINE_GRAINED = (
    "imagenet",
    "dtd",
    "flowers102",
    "food101",
    "sun397",
    "fgvc_aircraft",
    "oxford_pets",
    "caltech101",
    "ucf101",
    "eurosat",
    "stanford_cars",
)
NATURAL_SHIFTS = ("imagenet_a", "imagenet_v2", "imagenet_r", "imagenet_sketch")
PAPER_SETS = FINE_GRAINED + NATURAL_SHIFTS


@dataclass(frozen=True)
class Layout:
    """One place where people keep a set, relative to the data root.

    Attributes:
        layout: Whose convention it is: `coop`, `tpt` or `original` (the unpacked archive).
        folder: The set's folder; the split file lies in it.
        images: Folder of the images inside `folder`; empty when they lie in it directly.
    """

    layout: str
    folder: str
    images: str


@dataclass(frozen=True)
class CatalogEntry:
    """Facts about one of the paper's test sets.

    Attributes:
        name: Our name, for example `oxford_pets`.
        title: The paper's name.
        family: The paper's group.
        augmix: Whether the views are made with AugMix by default.
        kind: Where labels come from: a `split` file, Aircraft's `variants` list, folders named by
            WordNet id (`wnid-folders`) or by label number (`number-folders`).
        images: Number of test images that the paper used.
        split: Name of the file that lists them; empty for folder trees.
        layouts: Where to look, in this order.
        classes: Raw class names; the index is the label.
        folders: Folder name of each class, for folder trees.
    """

    name: str
    title: str
    family: Family
    augmix: bool
    kind: Kind
    images: int
    split: str
    layouts: tuple[Layout, ...]
    classes: tuple[str, ...]
    folders: tuple[str, ...]


@lru_cache(maxsize=32)
def catalog_entry(name: str) -> CatalogEntry:
    """Return the facts about one of the paper's sets."""
    if name not in PAPER_SETS:
        raise UnknownName("data set", name, PAPER_SETS)
    record = _read(name)
    classes, wnids = _class_lists(record)
    _verify(name, classes, record["classes_sha256"])
    numbered = record["kind"] == "number-folders"
    return CatalogEntry(
        name=name,
        title=record["title"],
        family=cast(Family, record["family"]),
        augmix=record["augmix"],
        kind=cast(Kind, record["kind"]),
        images=record["images"],
        split=record.get("split", ""),
        layouts=tuple(Layout(**place) for place in record["layouts"]),
        classes=classes,
        folders=tuple(str(label) for label in range(len(classes))) if numbered else wnids,
    )


def class_list_digest(classes: tuple[str, ...]) -> str:
    """Hash a list of raw class names, as recorded in the catalogue files."""
    return hashlib.sha256(json.dumps(list(classes), ensure_ascii=False).encode()).hexdigest()


def _read(name: str) -> dict[str, Any]:
    text = (files("dtpt.data") / "catalog" / f"{name}.json").read_text("utf-8")
    record: dict[str, Any] = json.loads(text)
    return record


def _class_lists(record: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return raw class names and WordNet ids; the shift sets are subsets of ImageNet's lists."""
    if "imagenet_indices" not in record:
        return tuple(record["classes"]), tuple(record.get("wnids", ()))
    parent = _read("imagenet")
    indices = record["imagenet_indices"]
    chosen = range(len(parent["classes"])) if indices == "all" else indices
    return (
        tuple(parent["classes"][index] for index in chosen),
        tuple(parent["wnids"][index] for index in chosen),
    )


def _verify(name: str, classes: tuple[str, ...], expected: str) -> None:
    if class_list_digest(classes) != expected:
        raise DatasetError(
            f"The class list of {name!r} in dtpt/data/catalog was changed; reinstall dtpt."
        )
