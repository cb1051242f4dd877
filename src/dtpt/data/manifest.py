"""A list of images: `manifest:FILE.csv` or `manifest:FILE.jsonl` with the fields path and label.

Paths are relative to the folder of the file and must stay inside it. A label is a class name or,
with a `classes.txt` beside the file, also a class number.
"""

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dtpt.data.dataset import Dataset, FileRef, Sample, sample_id
from dtpt.data.labels import RawLabel, find_class_file, resolve_labels
from dtpt.data.listing import counted
from dtpt.data.paths import inside, read_list
from dtpt.errors import DatasetError
from dtpt.files import printable

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
        raise DatasetError(f"{printable(path)} lists no images.")
    resolved = resolve_labels(
        [label for _, label in rows], find_class_file(path.parent), source=path
    )
    files = [inside(path.parent, relative, listed_in=path) for relative, _ in rows]
    samples = tuple(
        Sample(sample_id(relative), label, FileRef(file))
        for (relative, _), label, file in zip(rows, resolved.labels, files, strict=True)
    )
    absent = [
        sample.id for sample, file in zip(samples, files, strict=True) if not os.path.exists(file)
    ]
    remark = [f"Absent: {counted(absent, 'listed file')}."] if absent else []
    return Dataset(
        name=name or f"{SCHEME}{path}",
        classes=resolved.classes,
        samples=samples,
        source=str(path),
        remarks=(*resolved.remarks, *remark),
    )


def _rows(path: Path) -> Iterator[tuple[str, RawLabel]]:
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".ndjson": _json_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{printable(path)}: a manifest ends in .csv or .jsonl.")
    yield from reader(printable(path), read_list(path, what="manifest"))


def _csv_rows(path: str, text: str) -> Iterator[tuple[str, RawLabel]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        yield from _checked_rows(reader, path)
    except csv.Error as error:
        raise DatasetError(f"{path} line {reader.line_num} is no CSV: {error}.") from error


def _checked_rows(reader: "csv.DictReader[str]", path: str) -> Iterator[tuple[str, RawLabel]]:
    absent = {"path", "label"} - set(reader.fieldnames or ())
    if absent:
        raise DatasetError(
            f"{path}: the first line must name the columns path and label; "
            f"{' and '.join(sorted(absent))} not found."
        )
    for row in reader:
        yield _row(row, f"{path} line {reader.line_num}")


def _json_rows(path: str, text: str) -> Iterator[tuple[str, RawLabel]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield _row(json.loads(line), f"{path} line {number}")
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path} line {number} is no JSON: {error}.") from error


def _row(record: Any, where: str) -> tuple[str, RawLabel]:
    match record:
        case {"path": str(path), "label": str(label) | int(label)} if path and label != "":
            return path, label
        case _:
            raise DatasetError(f"{where}: a path and a label (name or number) were expected.")
