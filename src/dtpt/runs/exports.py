"""Files derived from a run: results, samples, and clip_benchmark's JSON.

They are written atomically and never read back; samples are streamed. Apart from the field `date`
their bytes depend on the rows alone, so two runs can be compared with `diff`.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dtpt.errors import RunError, os_error
from dtpt.files import open_atomically, write_atomically
from dtpt.runs.reading import EXPORTED, Run
from dtpt.runs.results import MethodResult, results_of, score_methods
from dtpt.runs.schema import SAMPLE_COLUMNS
from dtpt.runs.spec import Cell

FORMATS = ("results", "jsonl", "parquet", "clip-benchmark")
SCORED = {"results", "clip-benchmark"}
LONGEST_NAME = 150
ROWS_PER_GROUP = 50_000  # of a Parquet file
_CELL = {"dataset": "TEXT", "id": "TEXT", "method": "TEXT", "lambda": "REAL", "seed": "INTEGER"}
_CELL |= {"template": "TEXT"}
_SAMPLE = tuple(column.name for column in SAMPLE_COLUMNS if column.is_exported)[1:]  # no label


def sample_records(run: Run, dataset: str) -> Iterator[dict[str, Any]]:
    """Yield one flat record per row of a data set, failed ones included, in a fixed order."""
    samples = run.samples(dataset)
    for cell in run.select(dataset=dataset):
        for row in run.stored_rows(cell):
            sample = samples[row["sample"]]
            yield _record(cell, row) | {name: getattr(sample, name) for name in _SAMPLE}


def _record(cell: Cell, row: dict[str, Any]) -> dict[str, Any]:
    sample_id, prediction = row.pop("sample"), row["prediction"]
    if row["top5"] is not None:
        row["top5"] = json.loads(row["top5"])
    values = (cell.dataset, sample_id, cell.method, cell.lambda_, cell.seed, cell.template)
    correct = None if prediction is None else prediction == row["label"]
    return {**dict(zip(_CELL, values, strict=True)), **row, "correct": correct}


def clip_benchmark_records(run: Run, scores: Sequence[MethodResult]) -> list[dict[str, Any]]:
    """Return one record per data set, method and seed in the shape of clip_benchmark's files."""
    name, _, pretrained = run.spec.model.name.rpartition("/")
    return [
        {
            "dataset": method.dataset,
            "model": name or run.spec.model.name,
            "pretrained": pretrained if name else "",
            "task": "zeroshot_classification",
            "language": "en",
            "method": method.label,
            "seed": seed,
            "metrics": {
                "acc1": cell.metrics.get("accuracy"),
                **{key: value for key, value in cell.metrics.items() if key != "accuracy"},
            },
        }
        for method in scores
        for seed, cell in method.seeds.items()
    ]


def export(
    run: Run,
    folder: Path,
    *,
    formats: tuple[str, ...] = ("results", "jsonl"),
    scores: Sequence[MethodResult] | None = None,
) -> list[Path]:
    """Write the files of some `FORMATS` into a folder and return their paths.

    `scores` are those of `score_methods`, when the caller has them.

    Raises:
        RunError: A format is unknown or a file cannot be written; older files stay whole.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise RunError(f"Unknown export format {unknown[0]!r}; use {', '.join(FORMATS)}.")
    if scores is None:
        scores = score_methods(run) if SCORED.intersection(formats) else ()
    written: list[Path] = []
    for name in formats:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written += _write(run, folder, kind=name, scores=scores)
        except OSError as error:
            raise RunError(
                f"Cannot write to {folder}: {os_error(error)}. The run itself is stored; export "
                "it again with `dtpt export`."
            ) from error
    return written


def _write(run: Run, folder: Path, *, kind: str, scores: Sequence[MethodResult]) -> Iterator[Path]:
    if kind == "results":
        path = folder / "results.json"
        write_atomically(path, results_of(run, scores).to_json().encode())
        yield path
    elif kind == "clip-benchmark":
        for record in clip_benchmark_records(run, scores):
            label = f"{record['dataset']}_{record['method']}_seed{record['seed']}"
            text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
            path = folder / f"clip_benchmark_{safe_name(label)}.json"
            write_atomically(path, f"{text}\n".encode())
            yield path
    else:
        for dataset in run.datasets:
            path = folder / f"samples_{safe_name(dataset)}.{kind}"
            records = sample_records(run, dataset)
            with open_atomically(path) as stream:
                (_write_jsonl if kind == "jsonl" else _write_parquet)(stream, records)
            yield path


def _write_jsonl(stream: Any, records: Iterator[dict[str, Any]]) -> None:
    for record in records:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        stream.write(f"{line}\n".encode())


def _write_parquet(stream: Any, records: Iterator[dict[str, Any]]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RunError("Parquet needs the extra: pip install 'dtpt[parquet]'.") from None
    schema = _parquet_schema()
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        while group := list(islice(records, ROWS_PER_GROUP)):
            columnar = [_columnar(record) for record in group]
            writer.write_table(pyarrow.Table.from_pylist(columnar, schema=schema))


def _columnar(record: dict[str, Any]) -> dict[str, Any]:
    """Split the five most likely classes into two lists of numbers."""
    pairs = record.pop("top5") or []
    record["top5_labels"] = [label for label, _ in pairs]
    record["top5_probabilities"] = [probability for _, probability in pairs]
    return record


def _parquet_schema() -> Any:
    import pyarrow as pa

    kinds = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64()}
    fields = {name: kinds[kind] for name, kind in _CELL.items()}
    fields |= {column.name: kinds[column.type] for column in EXPORTED if column.name != "top5"}
    fields |= {"correct": pa.bool_(), **dict.fromkeys(_SAMPLE, pa.string())}
    fields |= {"top5_labels": pa.list_(pa.int64()), "top5_probabilities": pa.list_(pa.float64())}
    return pa.schema(list(fields.items()))


def safe_name(text: str) -> str:
    """Return a name of a data set or method as a file name; a long one ends in its hash.

    Example:
        >>> safe_name("folder:/tmp/my pets")
        'folder_tmp_my_pets'
    """
    words = "".join(c if c.isalnum() or c in "-.@=+" else " " for c in text).split()
    name = "_".join(filter(None, (word.strip(".") for word in words))) or "run"
    if len(name) <= LONGEST_NAME:
        return name
    suffix = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}-{suffix}"  # long names stay distinct
