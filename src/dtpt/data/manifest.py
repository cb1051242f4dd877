"""A list of images: `manifest:FILE.csv` or `manifest:FILE.jsonl` with the fields path and label.

Paths are relative to the folder of the file and must stay inside it. A label is a class name or,
with a `classes.txt` beside the file, also a class number.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtpt.data.dataset import Dataset, FileRef, Sample
from dtpt.data.labels import RawLabel, find_class_file, resolve_labels
from dtpt.data.paths import inside
from dtpt.errors import DatasetError

SCHEME = "manifest:"


def load_manifest(path: Path, *, name: str = "") -> Dataset:
    """Load a CSV file (with a header line) or a JSONL file.

    Files that are listed but absent stay in the data set: they become failed rows of a run, which
    name them. What has to be right is the list itself.

    Args:
        path: The manifest.
        name: Name of the data set; `manifest:PATH` when empty.
    """
    rows = list(_rows(path))
    if not rows:
        raise DatasetError(f"{path} lists no images.")
    classes, labels = resolve_labels(
        [label for _, label in rows], find_class_file(path.parent), source=str(path)
    )
    samples = tuple(
        Sample(relative, label, FileRef(inside(path.parent, relative, listed_in=str(path))))
        for (relative, _), label in zip(rows, labels, strict=True)
    )
    return Dataset(
        name=name or f"{SCHEME}{path}", classes=classes, samples=samples, source=str(path)
    )


def _rows(path: Path) -> Iterator[tuple[str, RawLabel]]:
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".ndjson": _json_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{path}: a manifest ends in .csv or .jsonl.")
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"Cannot read the manifest {path}: {error}.") from error
    yield from reader(path, text)


def _csv_rows(path: Path, text: str) -> Iterator[tuple[str, RawLabel]]:
    reader = csv.DictReader(text.splitlines())
    absent = {"path", "label"} - set(reader.fieldnames or ())
    if absent:
        raise DatasetError(
            f"{path}: the first line must name the columns path and label; "
            f"{' and '.join(sorted(absent))} not found."
        )
    for row in reader:
        yield _row(row, f"{path} line {reader.line_num}")


def _json_rows(path: Path, text: str) -> Iterator[tuple[str, RawLabel]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield _row(json.loads(line), f"{path} line {number}")
        except ValueError as error:
            raise DatasetError(f"{path} line {number} is no JSON: {error}.") from error


def _row(record: Any, where: str) -> tuple[str, RawLabel]:
    match record:
        case {"path": str(path), "label": str(label) | int(label)} if path and label != "":
            return path, label
        case _:
            raise DatasetError(f"{where}: a path and a label (name or number) were expected.")
