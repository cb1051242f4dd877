"""A run as a folder that others can read and check: results.json, rows as Parquet, a manifest.

The manifest has the sha256 of every file and what rows lack: class names, notes, selected λ, and
the machines without their names. It is written first, without hashes, and completed last, so that
an interrupted folder is noticed and the same command finishes it. `PublishedRun` makes a store of
the rows again, for a time, so that all that reads runs reads published ones. Columns of the Parquet
files are those of `dtpt export`; `log_probabilities` is what `dtpt.runs.rows.unpack` reads.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from dtpt.errors import RunError, explain, os_error
from dtpt.files import (
    canonical_json,
    open_atomically,
    open_regular,
    parse_json,
    printable,
    read_limited,
    write_atomically,
)
from dtpt.machine import package_version
from dtpt.runs.merging import join
from dtpt.runs.reading import EXPORTED, Run
from dtpt.runs.results import Results, results_of, safe_name, sample_records, write_parquet
from dtpt.runs.rows import Row
from dtpt.runs.schema import COLUMNS, Column
from dtpt.runs.shards import MAIN_STORE, MANIFEST
from dtpt.runs.spec import Cell, RunSpec
from dtpt.runs.store import SampleRecord, SelectedLambda, Store

RESULTS = "results.json"
CARD = "README.md"
ROWS = "samples_{}.parquet"
MOST_JSON = 1 << 28  # bytes
MOST_VALUES = 10_000_000
# What may be known about a machine: what changes numbers, and versions. Not its name, no paths.
PUBLIC = {
    *("device", "machine", "numpy", "pillow", "processor", "python", "system", "threads", "torch"),
}
OF_SESSION = ("is_partial",)
COUNTED = ("started", "seconds", "encoded_images", "rows")

Document = TypeVar("Document", bound=BaseModel)


class Manifest(BaseModel):
    """The content of published.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    dtpt: str  # version that published
    config: RunSpec
    files: dict[str, str] = {}  # sha256 by name; empty while the folder is being written
    classes: dict[str, tuple[str, ...]]  # by data set, in label order
    notes: tuple[tuple[str, str], ...]  # data set (or "") and text, as stored
    lambdas: dict[str, tuple[float, int]]  # λ and images by key of the cell, where selected
    sessions: tuple[dict[str, JsonValue], ...]


def publish(
    paths: Sequence[Path | str],
    folder: Path,
    *,
    keep_all: bool = True,
    card: Callable[[Run], str] | None = None,
) -> list[Path]:
    """Publish one run, or the joined rows of several (`dtpt.runs.merging.join`), in a folder.

    `keep_all`: with the probabilities of all classes, as far as stored. `card`: makes the card's
    text.

    Raises:
        RunError: The runs cannot be joined, lack rows, or the folder has other content or cannot
            be written.
    """
    _check_target(folder)
    with TemporaryDirectory(prefix="dtpt-") as scratch:
        with join(paths, Path(scratch) / MAIN_STORE) as run:
            manifest = _describe(run)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _write(folder / MANIFEST, manifest)
                written = _write_rows(run, folder, columns=COLUMNS if keep_all else EXPORTED)
            except OSError as error:
                raise RunError(f"Cannot write to {folder}: {os_error(error)}.") from error
        with PublishedRun(folder) as published:
            texts = {RESULTS: results_of(published).to_json()}
            texts |= {CARD: card(published)} if card is not None else {}
    try:
        for name, text in texts.items():
            write_atomically(folder / name, text.encode())
            written.append(folder / name)
        old = {*folder.glob(ROWS.format("*")), *folder.glob(".*.tmp")}
        for path in old.difference(written):  # published here before, or left by a kill
            path.unlink()
        hashes = {path.name: sha256(path) for path in written}
        _write(folder / MANIFEST, manifest.model_copy(update={"files": hashes}))
    except OSError as error:
        raise RunError(f"Cannot write to {folder}: {os_error(error)}.") from error
    return [*written, folder / MANIFEST]


def _write_rows(run: Run, folder: Path, *, columns: tuple[Column, ...]) -> list[Path]:
    paths = {name: _rows_file(folder, name) for name in run.datasets}
    for name, path in paths.items():
        with open_atomically(path) as stream:
            records = map(_without_folder, sample_records(run, name, columns=columns))
            write_parquet(stream, records, columns=columns)
    return list(paths.values())


def _without_folder(record: dict[str, Any]) -> dict[str, Any]:
    """Drop from the reason of a failure where the image lies: what is before the sample's id."""
    if record["reason"]:
        before, name, after = record["reason"].partition(record["id"])
        record["reason"] = f"{name}{after}" or before
    return record


def _rows_file(folder: Path, dataset: str) -> Path:
    return folder / ROWS.format(safe_name(dataset))


def _check_target(folder: Path) -> None:
    """Refuse a folder with anything that publishing could overwrite."""
    try:
        content = {path.name for path in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise RunError(f"Cannot publish to {printable(folder)}: {os_error(error)}.") from error
    if content and MANIFEST not in content:
        first = printable(min(content))
        raise RunError(f"{printable(folder)} has other content ({first}): publish to a new folder.")


def _write(path: Path, manifest: Manifest) -> None:
    write_atomically(path, f"{manifest.model_dump_json(indent=1, by_alias=True)}\n".encode())


def sha256(path: Path) -> str:
    """Return the hash of a file's content."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _describe(run: Run) -> Manifest:
    return Manifest(
        dtpt=package_version("dtpt"),
        config=run.spec,
        classes={name: run.classes(name) for name in run.datasets},
        notes=tuple(run.query("SELECT dataset, text FROM notes ORDER BY dataset, text")),
        lambdas={str(c.key): (one.value, one.images) for c, one in run.lambdas().items()},
        sessions=tuple(map(_without_names, run.sessions())),
    )


def _without_names(session: Mapping[str, Any]) -> dict[str, Any]:
    machines = [session.get("environment", {}), *session.get("nodes", ())]
    first, *others = [{k: v for k, v in one.items() if k in PUBLIC} for one in machines]
    counted = {name: session.get(name) for name in COUNTED}
    counted |= {name: session[name] for name in OF_SESSION if name in session}
    return counted | {"environment": first} | ({"nodes": others} if others else {})


def read_manifest(folder: Path) -> Manifest:
    """Return what a published folder says about itself; a RunError where it is none."""
    return _parsed(folder / MANIFEST, Manifest)


def read_results(folder: Path) -> Results:
    """Return the results.json of a published folder; a RunError where there is none."""
    return _parsed(folder / RESULTS, Results)


def _parsed(path: Path, kind: type[Document]) -> Document:
    try:
        content = parse_json(read_limited(path, MOST_JSON), most_values=MOST_VALUES)
        return kind.model_validate(content)
    except ValidationError as error:
        reason = explain(error)
    except (OSError, ValueError) as error:
        reason = os_error(error)
    raise RunError(f"{printable(path)} is not a file that `dtpt publish` made: {reason}.")


class PublishedRun(Run):
    """The run in a published folder, as a store that lasts until it is closed.

    Raises:
        RunError: A file is missing, damaged, or holds other rows than results.json describes.
    """

    def __init__(self, folder: Path, *, is_trusted: bool = False) -> None:
        self.folder = folder
        self._scratch = TemporaryDirectory(prefix="dtpt-")
        try:
            # the folder's name is in the path, which messages have
            path = Path(self._scratch.name) / (folder.resolve().name or "published") / MAIN_STORE
            _restore(folder, path)
            super().__init__(path, is_trusted=is_trusted)
        except BaseException:
            self._scratch.cleanup()
            raise

    def close(self) -> None:
        super().close()
        self._scratch.cleanup()


def _restore(folder: Path, path: Path) -> None:
    manifest = read_manifest(folder)
    spec = manifest.config
    cells = {(c.dataset, c.method, c.lambda_, *c.repeat, c.template): c for c in spec.cells()}
    with Store(path, spec) as store, store.together():
        for session in manifest.sessions:
            counts = tuple(session.get(name) for name in COUNTED)
            machine = {k: v for k, v in session.items() if k not in COUNTED}
            columns = f"{', '.join(COUNTED)}, environment"
            query = f"INSERT INTO sessions ({columns}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608
            store.query(query, *counts, canonical_json(machine))
        for name in store.datasets:
            store.write_classes(name, manifest.classes.get(name, ()))
            store.write_notes(name, [text for where, text in manifest.notes if where == name])
        store.write_notes("", [text for where, text in manifest.notes if where == ""])
        known = {str(cell.key): cell for cell in cells.values()}
        store.write_lambdas(
            {known[k]: SelectedLambda(*v) for k, v in manifest.lambdas.items() if k in known}
        )
        for entry in spec.datasets:
            file = _rows_file(folder, entry.name)
            rows = entry.samples * len(spec.cells(dataset=entry.name))
            for record in _records(file, rows=rows, most_bytes=rows * (4096 + 4 * entry.classes)):
                try:
                    _write_row(store, record, cells=cells, file=file)
                except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
                    raise RunError(f"{printable(file)} has a damaged row: {error}.") from error


def _write_row(
    store: Store, record: Mapping[str, Any], *, cells: Mapping[tuple[Any, ...], Cell], file: Path
) -> None:
    names = ("dataset", "method", "lambda", "seed", "order", "template")
    cell = cells.get(tuple(record[name] for name in names))
    if cell is None:
        words = ", ".join(str(record[name]) for name in names)
        raise RunError(f"{printable(file)} has a row that is not part of the run: {words}.")
    known = ("group", "cluster", "image_key")
    sample = SampleRecord(record["id"], record["label"], *(record[name] for name in known))
    if record["status"] == "failed":
        store.write_failure(cell.dataset, sample, cells=[cell], reason=record["reason"] or "")
        return
    pairs = zip(record["top5_labels"], record["top5_probabilities"], strict=True)
    values: dict[str, Any] = {field.name: record.get(field.name) for field in fields(Row)}
    values["top5"] = json.dumps([list(pair) for pair in pairs])
    row = Row(**values)
    store.write(cell.dataset, sample, rows={cell: row})


def _records(file: Path, *, rows: int, most_bytes: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file that somebody else may have written, in bounded memory."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise RunError("Parquet needs the extra: pip install 'dtpt[parquet]'.") from None
    try:
        with open_regular(file) as stream, parquet.ParquetFile(stream) as table:
            data = table.metadata
            groups = [data.row_group(index) for index in range(data.num_row_groups)]
            if data.num_rows > rows or sum(g.total_byte_size for g in groups) > most_bytes:
                raise RunError(f"{printable(file)} is larger than the {rows:,} rows of the run.")
            for batch in table.iter_batches(batch_size=4096):
                yield from batch.to_pylist()
    except OSError as error:
        raise RunError(f"Cannot read {printable(file)}: {os_error(error)}.") from error
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{printable(file)} is not one of dtpt's files: {error}.") from error
