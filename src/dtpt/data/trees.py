"""Folder trees whose folder names say the class: by WordNet id, by label number, or by class name.

A label is always looked up by the folder's *name*. Position in a sorted listing never enters: that
is how ImageNet-V2 (folders 0, 1, 10, 100, ...) and ImageNet-A went wrong elsewhere.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dtpt.data.catalog import CatalogEntry
from dtpt.data.dataset import FileRef, Sample
from dtpt.data.listing import Listing, naming
from dtpt.data.paths import image_files, stray_files, subfolders


def read_tree(folder: Path, labels: Mapping[str, int], *, layout: str) -> Listing:
    """List the images of every known class folder; everything else becomes a remark.

    Args:
        folder: The folder that holds the class folders.
        labels: Label of each folder name.
        layout: Recorded in the result.
    """
    present = subfolders(folder)
    strays = [name for name in present if name not in labels]
    samples = tuple(
        Sample(f"{name}/{leaf}", labels[name], FileRef(folder / name / leaf))
        for name in sorted((name for name in present if name in labels), key=labels.__getitem__)
        for leaf in image_files(folder / name)
    )
    absent = tuple(folder / name for name in labels if name not in set(present))
    return Listing(layout, folder, samples, absent, _remarks(folder, strays))


def _remarks(folder: Path, strays: list[str]) -> tuple[str, ...]:
    remarks = []
    if strays:
        remarks.append(f"{len(strays)} folders are no class and were left out: {naming(strays)}")
    loose = stray_files(folder)
    if loose:
        remarks.append(f"{loose} images lie outside of any class folder and were left out")
    return tuple(remarks)


def find_tree(entry: CatalogEntry, root: Path) -> tuple[str, Path] | None:
    """Return layout and folder of a tree of WordNet-id or number folders; None when absent.

    Of several places, the one with the most class folders is taken.
    """
    known = set(entry.folders)
    best: tuple[int, str, Path] = (0, "", root)
    for place in entry.layouts:
        folder = root / place.folder / place.images
        hits = len(known.intersection(subfolders(folder))) if folder.is_dir() else 0
        if hits > best[0]:
            best = (hits, place.layout, folder)
    return best[1:] if best[0] else None


def locate_tree(entry: CatalogEntry, root: Path) -> Listing | None:
    """List a set that is a tree of WordNet-id or number folders; None when it is not there."""
    found = find_tree(entry, root)
    if found is None:
        return None
    labels = {name: label for label, name in enumerate(entry.folders)}
    return read_tree(found[1], labels, layout=found[0])


def class_key(name: str) -> str:
    """Return a spelling under which folder and class names are compared.

    Case, underscores, hyphens and blanks make no difference: `Annual_Crop_Land` is the class
    "Annual Crop Land", `polka_dotted` is "polka-dotted".
    """
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def find_class_folders(entry: CatalogEntry, root: Path) -> tuple[Path, dict[str, int]] | None:
    """Return a folder of folders named like the classes, and their labels; None when absent.

    Such a tree may hold any part of the set. It is accepted as a candidate when at least half of
    its folders (and two or more) are class names.
    """
    labels = {class_key(name): label for label, name in enumerate(entry.classes)}
    for place in (entry.name, *(place.folder for place in entry.layouts)):
        folder = root / place
        present = subfolders(folder) if folder.is_dir() else []
        known = {name: labels[class_key(name)] for name in present if class_key(name) in labels}
        if len(known) >= max(2, len(present) / 2) and len(set(known.values())) == len(known):
            return folder, known
    return None


def locate_class_folders(entry: CatalogEntry, root: Path) -> Listing | None:
    """List a tree of folders named like the classes, without split file; None when absent."""
    found = find_class_folders(entry, root)
    if found is None:
        return None
    folder, labels = found
    listing = read_tree(folder, labels, layout="class-folders")
    absent = [name for label, name in enumerate(entry.classes) if label not in labels.values()]
    if not absent:
        return listing
    remark = f"{len(absent)} classes have no folder: {naming(absent)}"
    return replace(listing, remarks=(*listing.remarks, remark))
