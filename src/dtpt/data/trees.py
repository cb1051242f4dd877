"""Folder trees whose folder names say the class: by WordNet id, by label number, or by class name.

A label is always looked up by the folder's *name*. Position in a sorted listing never enters: that
is how ImageNet-V2 (folders 0, 1, 10, 100, ...) and ImageNet-A went wrong elsewhere.
"""

import re
from collections.abc import Mapping
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


def locate_tree(entry: CatalogEntry, root: Path) -> Listing | None:
    """Find a set that is a tree of WordNet-id or number folders; None when it is not there.

    Of several places, the one with the most class folders is taken.
    """
    labels = {name: label for label, name in enumerate(entry.folders)}
    best: tuple[int, Listing] | None = None
    for place in entry.layouts:
        folder = root / place.folder / place.images
        if not folder.is_dir():
            continue
        known = sum(name in labels for name in subfolders(folder))
        if known and (best is None or known > best[0]):
            best = (known, read_tree(folder, labels, layout=place.layout))
    return best[1] if best else None


def class_key(name: str) -> str:
    """Return a spelling under which folder and class names are compared.

    Case, underscores, hyphens and blanks make no difference: `Annual_Crop_Land` is the class
    "Annual Crop Land", `polka_dotted` is "polka-dotted".
    """
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def locate_class_folders(entry: CatalogEntry, root: Path) -> Listing | None:
    """Find a tree of folders named like the classes, without split file; None when absent.

    Such a tree may hold any part of the set. It is accepted as a candidate when at least half of
    its folders (and two or more) are class names.
    """
    labels = {class_key(name): label for label, name in enumerate(entry.classes)}
    for place in (entry.name, *(place.folder for place in entry.layouts)):
        folder = root / place
        present = subfolders(folder) if folder.is_dir() else []
        known = {name: labels[class_key(name)] for name in present if class_key(name) in labels}
        if len(known) >= max(2, len(present) / 2) and len(set(known.values())) == len(known):
            return read_tree(folder, known, layout="class-folders")
    return None
