"""The data sets that have a name, and the families under which tables group them.

The facts are in `sets/*.json`, of which fifteen are the paper's. Another file there makes another
named set, with a family of its own, in none of the paper's groups and tables. A protocol is one of
the paper's two settings, with the lambdas that authors chose for it; a family follows one of them.
ImageNet is a fine-grained set with a protocol of its own, because TPS has another learning rate.

Class names are stored as the peers' code has them (underscores and all); `Dataset.classes` has them
as they enter the prompt. The index in the list is the label.
"""

from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dtpt.errors import DatasetError, UnknownName, explain
from dtpt.files import digest

Kind = Literal["split", "variants", "wnid-folders", "number-folders"]
ProtocolName = Literal["fine-grained", "natural-shifts", "imagenet"]

FOLDER = "sets"
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


class Family(NamedTuple):
    """The heading of a family and the protocol that it follows."""

    title: str
    protocol: ProtocolName


PAPER_FAMILIES = ("fine-grained", "natural-shifts")
FAMILIES = {
    "fine-grained": Family("Fine-grained classification", "fine-grained"),
    "natural-shifts": Family("Natural distribution shifts", "natural-shifts"),
    "emoji-colour": Family("Colour drawings", "fine-grained"),
    "emoji-line": Family("Line art", "natural-shifts"),
    "own": Family("Own images", "fine-grained"),
}


def family_title(key: str) -> str:
    """Return the heading of a family; one that is not in the table is called by its key."""
    return FAMILIES[key].title if key in FAMILIES else key.replace("-", " ").capitalize()


def family_protocol(key: str) -> ProtocolName:
    """Return whose default lambdas a family takes; fine-grained unless it is in the table."""
    return FAMILIES[key].protocol if key in FAMILIES else "fine-grained"


class Layout(BaseModel):
    """One place where people keep a set, relative to the data root."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layout: str  # whose convention it is: `coop`, `tpt` or `original` (the unpacked archive)
    folder: str  # the set's folder; the split file lies in it
    images: str = ""  # folder of the images inside `folder`; empty when they lie in it directly


class CatalogEntry(BaseModel):
    """Facts about one named set: the content of its JSON file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    title: str  # the name that people read
    family: str
    protocol: ProtocolName = Field(default_factory=lambda data: family_protocol(data["family"]))
    augmix: bool = True  # whether the views are made with AugMix by default
    # Where labels come from: a `split` file, Aircraft's `variants` list, or folders named by
    # WordNet id or by label number.
    kind: Kind
    images: Annotated[int, Field(gt=0)]  # of the complete test set (that the paper used)
    images_source: str = ""
    split: str = ""  # name of the file that lists the images; empty for folder trees
    # `Dataset.fingerprint` of the split that the papers share, for those whose file was at hand
    fingerprint: str = ""
    layouts: Annotated[tuple[Layout, ...], Field(min_length=1)]  # where to look, in this order
    classes: tuple[str, ...] = ()  # raw names
    classes_sha256: str = ""  # `dtpt.files.digest` of the classes, for the paper's sets
    wnids: tuple[str, ...] = ()  # WordNet ids of the classes, for `wnid-folders`
    # Of an image's id, what all images of its cluster share: a pattern with one group.
    cluster: str = ""
    cluster_noun: str = "clusters"
    # Which of ImageNet's classes and wnids the set has, instead of lists of its own.
    imagenet_indices: tuple[int, ...] | Literal["all"] | None = None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folder name of each class, for folder trees."""
        if self.kind == "number-folders":
            return tuple(str(label) for label in range(len(self.classes)))
        return self.wnids


_STEMS = {item.name.removesuffix(".json") for item in (files("dtpt.data") / FOLDER).iterdir()}
NAMED_SETS = PAPER_SETS + tuple(sorted(_STEMS.difference(PAPER_SETS)))


@lru_cache(maxsize=64)
def catalog_entry(name: str) -> CatalogEntry:
    """Return the facts about a named set."""
    if name not in NAMED_SETS:
        raise UnknownName("data set", name, NAMED_SETS)
    entry = _with_imagenet_classes(_read(name))
    _verify(name, entry)
    return entry


def _read(name: str) -> CatalogEntry:
    path = files("dtpt.data") / FOLDER / f"{name}.json"
    try:
        return CatalogEntry.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise DatasetError(f"{path} is not a valid catalogue entry: {explain(error)}.") from error


def _with_imagenet_classes(entry: CatalogEntry) -> CatalogEntry:
    if entry.imagenet_indices is None:
        return entry
    imagenet = _read("imagenet")
    everything = range(len(imagenet.classes))
    indices = everything if entry.imagenet_indices == "all" else entry.imagenet_indices
    classes = tuple(imagenet.classes[index] for index in indices)
    wnids = tuple(imagenet.wnids[index] for index in indices)
    return entry.model_copy(update={"classes": classes, "wnids": wnids})


def _verify(name: str, entry: CatalogEntry) -> None:
    """Refuse a changed class list of the paper, and another set in one of the paper's families."""
    file = f"{name}.json in dtpt/data/{FOLDER}"
    if entry.name != name:
        raise DatasetError(f"{file} has the name {entry.name!r} inside; rename one of them.")
    if not entry.classes:
        raise DatasetError(f"{file} names no classes.")
    if name in PAPER_SETS and digest(entry.classes) != entry.classes_sha256:
        raise DatasetError(f"The class list of {file} was changed; reinstall dtpt.")
    if name not in PAPER_SETS and entry.family in PAPER_FAMILIES:
        raise DatasetError(f"{file}: the family {entry.family!r} is for the paper's sets only.")


@lru_cache(maxsize=1)
def imagenet_names() -> dict[str, str]:
    """Return ImageNet's class names by WordNet id."""
    imagenet = catalog_entry("imagenet")
    return dict(zip(imagenet.folders, imagenet.classes, strict=True))
