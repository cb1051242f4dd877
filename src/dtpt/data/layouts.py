"""Where data sets lie on disk: paths, lists, class folders, and the layouts of the named sets.

A file name is bytes, and Python keeps those that are not UTF-8 as lone surrogates. So do paths
here, because the file must be opened; ids and messages are made printable.

Named sets have a list of their test images (CoOp's `split_zhou_*.json`, Aircraft's variants), or
folders by WordNet id or label number. A label is always looked up by the folder's *name*, never by
its position: that is how ImageNet-V2 (folders 0, 1, 10, 100, ...) went wrong elsewhere.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NoReturn

from pydantic import BaseModel, StrictInt, ValidationError

from dtpt.data.catalog import CatalogEntry, Layout
from dtpt.data.dataset import FileRef, Sample, repetitions, sample_id
from dtpt.errors import DatasetError, explain, os_error
from dtpt.files import printable, read_limited

ROOT_VARIABLE = "DTPT_DATA"
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".jp2", ".avif")
)
# Beside the set's own folder, split files are looked for here, relative to the data root.
SPLIT_FOLDERS = ("", "data_splits", "data/data_splits", "splits")

_MOST_LIST_BYTES = 1 << 28  # 256 MiB: a list of some millions of images
_MOST_NAMED = 5  # items in a message
# With fewer of the listed images than this, a folder of class folders beside a split file is
# something else (two class names may agree by chance) and is read by its folder names.
_LEAST_FOUND = 0.05
_TREES = ("wnid-folders", "number-folders")

Row = tuple[str, StrictInt, str]  # of a split file: relative path, label, class name


class _SplitFile(BaseModel):
    test: list[Row]


@dataclass(frozen=True)
class Listing:
    """What a reader found on disk, before it is compared with the complete set."""

    layout: str  # `coop`, `tpt`, `original`, or `class-folders` (a tree without split file)
    source: Path  # the folder of the images
    samples: tuple[Sample, ...]  # those whose file exists, in a stable order
    missing: tuple[Path, ...] = ()  # files or folders that are expected and absent
    notes: tuple[str, ...] = ()  # sentences about what was left out or is unusual


def resolve_root(data_root: Path | str | None) -> Path | None:
    """Return the folder of all data sets: the argument, or else `$DTPT_DATA`, or None."""
    chosen = data_root if data_root is not None else os.environ.get(ROOT_VARIABLE)
    root = user_path(chosen) if chosen else None
    if root is not None and not os.path.isdir(root):
        raise DatasetError(f"The data root {printable(root)} does not exist.")
    return root


def require_root(name: str, data_root: Path | str | None) -> Path:
    """Return the folder of all data sets; raise when none is given."""
    root = resolve_root(data_root)
    if root is None:
        remedy = f"give the folder of all data sets as --data-root or in {ROOT_VARIABLE}"
        raise DatasetError(f"No data root for {name!r}: {remedy}.")
    return root


def user_path(text: Path | str) -> Path:
    """Return a path that a user typed, with `~` replaced."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise DatasetError(f"There is no home folder for {printable(text)!r}.") from error


def read_list(path: Path, *, what: str) -> str:
    """Read a text file that lists something; `what` names its content in messages."""
    try:
        return read_limited(path, _MOST_LIST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{printable(path)}, byte {error.start}"
        raise DatasetError(f"The {what} is not UTF-8 ({where}); save it as UTF-8.") from error
    except OSError as error:
        reason = os_error(error)
        raise DatasetError(f"The {what} {printable(path)} cannot be read: {reason}.") from error


def inside(folder: Path, relative: str, *, listed_in: Path | str) -> Path:
    """Join a path that the file `listed_in` names onto its folder; raise when it leads out of it.

    The check is on the spelling, not on the file system: links that the user has put into the
    folder (as CoOp's instructions advise) are followed.
    """
    parts = PurePosixPath(relative).parts
    odd = relative.startswith("/") or "\\" in relative or "\0" in relative
    if not parts or odd or ".." in parts or ":" in parts[0]:
        rule = "paths must be relative, with forward slashes and without '..'"
        place = f"which does not stay inside {printable(folder)}"
        raise DatasetError(f"{printable(listed_in)} lists {relative!r}, {place}; {rule}.")
    return folder.joinpath(*parts)


def is_image_name(name: str) -> bool:
    """Whether the suffix is that of an image; hidden files are none."""
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


def subfolders(folder: Path) -> list[str]:
    """Return the names of the visible folders inside `folder`, sorted by code point."""
    return sorted(e.name for e in _entries(folder) if e.is_dir() and not e.name.startswith("."))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        _refuse_folder(error)


def _refuse_folder(error: OSError) -> NoReturn:
    name, reason = printable(error.filename), os_error(error)
    raise DatasetError(f"The folder {name} cannot be listed: {reason}.") from error


def naming(items: Sequence[str]) -> str:
    """Join names for a message: "a, b, c, d, e and 2 more"."""
    names = ", ".join(printable(item) for item in items[:_MOST_NAMED])
    more = len(items) - _MOST_NAMED
    return f"{names} and {more:,} more" if more > 0 else names


def counted(items: Sequence[str], noun: str, *, which: str = "") -> str:
    """Return the number of items and the first names: "1 file of another kind (a.txt)"."""
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    words = [f"{len(items):,}", noun if len(items) == 1 else plural, which]
    return f"{' '.join(filter(None, words))} ({naming(items)})"


def read_tree(folder: Path, labels: Mapping[str, int], *, layout: str) -> Listing:
    """List the images of every folder that `labels` knows; everything else becomes a note."""
    present = subfolders(folder)
    classes = sorted((name for name in present if name in labels), key=labels.__getitem__)
    samples, others = [], []
    for name in classes:
        images, rest = _folder_content(folder / name)
        others += [f"{name}/{leaf}" for leaf in rest]
        for leaf in images:
            path = f"{name}/{leaf}"
            samples.append(Sample(sample_id(path), labels[name], FileRef(folder / name / leaf)))
    stray = sorted(e.name for e in _entries(folder) if is_image_name(e.name) and not e.is_dir())
    unknown = [name for name in present if name not in labels]
    left_out = (
        (unknown, "folder", "without class"),
        (stray, "image", "outside of the class folders"),
        (others, "file", "of another kind or linked folder"),
    )
    notes = tuple(
        f"Left out: {counted(items, noun, which=which)}."
        for items, noun, which in left_out
        if items
    )
    missing = tuple(folder / name for name in labels if name not in classes)
    return Listing(layout, folder, tuple(samples), missing, notes)


def _folder_content(folder: Path) -> tuple[list[str], list[str]]:
    """Return the images below a class folder, and other files and linked folders, both sorted.

    Hidden files and folders do not count; linked folders are not entered.
    """
    images, others = [], []
    for parent, names, leaves in os.walk(folder, onerror=_refuse_folder):
        names[:] = [name for name in names if not name.startswith(".")]
        base = os.path.relpath(parent, folder)
        prefix = "" if base == "." else f"{Path(base).as_posix()}/"
        others += [f"{prefix}{n}/" for n in names if os.path.islink(os.path.join(parent, n))]
        for leaf in leaves:
            if is_image_name(leaf):
                images.append(prefix + leaf)
            elif not leaf.startswith("."):
                others.append(prefix + leaf)
    return sorted(images), sorted(others)


def _find_tree(entry: CatalogEntry, root: Path) -> tuple[str, Path] | None:
    """Return layout and folder of the tree with the most WordNet-id or number folders, if any."""
    names = set(entry.folders)
    best: tuple[int, str, Path] = (0, "", root)
    for layout in entry.layouts:
        folder = _image_folder(root, layout)
        hits = len(names.intersection(subfolders(folder))) if os.path.isdir(folder) else 0
        if hits > best[0]:
            best = (hits, layout.layout, folder)
    return best[1:] if best[0] else None


def _class_key(name: str) -> str:
    # Folders and classes are compared without case, underscores and hyphens.
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


def _find_class_folders(entry: CatalogEntry, root: Path) -> tuple[Path, dict[str, int]] | None:
    """Return a folder of folders named like the classes, and their labels; None when absent.

    At least half of its folders, and two or more, must be class names.
    """
    labels = {_class_key(name): label for label, name in enumerate(entry.classes)}
    for relative in (entry.name, *(layout.folder for layout in entry.layouts)):
        folder = root / relative
        present = subfolders(folder) if os.path.isdir(folder) else []
        named = {name: labels[_class_key(name)] for name in present if _class_key(name) in labels}
        if len(named) >= max(2, len(present) / 2) and len(set(named.values())) == len(named):
            return folder, named
    return None


def _locate_class_folders(entry: CatalogEntry, root: Path) -> Listing | None:
    tree = _find_class_folders(entry, root)
    if tree is None:
        return None
    folder, labels = tree
    listing = read_tree(folder, labels, layout="class-folders")
    absent = [name for label, name in enumerate(entry.classes) if label not in labels.values()]
    notes = [f"Absent: the folders of {counted(absent, 'class')}."] if absent else []
    notes.append(f"Class folders without {entry.split}: nothing shows that these are test images.")
    return replace(listing, notes=(*listing.notes, *notes))


def _locate_split(entry: CatalogEntry, root: Path) -> Listing | None:
    """List the images of a split file in the layout under which most of them exist."""
    layouts = [layout for layout in entry.layouts if os.path.isdir(root / layout.folder)]
    split = _find_split(entry, root)
    if split is None or not layouts:
        return None
    rows = _read_rows(entry, split)
    listings = [_list_rows(rows, layout, root=root, split=split) for layout in layouts]
    return max(listings, key=lambda listing: (len(listing.samples), os.path.isdir(listing.source)))


def _list_rows(rows: list[Row], layout: Layout, *, root: Path, split: Path) -> Listing:
    folder = _image_folder(root, layout)
    samples, missing = [], []
    for relative, label, _ in rows:
        path = inside(folder, relative, listed_in=split)
        if os.path.isfile(path):
            samples.append(Sample(sample_id(relative), label, FileRef(path)))
        else:
            missing.append(path)
    return Listing(layout.layout, folder, tuple(samples), tuple(missing))


def _find_split(entry: CatalogEntry, root: Path) -> Path | None:
    return next(filter(os.path.lexists, _split_paths(entry, root)), None)


def _split_paths(entry: CatalogEntry, root: Path) -> list[Path]:
    """Return where the set's list file is looked for, in this order."""
    folders = [layout.folder for layout in entry.layouts]
    if entry.kind != "variants":  # the name of that list does not identify the set
        folders += SPLIT_FOLDERS
    return [root / folder / entry.split for folder in folders]


def _read_rows(entry: CatalogEntry, split: Path) -> list[Row]:
    """Read the test part of a list file and compare its class names with the catalogue's."""
    text, file = read_list(split, what="split file"), printable(split)
    if entry.kind == "variants":
        rows = [_variant_row(entry, line) for line in text.splitlines() if line.strip()]
    else:
        try:
            rows = _SplitFile.model_validate_json(text).test
        except ValidationError as error:
            raise DatasetError(f"{file} is not a split file: {explain(error)}.") from error
    for path, label, name in rows:
        if not 0 <= label < len(entry.classes) or entry.classes[label] != name:
            raise DatasetError(
                f"{file} is another split: {path!r} has label {label} and class {name!r}, which is "
                f"not in the catalogue's list of {entry.title}."
            )
    repeated = repetitions(path for path, _, _ in rows)
    if repeated:
        raise DatasetError(f"{file} lists {naming(repeated)} more than once.")
    return rows


def _variant_row(entry: CatalogEntry, line: str) -> Row:
    """Read a line of Aircraft's list: image number, blank, variant name (which may hold blanks)."""
    number, _, name = line.strip().partition(" ")
    return f"{number}.jpg", entry.classes.index(name) if name in entry.classes else -1, name


def _image_folder(root: Path, layout: Layout) -> Path:
    return root / layout.folder / layout.images


def locate(entry: CatalogEntry, root: Path) -> Listing | None:
    """Find a named set in any known layout; None when nothing of it is there."""
    if entry.kind in _TREES:
        tree = _find_tree(entry, root)
        labels = {name: label for label, name in enumerate(entry.folders)}
        return read_tree(tree[1], labels, layout=tree[0]) if tree else None
    listed = _locate_split(entry, root)
    if listed is not None and len(listed.samples) > _LEAST_FOUND * len(listed.missing):
        return listed
    return _locate_class_folders(entry, root) or listed


def find_folder(entry: CatalogEntry, root: Path) -> Path | None:
    """Return the folder where a set seems to be, without looking at its images; None if absent."""
    if entry.kind in _TREES:
        tree = _find_tree(entry, root)
        return tree[1] if tree else None
    if _find_split(entry, root) is not None:
        folders = [_image_folder(root, layout) for layout in entry.layouts]
        for folder in filter(os.path.isdir, folders):
            return folder
    named = _find_class_folders(entry, root)
    return named[0] if named else None


def expected_paths(entry: CatalogEntry, root: Path) -> list[str]:
    """Describe where a set is looked for: image folder, and list file where one is needed."""
    texts = []
    for layout in entry.layouts:
        split = f" with {printable(root / layout.folder / entry.split)}" if entry.split else ""
        texts.append(f"{printable(_image_folder(root, layout))}{split} ({layout.layout} layout)")
    return texts


def missing_message(entry: CatalogEntry, root: Path) -> str:
    """Return what of a set that was not found is absent, and where it is expected."""
    text = f"{entry.name!r} was not found; expected: {' or '.join(expected_paths(entry, root))}."
    if entry.split and any(os.path.isdir(root / layout.folder) for layout in entry.layouts):
        also = printable(_split_paths(entry, root)[-1].parent)
        text += f" Its folder exists, but {entry.split} does not (also looked in {also})."
    return text


def size_difference(entry: CatalogEntry, listing: Listing) -> str:
    """Return how the number of images differs from the complete set's; empty if it does not."""
    count = len(listing.samples)
    if count == entry.images and not listing.missing:
        return ""
    absent = f", for example {printable(listing.missing[0])} is missing" if listing.missing else ""
    return (
        f"{entry.name!r} has {count:,} images under {printable(listing.source)}, "
        f"the complete set has {entry.images:,}{absent}."
    )
