"""From a name on the command line to a data set."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from dtpt.data.catalog import FINE_GRAINED, NATURAL_SHIFTS, PAPER_SETS, CatalogEntry, catalog_entry
from dtpt.data.coop import find_split, locate_split, split_places
from dtpt.data.dataset import Dataset, prompt_name
from dtpt.data.folder import load_folder
from dtpt.data.hf import load_hub
from dtpt.data.listing import Listing
from dtpt.data.manifest import load_manifest
from dtpt.data.openmoji import (
    BENCHMARK_GROUPS,
    COLOUR,
    LINE,
    is_openmoji,
    load_openmoji,
    openmoji_names,
)
from dtpt.data.paths import ROOT_VARIABLE, data_root
from dtpt.data.trees import find_class_folders, find_tree, locate_class_folders, locate_tree
from dtpt.data.wds import load_wds
from dtpt.errors import DatasetError, UnknownName

DATASETS: tuple[str, ...] = PAPER_SETS + openmoji_names()
"""Every data set that has a name of its own."""

GROUPS: dict[str, tuple[str, ...]] = {
    "fine-grained": FINE_GRAINED,
    "natural-shifts": NATURAL_SHIFTS,
    "all": PAPER_SETS,
    "openmoji-groups": tuple(f"{COLOUR}/{group}" for group in BENCHMARK_GROUPS),
    "openmoji-line-groups": tuple(f"{LINE}/{group}" for group in BENCHMARK_GROUPS),
}
"""Names that stand for several data sets."""

_SCHEMES: dict[str, Callable[[str, str], Dataset]] = {
    "folder": lambda rest, name: load_folder(Path(rest).expanduser(), name=name),
    "manifest": lambda rest, name: load_manifest(Path(rest).expanduser(), name=name),
    "wds": lambda rest, name: load_wds(rest, name=name),
    "hf": lambda rest, name: load_hub(rest, name=name),
}
# With fewer of the listed images than this, a folder of class folders beside a split file is
# something else (two class names may agree by chance) and is read by its folder names.
_FITS = 0.05
_HINT = (
    "`dtpt datasets` lists all names; own images are folder:PATH, manifest:FILE, wds:PATTERN "
    "or hf:NAME."
)


def load_dataset(
    name: str,
    *,
    data_root: Path | str | None = None,
    presentation: str | None = None,
    limit: int | None = None,
    strict: bool = True,
) -> Dataset:
    """Load a data set by name.

    Args:
        name: One of `DATASETS`, or `folder:PATH`, `manifest:FILE`, `wds:PATTERN`, `hf:NAME`.
        data_root: Folder that holds the paper's sets; `$DTPT_DATA` when not given.
        presentation: Emoji sets only: keep one of the six kinds of picture.
        limit: Keep that many samples, chosen by the hash of their id (see `Dataset.limited`).
        strict: Refuse a paper set whose images are not exactly as many as the paper used; when
            false, what is there is loaded and the difference is put into `remarks`.
    """
    if presentation is not None and not is_openmoji(name):
        raise DatasetError(f"A presentation can be chosen for emoji sets only, not for {name!r}.")
    dataset = _load(name, data_root, presentation=presentation, strict=strict)
    return dataset if limit is None else dataset.limited(limit)


def _load(name: str, root: Path | str | None, *, presentation: str | None, strict: bool) -> Dataset:
    scheme, colon, rest = name.partition(":")
    if colon and scheme in _SCHEMES:
        return _SCHEMES[scheme](rest, name)
    if is_openmoji(name):
        return load_openmoji(name, presentation=presentation)
    if name in PAPER_SETS:
        return _load_paper_set(catalog_entry(name), root, strict=strict)
    raise UnknownName("data set", name, (*DATASETS, *GROUPS), _HINT)


def expand_names(names: str | Iterable[str]) -> list[str]:
    """Expand groups and `@FILE` (one name per line) in a comma-separated list; no repetitions.

    Commas inside braces (`wds:x-{0,1}.tar`) do not separate.

    Example:
        >>> expand_names("dtd,natural-shifts")
        ['dtd', 'imagenet_a', 'imagenet_v2', 'imagenet_r', 'imagenet_sketch']
    """
    texts = [names] if isinstance(names, str) else list(names)
    items = [item.strip() for text in texts for item in _split(text)]
    found: dict[str, None] = {}
    for item in filter(None, items):
        found.update(dict.fromkeys(_expand(item)))
    if not found:
        raise DatasetError(f"No data set is named in {names!r}.")
    return list(found)


def _split(text: str) -> list[str]:
    return re.split(r",(?![^{}]*\})", text)


def _expand(item: str) -> Iterable[str]:
    if item.startswith("@"):
        return expand_names(_lines(Path(item[1:]).expanduser()))
    if item in GROUPS:
        return GROUPS[item]
    if item in DATASETS or item.partition(":")[0] in _SCHEMES:
        return (item,)
    raise UnknownName("data set", item, (*DATASETS, *GROUPS), _HINT)


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"Cannot read the list of data sets {path}: {error}.") from error
    plain = [line.partition("#")[0].strip() for line in lines]
    nested = [line for line in plain if line.startswith("@")]
    if nested:
        raise DatasetError(f"{path}: {nested[0]!r}: a list cannot name another list.")
    return plain


def locate(entry: CatalogEntry, root: Path) -> Listing | None:
    """Find one of the paper's sets in any known layout; None when nothing of it is there."""
    if entry.kind in ("wnid-folders", "number-folders"):
        return locate_tree(entry, root)
    listed = locate_split(entry, root)
    if listed is not None and len(listed.samples) > _FITS * len(listed.missing):
        return listed
    return locate_class_folders(entry, root) or listed


def standing_folder(entry: CatalogEntry, root: Path) -> Path | None:
    """Return the folder where a set seems to be, without looking at its images; None if absent."""
    if entry.kind in ("wnid-folders", "number-folders"):
        tree = find_tree(entry, root)
        return tree[1] if tree else None
    folders = [root / place.folder / place.images for place in entry.layouts]
    if find_split(entry, root) is not None:
        for folder in filter(Path.is_dir, folders):
            return folder
    named = find_class_folders(entry, root)
    return named[0] if named else None


def expected_places(entry: CatalogEntry, root: Path) -> list[str]:
    """Describe where a set is looked for: image folder, and list file where one is needed."""
    places = []
    for place in entry.layouts:
        folder = root / place.folder / place.images
        split = f" with {root / place.folder / entry.split}" if entry.split else ""
        places.append(f"{folder}{split} ({place.layout} layout)")
    return places


def root_or_refuse(name: str, root: Path | str | None) -> Path:
    """Return an existing data root or explain how to give one."""
    found = data_root(root)
    if found is None:
        raise DatasetError(
            f"Where is {name!r}? Give the folder of all data sets with --data-root or in the "
            f"environment variable {ROOT_VARIABLE}."
        )
    if not found.is_dir():
        raise DatasetError(f"The data root {found} does not exist.")
    return found


def missing_message(entry: CatalogEntry, root: Path) -> str:
    """Say what of a set that was not found is absent, and where it is expected."""
    text = f"{entry.name!r} was not found; expected: {' or '.join(expected_places(entry, root))}."
    folders = [place for place in entry.layouts if (root / place.folder).is_dir()]
    if entry.split and folders:
        beside = split_places(entry, root)[-1].parent
        text += f" Its folder is there, but {entry.split} is not (also looked in {beside})."
    return text


def _load_paper_set(entry: CatalogEntry, root: Path | str | None, *, strict: bool) -> Dataset:
    folder = root_or_refuse(entry.name, root)
    listing = locate(entry, folder)
    if listing is None:
        raise DatasetError(missing_message(entry, folder))
    difference = size_difference(entry, listing)
    if difference and strict:
        raise DatasetError(
            f"{difference} See `dtpt datasets check {entry.name}`; a part of the set can be "
            "evaluated as folder:PATH or manifest:FILE, or loaded with strict=False."
        )
    dataset = Dataset(
        name=entry.name,
        classes=tuple(prompt_name(name) for name in entry.classes),
        samples=listing.samples,
        family=entry.family,
        augmix=entry.augmix,
        source=str(listing.source),
        remarks=listing.remarks,
    )
    return replace(dataset, remarks=(*dataset.remarks, difference)) if difference else dataset


def size_difference(entry: CatalogEntry, listing: Listing) -> str:
    """Say how the number of images differs from the paper's; empty when it does not."""
    found = len(listing.samples)
    if found == entry.images and not listing.missing:
        return ""
    absent = f", for example {listing.missing[0]} is missing" if listing.missing else ""
    return (
        f"{entry.name!r} has {found} images under {listing.source}, "
        f"the paper's set has {entry.images}{absent}."
    )
