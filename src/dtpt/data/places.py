"""Where a named set stands under the data root, and what is said when it does not."""

import os
from pathlib import Path

from dtpt.data.coop import find_split, locate_split, split_places
from dtpt.data.listing import Listing
from dtpt.data.named_sets import CatalogEntry
from dtpt.data.paths import ROOT_VARIABLE, data_root
from dtpt.data.trees import find_class_folders, find_tree, locate_class_folders, locate_tree
from dtpt.errors import DatasetError
from dtpt.files import printable

# With fewer of the listed images than this, a folder of class folders beside a split file is
# something else (two class names may agree by chance) and is read by its folder names.
_FITS = 0.05
_TREES = ("wnid-folders", "number-folders")


def locate(entry: CatalogEntry, root: Path) -> Listing | None:
    """Find a named set in any known layout; None when nothing of it is there."""
    if entry.kind in _TREES:
        return locate_tree(entry, root)
    listed = locate_split(entry, root)
    if listed is not None and len(listed.samples) > _FITS * len(listed.missing):
        return listed
    return locate_class_folders(entry, root) or listed


def standing_folder(entry: CatalogEntry, root: Path) -> Path | None:
    """Return the folder where a set seems to be, without looking at its images; None if absent."""
    if entry.kind in _TREES:
        tree = find_tree(entry, root)
        return tree[1] if tree else None
    folders = [root / place.folder / place.images for place in entry.layouts]
    if find_split(entry, root) is not None:
        for folder in filter(os.path.isdir, folders):
            return folder
    named = find_class_folders(entry, root)
    return named[0] if named else None


def expected_places(entry: CatalogEntry, root: Path) -> list[str]:
    """Describe where a set is looked for: image folder, and list file where one is needed."""
    places = []
    for place in entry.layouts:
        folder = printable(root / place.folder / place.images)
        split = f" with {printable(root / place.folder / entry.split)}" if entry.split else ""
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
    if not os.path.isdir(found):
        raise DatasetError(f"The data root {printable(found)} does not exist.")
    return found


def missing_message(entry: CatalogEntry, root: Path) -> str:
    """Say what of a set that was not found is absent, and where it is expected."""
    text = f"{entry.name!r} was not found; expected: {' or '.join(expected_places(entry, root))}."
    if entry.split and any(os.path.isdir(root / place.folder) for place in entry.layouts):
        beside = printable(split_places(entry, root)[-1].parent)
        text += f" Its folder is there, but {entry.split} is not (also looked in {beside})."
    return text


def size_difference(entry: CatalogEntry, listing: Listing) -> str:
    """Say how the number of images differs from that of the complete set; empty if it does not."""
    found = len(listing.samples)
    if found == entry.images and not listing.missing:
        return ""
    absent = f", for example {printable(listing.missing[0])} is missing" if listing.missing else ""
    return (
        f"{entry.name!r} has {found:,} images under {printable(listing.source)}, "
        f"the complete set has {entry.images:,}{absent}."
    )
