"""Folder trees whose folder names say the class: by WordNet id, by label number, or by class name.

A label is always looked up by the folder's *name*. Position in a sorted listing never enters: that
is how ImageNet-V2 (folders 0, 1, 10, 100, ...) and ImageNet-A went wrong elsewhere.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dtpt.data.dataset import FileRef, Sample, sample_id
from dtpt.data.listing import Listing, counted
from dtpt.data.named_sets import CatalogEntry
from dtpt.data.paths import folder_content, stray_images, subfolders


def read_tree(folder: Path, labels: Mapping[str, int], *, layout: str) -> Listing:
    """List the images of every known class folder; everything else becomes a remark.

    Args:
        folder: The folder that holds the class folders.
        labels: Label of each folder name.
        layout: Recorded in the result.
    """
    present = subfolders(folder)
    known = sorted((name for name in present if name in labels), key=labels.__getitem__)
    contents = {name: folder_content(folder / name) for name in known}
    samples = tuple(
        Sample(sample_id(f"{name}/{leaf}"), labels[name], FileRef(folder / name / leaf))
        for name, content in contents.items()
        for leaf in content.images
    )
    others = [f"{name}/{leaf}" for name, content in contents.items() for leaf in content.others]
    remarks = (
        *_left_out(
            [name for name in present if name not in labels], "folder", which="without class"
        ),
        *_left_out(stray_images(folder), "picture", which="outside of the class folders"),
        *_left_out(others, "file", which="of another kind or linked folder"),
    )
    absent = tuple(folder / name for name in labels if name not in contents)
    return Listing(layout, folder, samples, absent, remarks)


def _left_out(items: list[str], noun: str, *, which: str) -> list[str]:
    return [f"Left out: {counted(items, noun, which=which)}."] if items else []


def find_tree(entry: CatalogEntry, root: Path) -> tuple[str, Path] | None:
    """Return layout and folder of a tree of WordNet-id or number folders; None when absent.

    Of several places, the one with the most class folders is taken.
    """
    known = set(entry.folders)
    best: tuple[int, str, Path] = (0, "", root)
    for place in entry.layouts:
        folder = root / place.folder / place.images
        hits = len(known.intersection(subfolders(folder))) if os.path.isdir(folder) else 0
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

    Case, underscores, hyphens and blanks make no difference.

    Example:
        >>> class_key("Annual_Crop_Land") == class_key("annual crop land")
        True
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
        present = subfolders(folder) if os.path.isdir(folder) else []
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
    remark = [f"Absent: the folders of {counted(absent, 'class')}."] if absent else []
    unchecked = (
        f"These are folders named like the classes, and not the files that {entry.split} lists: "
        "whether they hold test images cannot be checked."
    )
    return replace(listing, remarks=(*listing.remarks, *remark, unchecked))
