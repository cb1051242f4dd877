"""From a name on the command line to a data set."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from dtpt.data import catalog, layouts, openmoji
from dtpt.data.catalog import NAMED_SETS, CatalogEntry, catalog_entry
from dtpt.data.dataset import Dataset, Sample, prompt_name
from dtpt.data.folder import load_folder
from dtpt.data.hf import load_hub
from dtpt.data.manifest import load_manifest
from dtpt.data.pack import open_pack, pack_dataset
from dtpt.data.wds import load_wds
from dtpt.errors import DatasetError, UnknownName, short_repr
from dtpt.files import printable

DATASETS: tuple[str, ...] = NAMED_SETS + openmoji.openmoji_names()
GROUPS: dict[str, tuple[str, ...]] = {
    "fine-grained": catalog.FINE_GRAINED,
    "natural-shifts": catalog.NATURAL_SHIFTS,
    "all": catalog.PAPER_SETS,
    "openmoji-groups": openmoji.benchmark_names(openmoji.COLOUR),
    "openmoji-line-groups": openmoji.benchmark_names(openmoji.LINE),
}

_SCHEMES: dict[str, Callable[[str, str], Dataset]] = {
    "folder": lambda rest, name: load_folder(layouts.user_path(rest), name=name),
    "manifest": lambda rest, name: load_manifest(layouts.user_path(rest), name=name),
    "wds": lambda rest, name: load_wds(rest, name=name),
    "hf": lambda rest, name: load_hub(rest, name=name),
    "pack": lambda rest, name: pack_dataset(open_pack(layouts.user_path(rest)), name=name),
}
_OWN = "folder:PATH, manifest:FILE, wds:PATTERN, hf:NAME or pack:PATH"
_HINT = f"`dtpt datasets` lists all names; own images are {_OWN}."


def load_dataset(
    name: str,
    *,
    data_root: Path | str | None = None,
    presentation: str | None = None,
    cluster_level: int | None = None,
    limit: int | None = None,
    partial: bool = False,
) -> Dataset:
    """Load a data set by name.

    Args:
        name: One of `DATASETS`, or `folder:PATH`, `manifest:FILE`, `wds:PATTERN`, `hf:NAME`,
            `pack:PATH`.
        data_root: Folder that holds the paper's sets; `$DTPT_DATA` when not given.
        presentation: Emoji sets only: keep one of the six kinds of image.
        cluster_level: Folders only: the images below each folder that many levels below a class
            folder are one cluster (1: `fox/camera3/...`).
        limit: Keep that many samples, chosen by the hash of their id (see `Dataset.limited`).
        partial: Take what is there of a named set that is not complete, under its own labels and
            classes; otherwise such a set is refused. `Dataset.whole` says how many there should be.

    Example:
        >>> emoji = load_dataset("openmoji/food-drink", limit=10)
        >>> len(emoji), emoji.whole, emoji.is_partial
        (10, 780, True)
    """
    if not isinstance(name, str):
        raise DatasetError(f"A data set's name is text such as 'dtd', not {short_repr(name)}.")
    if presentation is not None and not openmoji.is_openmoji(name):
        raise DatasetError(f"A presentation can be chosen for emoji sets only, not for {name!r}.")
    scheme, colon, rest = name.partition(":")
    if colon and scheme in _SCHEMES and not rest.strip():  # "" would be the working folder
        raise DatasetError(f"{name!r} names no images: write {_OWN}; folder:. is the one here.")
    if cluster_level is not None and (scheme, colon) != ("folder", ":"):
        raise DatasetError(f"A cluster level can be chosen for folder:PATH only, not for {name!r}.")
    if cluster_level is not None:
        dataset = load_folder(layouts.user_path(rest), name=name, cluster_level=cluster_level)
    elif colon and scheme in _SCHEMES:
        dataset = _SCHEMES[scheme](rest, name)
    elif openmoji.is_openmoji(name):
        dataset = openmoji.load_openmoji(name, presentation=presentation)
    elif name in NAMED_SETS:
        dataset = _load_named(catalog_entry(name), data_root, partial=partial)
    else:
        raise UnknownName("data set", printable(name), (*DATASETS, *GROUPS), _HINT)
    dataset = replace(dataset, notes=(*dataset.notes, *_class_notes(dataset)))
    return dataset if limit is None else dataset.limited(limit)


def _load_named(entry: CatalogEntry, root: Path | str | None, *, partial: bool) -> Dataset:
    folder = layouts.require_root(entry.name, root)
    listing = layouts.locate(entry, folder)
    if listing is None:
        raise DatasetError(layouts.missing_message(entry, folder))
    difference = layouts.size_difference(entry, listing)
    if len(listing.samples) > entry.images:
        raise DatasetError(f"{difference} Remove the surplus, or evaluate all as folder:PATH.")
    if difference and not partial:
        check = f"`dtpt datasets check {entry.name}` lists what is missing"
        raise DatasetError(f"{difference} {check}; --partial evaluates the rest.")
    # without the folder: notes are published
    part = f"{len(listing.samples):,} images of the {entry.images:,} of the complete set."
    return Dataset(
        name=entry.name,
        classes=tuple(prompt_name(name) for name in entry.classes),
        samples=_clustered(listing.samples, entry.cluster),
        family=entry.family,
        protocol=entry.protocol,
        augmix=entry.augmix,
        whole=entry.images,
        cluster_noun=entry.cluster_noun,
        source=str(listing.source),
        notes=(*listing.notes, part) if difference else listing.notes,
    )


def _clustered(samples: Sequence[Sample], pattern: str) -> tuple[Sample, ...]:
    """Name the cluster of each sample by the part of its id that a pattern matches, if any."""
    matches = [re.match(pattern, sample.id) if pattern else None for sample in samples]
    pairs = zip(samples, matches, strict=True)
    return tuple(replace(s, cluster=match[1]) if match else s for s, match in pairs)


def _class_notes(dataset: Dataset) -> list[str]:
    if len(dataset.classes) == 1:
        return [f"{dataset.classes[0]!r} is the only class: the accuracy is always 100 %."]
    labels = {sample.label for sample in dataset.samples}
    empty = [name for label, name in enumerate(dataset.classes) if label not in labels]
    return [f"Without images: {layouts.counted(empty, 'class')}."] if empty else []


def expand_names(names: str | Iterable[str]) -> list[str]:
    """Expand groups and `@FILE` (one name per line) in a comma-separated list; no repetitions.

    Commas inside braces (`wds:x-{0,1}.tar`) do not separate.

    Example:
        >>> expand_names("dtd,natural-shifts")
        ['dtd', 'imagenet_a', 'imagenet_v2', 'imagenet_r', 'imagenet_sketch']
    """
    texts = [names] if isinstance(names, str) else list(names)
    items = [item.strip() for text in texts for item in re.split(r",(?![^{}]*\})", text)]
    expanded = list(dict.fromkeys(name for item in filter(None, items) for name in _expand(item)))
    if not expanded:
        raise DatasetError(f"No data set is named in {names!r}.")
    return expanded


def _expand(item: str) -> Iterable[str]:
    if item.startswith("@"):
        return expand_names(_lines(layouts.user_path(item[1:])))
    if item in GROUPS:
        return GROUPS[item]
    if item in DATASETS or item.partition(":")[0] in _SCHEMES:
        return (item,)
    raise UnknownName("data set", printable(item), (*DATASETS, *GROUPS), _HINT)


def _lines(path: Path) -> list[str]:
    lines = layouts.read_list(path, what="list of data sets").splitlines()
    plain = [line.partition("#")[0].strip() for line in lines]
    nested = [line for line in plain if line.startswith("@")]
    if nested:
        raise DatasetError(f"{printable(path)}: {nested[0]!r}: a list cannot name another list.")
    return plain
