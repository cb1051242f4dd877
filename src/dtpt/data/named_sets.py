"""What is known about the data sets that have a name: facts in `catalog/*.json`, read here.

Fifteen of them are the paper's. Another file in that folder makes another named set; it belongs to
a family of its own and joins none of the paper's groups and tables.

Class names are stored as the peers' code has them (underscores and all); `Dataset.classes` has them
as they enter the prompt. The index in the list is the label.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dtpt.data.families import PAPER_FAMILIES, ProtocolName, family_protocol
from dtpt.errors import DatasetError, UnknownName, explain

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


class Layout(BaseModel):
    """One place where people keep a set, relative to the data root.

    Attributes:
        layout: Whose convention it is: `coop`, `tpt` or `original` (the unpacked archive).
        folder: The set's folder; the split file lies in it.
        images: Folder of the images inside `folder`; empty when they lie in it directly.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layout: str
    folder: str
    images: str = ""


class _Record(BaseModel):
    """A file of the catalogue; see `CatalogEntry` for what its fields mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    title: str
    family: str
    protocol: ProtocolName | None = None
    augmix: bool = True
    kind: Kind
    images: Annotated[int, Field(gt=0)]
    images_source: str = ""
    split: str = ""
    layouts: Annotated[tuple[Layout, ...], Field(min_length=1)]
    classes: tuple[str, ...] = ()
    classes_sha256: str = ""
    wnids: tuple[str, ...] = ()
    imagenet_indices: tuple[int, ...] | Literal["all"] | None = None


@dataclass(frozen=True)
class CatalogEntry:
    """Facts about one named set.

    Attributes:
        name: Our name, for example `oxford_pets`.
        title: The name that people read.
        family: Its group; see `dtpt.data.families`.
        protocol: Whose default lambdas it takes.
        augmix: Whether the views are made with AugMix by default.
        kind: Where labels come from: a `split` file, Aircraft's `variants` list, folders named by
            WordNet id (`wnid-folders`) or by label number (`number-folders`).
        images: Number of images of the complete test set (for the paper's sets: that it used).
        split: Name of the file that lists them; empty for folder trees.
        layouts: Where to look, in this order.
        classes: Raw class names; the index is the label.
        folders: Folder name of each class, for folder trees.
    """

    name: str
    title: str
    family: str
    protocol: ProtocolName
    augmix: bool
    kind: Kind
    images: int
    split: str
    layouts: tuple[Layout, ...]
    classes: tuple[str, ...]
    folders: tuple[str, ...]


def _catalogue_names() -> tuple[str, ...]:
    """Return the names of all files of the catalogue, the paper's in its order first."""
    folder = files("dtpt.data") / "catalog"
    stems = {item.name.removesuffix(".json") for item in folder.iterdir()}
    return PAPER_SETS + tuple(sorted(stems.difference(PAPER_SETS)))


NAMED_SETS = _catalogue_names()
"""Every set of the catalogue; `PAPER_SETS` are the first of them."""


@lru_cache(maxsize=64)
def catalog_entry(name: str) -> CatalogEntry:
    """Return the facts about a named set.

    Example:
        >>> entry = catalog_entry("dtd")
        >>> entry.title, entry.images, len(entry.classes)
        ('DTD', 1692, 47)
    """
    if name not in NAMED_SETS:
        raise UnknownName("data set", name, NAMED_SETS)
    record = _read(name)
    classes, wnids = _class_lists(record)
    _verify(name, record, classes=classes)
    numbered = record.kind == "number-folders"
    return CatalogEntry(
        name=name,
        title=record.title,
        family=record.family,
        protocol=record.protocol or family_protocol(record.family),
        augmix=record.augmix,
        kind=record.kind,
        images=record.images,
        split=record.split,
        layouts=record.layouts,
        classes=classes,
        folders=tuple(str(label) for label in range(len(classes))) if numbered else wnids,
    )


def class_list_digest(classes: tuple[str, ...]) -> str:
    """Hash a list of raw class names, as recorded in the catalogue files."""
    return hashlib.sha256(json.dumps(list(classes), ensure_ascii=False).encode()).hexdigest()


@lru_cache(maxsize=1)
def imagenet_names() -> dict[str, str]:
    """Return ImageNet's class names by WordNet id.

    Example:
        >>> imagenet_names()["n01440764"]
        'tench'
    """
    imagenet = catalog_entry("imagenet")
    return dict(zip(imagenet.folders, imagenet.classes, strict=True))


def _read(name: str) -> _Record:
    path = files("dtpt.data") / "catalog" / f"{name}.json"
    try:
        return _Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise DatasetError(f"{path} is no catalogue entry: {explain(error)}.") from error


def _class_lists(record: _Record) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return raw class names and WordNet ids; the shift sets are subsets of ImageNet's lists."""
    if record.imagenet_indices is None:
        return record.classes, record.wnids
    parent = _read("imagenet")
    indices = record.imagenet_indices
    chosen = range(len(parent.classes)) if indices == "all" else indices
    return (
        tuple(parent.classes[index] for index in chosen),
        tuple(parent.wnids[index] for index in chosen),
    )


def _verify(name: str, record: _Record, *, classes: tuple[str, ...]) -> None:
    """Refuse a changed class list of the paper, and a set that poses as one of the paper's."""
    if record.name != name:
        raise DatasetError(f"{name}.json in dtpt/data/catalog is called {record.name!r} inside.")
    if not classes:
        raise DatasetError(f"{name}.json in dtpt/data/catalog names no classes.")
    if name in PAPER_SETS and class_list_digest(classes) != record.classes_sha256:
        raise DatasetError(
            f"The class list of {name!r} in dtpt/data/catalog was changed; reinstall dtpt."
        )
    if name not in PAPER_SETS and record.family in {family.key for family in PAPER_FAMILIES}:
        raise DatasetError(
            f"{name!r} in dtpt/data/catalog is not one of the paper's sets, so it cannot be of the "
            f"family {record.family!r}; choose another name for its family."
        )
