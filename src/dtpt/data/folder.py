"""Any folder of class folders: `folder:PATH`.

Without a class list the folder names, sorted by code point, are the classes. A file `classes.txt`
in the folder fixes order and names. Its lines are

* folder names; or
* folder name, tab or blank, class name (`n01440764 tench`, `1 pink primrose`); or
* class names alone, when all folders are numbers and fit exactly: n names for the folders 0 to n-1
  or 1 to n (leading zeros do not matter).

What could be read in two ways is refused: a wrong label is worse than no run.

Images are independent unless a cluster level is given: then those below one folder, that many
levels below a class folder, are one cluster.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dtpt.data import manifest
from dtpt.data.dataset import Dataset, Sample, prompt_name, repetitions, sample_id
from dtpt.data.layouts import counted, naming, read_tree, subfolders
from dtpt.data.manifest import is_number
from dtpt.errors import DatasetError
from dtpt.files import is_utf8, printable

_NUMBERED_LINE = re.compile(r"([0-9]{1,18})(?:[\t ]+(.+))?")
_REMEDY = "write folder, tab, name on every line"

Pair = tuple[str, str]  # folder, class name


def load_folder(path: Path, *, name: str, cluster_level: int | None = None) -> Dataset:
    """Load a folder of class folders."""
    if not os.path.isdir(path):
        raise DatasetError(
            f"{printable(path)} is not a folder; expected a folder of class folders."
        )
    present = {sample_id(folder): folder for folder in subfolders(path)}  # by printable name
    if not present:
        raise DatasetError(f"{printable(path)} has no class folders.")
    class_file = manifest.find_class_file(path)
    if class_file:
        lines = manifest.read_class_file(class_file)
        pairs = pair_lines(lines, list(present), listed_in=class_file)
    else:
        pairs = _unlisted(path, present)
    titles, notes = manifest.replace_wordnet_ids([title for _, title in pairs], source=path)
    labels = {present.get(folder, folder): label for label, (folder, _) in enumerate(pairs)}
    listing = read_tree(path, labels, layout="class-folders")
    absent = [missing.name for missing in listing.missing]
    absent_note = [f"Absent: {counted(absent, 'class folder')}."] if absent else []
    classes = tuple(prompt_name(title) for title in titles)
    samples, apart = listing.samples, []
    if cluster_level is not None:
        samples = tuple(_clustered(sample, cluster_level) for sample in samples)
        apart = [sample.id for sample in samples if sample.cluster == sample.id]
    if apart and len(apart) == len(samples):
        raise DatasetError(
            f"{printable(path)} has no image {cluster_level} folders below a class folder: "
            "choose a smaller cluster level, or a manifest with a column cluster."
        )
    apart_note = [f"In no folder of a cluster: {counted(apart, 'image')}."] if apart else []
    notes = (*notes, *listing.notes, *absent_note, *apart_note)
    return Dataset(name, classes, samples, source=str(path), notes=notes)


def _clustered(sample: Sample, level: int) -> Sample:
    """Name the cluster by the folder `level` below the class folder, for an image below it."""
    *folders, _ = sample.id.split("/")
    return replace(sample, cluster="/".join(folders[: level + 1]) if len(folders) > level else "")


def _unlisted(path: Path, present: dict[str, str]) -> list[Pair]:
    """Take the folder names as class names, unless they are numbers or not UTF-8."""
    class_file = printable(path / "classes.txt")
    if all(is_number(name) for name in present):
        raise DatasetError(f"The class folders are numbers; make {class_file} and {_REMEDY}.")
    for name in present.values():
        if not is_utf8(name):
            folder = printable(path / name)
            raise DatasetError(f"{folder} is not UTF-8; rename it, or name it in {class_file}.")
    return [(name, name) for name in present.values()]


def pair_lines(
    lines: Sequence[str], folders: Sequence[str], *, listed_in: Path | str
) -> list[Pair]:
    """Return folder and class name for every line of a class list, in its order.

    A line whose folder is absent keeps its index: it is a class without images.

    Raises:
        DatasetError: The lines fit the folders in no way, or not in one way only.

    Example:
        >>> pair_lines(["2 rose", "1 lily"], ["1", "2"], listed_in="classes.txt")
        [('2', 'rose'), ('1', 'lily')]
        >>> pair_lines(["rose", "lily"], ["01", "02"], listed_in="classes.txt")
        [('01', 'rose'), ('02', 'lily')]
    """
    numbers = all(is_number(folder) for folder in folders)
    pair = _number_pairs if numbers else _name_pairs
    pairs = pair(lines, folders, listed_in=printable(listed_in))
    repeated = repetitions(folder for folder, _ in pairs)
    if repeated:
        raise DatasetError(f"{printable(listed_in)} lists {naming(repeated)} more than once.")
    return pairs


def _number_pairs(lines: Sequence[str], folders: Sequence[str], *, listed_in: str) -> list[Pair]:
    """Pair lines with number folders: by the number that they start with, or else in order."""
    by_value = {int(folder): folder for folder in folders}
    if len(by_value) < len(folders):
        raise DatasetError(f"Two folders beside {listed_in} are the same number: remove zeros.")
    matches = [_NUMBERED_LINE.fullmatch(line) for line in lines]
    values = [int(match[1]) if match else None for match in matches]
    if not by_value.keys() & set(values):
        return _plain_pairs(lines, by_value, listed_in=listed_in)
    for line, value in zip(lines, values, strict=True):
        if value is None:
            raise DatasetError(f"{listed_in}: {line!r} starts with no folder's number; {_REMEDY}.")
    without_folder = [line for line, v in zip(lines, values, strict=True) if v not in by_value]
    unnamed = [folder for value, folder in by_value.items() if value not in values]
    if without_folder and unnamed and not all("\t" in line for line in lines):
        raise DatasetError(
            f"{listed_in} fits its folders only in part: no line for {naming(unnamed)}, no folder "
            f"for {without_folder[0]!r}; {_REMEDY}."
        )
    return [
        (by_value.get(int(match[1]), match[1]), match[2] or match[1]) for match in matches if match
    ]


def _plain_pairs(lines: Sequence[str], by_value: dict[int, str], *, listed_in: str) -> list[Pair]:
    """Pair plain names with folders that count from 0 or from 1 without a gap."""
    order, count = sorted(by_value), len(lines)
    if order not in (list(range(count)), list(range(1, count + 1))):
        first, last = by_value[order[0]], by_value[order[-1]]
        raise DatasetError(
            f"{listed_in} has {count} names, and beside it are {len(order)} number folders, "
            f"{first} to {last}; expected are the folders 0 to {count - 1} or 1 to {count}, or "
            "lines with folder, tab, name."
        )
    return [(by_value[value], line) for value, line in zip(order, lines, strict=True)]


def _name_pairs(lines: Sequence[str], folders: Sequence[str], *, listed_in: str) -> list[Pair]:
    """Pair lines with folders by the name that they are or start with."""
    present = set(folders)
    pairs = [_name_pair(line, present) for line in lines]
    if not present.intersection(folder for folder, _ in pairs):
        raise DatasetError(
            f"No line of {listed_in} starts with the name of a folder beside it "
            f"(first line {lines[0]!r}, first folder {folders[0]!r})."
        )
    taken_whole = {folder for folder, title in pairs if folder == title}
    split_at_blank = [line for line in lines if line not in taken_whole and "\t" not in line]
    doubtful = [line for line in lines if line in taken_whole - present and " " in line]
    if split_at_blank and doubtful:
        raise DatasetError(
            f"{listed_in}: {doubtful[0]!r} starts with no folder's name as {split_at_blank[0]!r} "
            f"does; {_REMEDY}."
        )
    return pairs


def _name_pair(line: str, present: set[str]) -> Pair:
    if line in present:
        return line, line
    folder, tab, title = line.partition("\t")
    if not tab:
        folder, _, title = line.partition(" ")
    folder, title = folder.strip(), title.strip()
    if title and (tab or folder in present or manifest.is_wordnet_id(folder)):
        return folder, title
    return line, line
