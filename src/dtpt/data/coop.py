"""Sets whose test images are listed in a file: CoOp's `split_zhou_*.json`, Aircraft's variants.

The split files are the same in CoOp's and TPT's layouts; only the folders around them differ, and
TPT keeps them in `data/data_splits`.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dtpt.data.dataset import FileRef, Sample, sample_id
from dtpt.data.listing import Listing, naming
from dtpt.data.named_sets import CatalogEntry, Layout
from dtpt.data.paths import inside, read_list
from dtpt.errors import DatasetError
from dtpt.files import printable

# Beside the set's own folder, split files are looked for here, relative to the data root.
SPLIT_FOLDERS = ("", "data_splits", "data/data_splits", "splits")
_PROBES = 25  # images whose existence decides between two layouts

Row = tuple[str, int]  # relative path, label


def locate_split(entry: CatalogEntry, root: Path) -> Listing | None:
    """Find a set with a list file under the data root; None when no list file or folder exists."""
    places = [place for place in entry.layouts if os.path.isdir(root / place.folder)]
    split = find_split(entry, root)
    if split is None or not places:
        return None
    rows = read_rows(entry, split)
    place = _best_place(places, rows, root=root, split=split)
    folder = _images(root, place)
    samples, missing = [], []
    for relative, label in rows:
        path = inside(folder, relative, listed_in=split)
        if os.path.isfile(path):
            samples.append(Sample(sample_id(relative), label, FileRef(path)))
        else:
            missing.append(path)
    return Listing(place.layout, folder, tuple(samples), tuple(missing))


def find_split(entry: CatalogEntry, root: Path) -> Path | None:
    """Return the first place where something has the name of the set's list file."""
    for path in split_places(entry, root):
        if os.path.lexists(path):
            return path
    return None


def split_places(entry: CatalogEntry, root: Path) -> list[Path]:
    """Return where the set's list file is looked for, in this order."""
    own = [root / place.folder / entry.split for place in entry.layouts]
    if entry.kind == "variants":  # means nothing without its folder
        return own
    return own + [root / folder / entry.split for folder in SPLIT_FOLDERS]


def read_rows(entry: CatalogEntry, split: Path) -> list[Row]:
    """Read the test part of a list file and compare its class names with the catalogue's."""
    text = read_list(split, what="split file")
    if entry.kind == "variants":
        return _variant_rows(entry, text.splitlines(), split=split)
    try:
        items = json.loads(text)["test"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"{printable(split)} is no split file: JSON with a list 'test' was expected, "
            f"but {error!r}."
        ) from error
    if not isinstance(items, list):
        raise DatasetError(f"{printable(split)} is no split file: its 'test' is not a list.")
    return _unique([_split_row(entry, item, split=printable(split)) for item in items], split)


def _split_row(entry: CatalogEntry, item: Any, *, split: str) -> Row:
    match item:
        case [str(path), int(label), str(name)]:
            pass
        case _:
            raise DatasetError(f"{split}: [path, label, class name] was expected, not {item!r}.")
    if not 0 <= label < len(entry.classes) or entry.classes[label] != name:
        known = entry.classes[label] if 0 <= label < len(entry.classes) else "no class"
        raise DatasetError(
            f"{split}: label {label} of {path!r} is called {name!r}, but in the catalogue's list "
            f"of {entry.title} it is {known!r}; this is another split."
        )
    return path, label


def _variant_rows(entry: CatalogEntry, lines: Sequence[str], *, split: Path) -> list[Row]:
    """Read Aircraft's list: image number, blank, variant name (which may hold blanks)."""
    labels = {name: label for label, name in enumerate(entry.classes)}
    rows: list[Row] = []
    for line in filter(str.strip, lines):
        number, _, variant = line.strip().partition(" ")
        if variant not in labels:
            raise DatasetError(
                f"{printable(split)}: {line.strip()!r} names no variant of {entry.title}."
            )
        rows.append((f"{number}.jpg", labels[variant]))
    return _unique(rows, split)


def _unique(rows: list[Row], split: Path) -> list[Row]:
    counts = Counter(path for path, _ in rows)
    repeated = [path for path, count in counts.items() if count > 1]
    if repeated:
        raise DatasetError(f"{printable(split)} lists {naming(repeated)} more than once.")
    return rows


def _images(root: Path, place: Layout) -> Path:
    return root / place.folder / place.images


def _best_place(places: list[Layout], rows: list[Row], *, root: Path, split: Path) -> Layout:
    """Choose the layout under which the listed images exist, by a few probes if these tell."""
    for step in (max(1, len(rows) // _PROBES), 1):
        probes = rows[::step]
        hits = [_count(probes, _images(root, place), split=split) for place in places]
        if max(hits):
            return places[hits.index(max(hits))]
    standing = [place for place in places if os.path.isdir(_images(root, place))]
    return (standing or places)[0]


def _count(rows: list[Row], folder: Path, *, split: Path) -> int:
    if not os.path.isdir(folder):
        return 0
    return sum(os.path.isfile(inside(folder, path, listed_in=split)) for path, _ in rows)
