"""A list of images (`manifest:FILE.csv`, `manifest:FILE.jsonl`), and labels written by people.

A manifest has the fields path and label, and may have the field cluster: samples with the same
value are not independent (frames of one video, photographs of one animal). Paths are relative to
the folder of the file and must stay inside it. A label is a class name or, with a `classes.txt`
beside the file, also a class number.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dtpt.data.catalog import imagenet_names
from dtpt.data.dataset import Dataset, FileRef, Sample, prompt_name, sample_id
from dtpt.data.layouts import counted, inside, naming, read_list
from dtpt.errors import DatasetError
from dtpt.files import printable

CLASS_FILES = ("classes.txt", "classnames.txt")
RawLabel = str | int


class _Row(NamedTuple):
    path: str
    label: RawLabel
    cluster: str


def load_manifest(path: Path, *, name: str) -> Dataset:
    """Load a CSV file (with a header line) or a JSONL file.

    Files that are listed but absent stay in the data set: they become failed rows of a run, which
    name them. What has to be right is the list itself.
    """
    rows = list(_rows(path))
    if not rows:
        raise DatasetError(f"{printable(path)} lists no images.")
    class_file = find_class_file(path.parent)
    resolved = resolve_labels([row.label for row in rows], class_file, source=path)
    files = [inside(path.parent, row.path, listed_in=path) for row in rows]
    samples = tuple(
        Sample(sample_id(row.path), label, FileRef(file), cluster=row.cluster)
        for row, label, file in zip(rows, resolved.labels, files, strict=True)
    )
    absent = [
        sample.id for sample, file in zip(samples, files, strict=True) if not os.path.exists(file)
    ]
    note = [f"Absent: {counted(absent, 'listed file')}."] if absent else []
    notes = (*resolved.notes, *note)
    return Dataset(name, resolved.classes, samples, source=str(path), notes=notes)


def _rows(path: Path) -> Iterator[_Row]:
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".ndjson": _json_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{printable(path)}: a manifest ends in .csv or .jsonl.")
    yield from reader(printable(path), read_list(path, what="manifest"))


def _csv_rows(path: str, text: str) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if not {"path", "label"} <= set(reader.fieldnames or ()):
            raise DatasetError(f"{path}: the first line must name the columns path and label.")
        for record in reader:
            yield _row(record, f"{path} line {reader.line_num}")
    except csv.Error as error:
        raise DatasetError(f"{path} line {reader.line_num} is not CSV: {error}.") from error


def _json_rows(path: str, text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            if line.strip():
                yield _row(json.loads(line), f"{path} line {number}")
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path} line {number} is not JSON: {error}.") from error


def _row(record: Any, where: str) -> _Row:
    # Not by pydantic: a file name that is not UTF-8 has lone surrogates.
    match record:
        case {"path": str(path), "label": str(label) | int(label)} if path and label != "":
            cluster = record.get("cluster")
            if cluster is None or isinstance(cluster, str | int):
                return _Row(path, label, "" if cluster is None else str(cluster))
    raise DatasetError(f"{where}: expected a path, and a label (and cluster) of text or a number.")


class ResolvedLabels(NamedTuple):
    """Class names as they enter the prompt, one index per sample, and notes about the names."""

    classes: tuple[str, ...]
    labels: tuple[int, ...]
    notes: tuple[str, ...]


def is_number(text: str) -> bool:
    """Whether a text is a class number: digits only, at most 18."""
    return re.fullmatch(r"[0-9]{1,18}", text) is not None


def is_wordnet_id(text: str) -> bool:
    """Whether a text looks like a WordNet id (`n01440764`), as ImageNet's folders are named."""
    return re.fullmatch(r"n[0-9]{8}", text) is not None


def find_class_file(*folders: Path) -> Path | None:
    """Return the first `classes.txt` or `classnames.txt` in the given folders."""
    paths = [folder / name for folder in folders for name in CLASS_FILES]
    return next(filter(os.path.lexists, paths), None)  # if not a regular file, reading it fails


def read_class_file(path: Path) -> list[str]:
    """Read one class per line; blank lines and lines that start with `#` do not count.

    A name may occur twice (ImageNet has two classes "missile"), as long as labels are numbers.
    """
    lines = read_list(path, what="class list").splitlines()
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise DatasetError(f"{printable(path)} lists no class.")
    return names


def replace_wordnet_ids(
    names: Sequence[str], *, source: Path | str
) -> tuple[list[str], tuple[str, ...]]:
    """Replace WordNet ids, which no prompt should contain, by ImageNet's names, with a note."""
    ids = [name for name in names if is_wordnet_id(name)]
    titles = imagenet_names() if ids else {}
    unknown = [name for name in ids if name not in titles]
    if unknown:
        remedy = "write a file classes.txt with id and name on every line"
        raise DatasetError(f"{printable(source)}: unknown WordNet id {naming(unknown)}; {remedy}.")
    pairs = [f"{wnid} is {titles[wnid]!r}" for wnid in ids]
    notes = (f"WordNet ids got ImageNet's names: {counted(pairs, 'class')}.",) if ids else ()
    return [titles.get(name, name) for name in names], notes


def resolve_labels(
    raw: Sequence[RawLabel], class_file: Path | None, *, source: Path | str
) -> ResolvedLabels:
    """Turn names or numbers, one per sample, into class names and label indices.

    With a class list, a label is one of its names, or else a line number counted from zero.
    Without one, the names themselves, sorted by code point, are the classes; numbers alone do not
    name a class and are refused.
    """
    names = read_class_file(class_file) if class_file else _names_from(raw, source)
    indices: dict[str, list[int]] = {}
    for index, title in enumerate(names):
        indices.setdefault(title, []).append(index)
    listed_in = printable(class_file) if class_file else "the class list"
    where = printable(source)
    labels = tuple(_resolve(label, indices, source=where, listed_in=listed_in) for label in raw)
    titles, notes = replace_wordnet_ids(names, source=source)
    return ResolvedLabels(tuple(prompt_name(title) for title in titles), labels, notes)


def _names_from(raw: Sequence[RawLabel], source: Path | str) -> list[str]:
    texts = [label for label in raw if not isinstance(label, int)]
    if len(texts) < len(raw) or all(is_number(label.strip()) for label in texts):
        remedy = "name the classes in a file classes.txt beside it, the first line is class 0"
        raise DatasetError(f"{printable(source)} has numbers as labels; {remedy}.")
    return sorted({label.strip() for label in texts})


def _resolve(label: RawLabel, indices: dict[str, list[int]], *, source: str, listed_in: str) -> int:
    if isinstance(label, str):
        label = label.strip()
        matches = indices.get(label, [])
        if len(matches) > 1:
            raise DatasetError(
                f"{source}: the label {label!r} is the name of {len(matches)} classes; use numbers."
            )
        if matches:
            return matches[0]
        if not is_number(label):
            raise DatasetError(f"{source}: the label {label!r} is not in {listed_in}.")
    count = sum(map(len, indices.values()))
    if not 0 <= int(label) < count:
        raise DatasetError(f"{source}: label {label} is outside of the {count} classes.")
    return int(label)
