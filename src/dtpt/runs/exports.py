"""Files derived from a run: results, samples, and clip_benchmark's JSON.

They are written atomically and never read back. Apart from the field `date` their bytes depend on
the rows alone, so two runs can be compared with `diff`.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dtpt.errors import RunError, os_error
from dtpt.files import write_atomically
from dtpt.runs.reading import Run
from dtpt.runs.results import results_of
from dtpt.runs.spec import Cell
from dtpt.runs.summary import MethodResult, score_methods

FORMATS = ("results", "jsonl", "parquet", "clip-benchmark")
SCORED = {"results", "clip-benchmark"}
LONGEST_NAME = 150


def sample_records(run: Run, dataset: str) -> Iterator[dict[str, Any]]:
    """Yield one flat record per row of a data set, failed ones included, in a fixed order."""
    groups = {name: record.group for name, record in run.samples(dataset).items()}
    for cell in run.select(dataset=dataset):
        for row in run.raw_rows(cell):
            yield _record(cell, row, group=groups.get(row["sample"], ""))


def _record(cell: Cell, row: dict[str, Any], *, group: str) -> dict[str, Any]:
    return {
        "dataset": cell.dataset,
        "id": row["sample"],
        "method": cell.method,
        "lambda": cell.lambda_,
        "seed": cell.seed,
        "template": cell.template,
        "status": row["status"],
        "reason": row["reason"],
        "label": row["label"],
        "prediction": row["prediction"],
        "confidence": row["confidence"],
        "correct": None if row["prediction"] is None else row["prediction"] == row["label"],
        "entropy": row["entropy"],
        "p_label": row["p_label"],
        "sum_squares": row["sum_squares"],
        "top5": None if row["top5"] is None else json.loads(row["top5"]),
        "zero_shot_prediction": row["zero_shot_prediction"],
        "zero_shot_confidence": row["zero_shot_confidence"],
        "lambda_used": row["weight"],
        "group": group,
    }


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
            "metrics": {"acc1": cell.metrics.get("accuracy"), **_others(cell.metrics)},
        }
        for method in scores
        for seed, cell in method.seeds.items()
    ]


def _others(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name != "accuracy"}


def export(
    run: Run,
    folder: Path,
    *,
    formats: tuple[str, ...] = ("results", "jsonl"),
    scores: Sequence[MethodResult] | None = None,
) -> list[Path]:
    """Write the files of some formats into a folder and return their paths.

    Args:
        run: The run.
        folder: Where to; made when missing.
        formats: Some of `FORMATS`.
        scores: What `score_methods` says about the run, when the caller has that already.

    Raises:
        RunError: A format is unknown or a file cannot be written; older files stay whole.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise RunError(f"Unknown export format {unknown[0]!r}; known are {', '.join(FORMATS)}.")
    if scores is None:
        scores = score_methods(run) if SCORED.intersection(formats) else ()
    written = []
    for name in formats:
        for path, data in _files(run, folder, kind=name, scores=scores):
            _save(path, data)
            written.append(path)
    return written


def _files(
    run: Run, folder: Path, *, kind: str, scores: Sequence[MethodResult]
) -> Iterator[tuple[Path, bytes]]:
    if kind == "results":
        yield folder / "results.json", results_of(run, scores).to_json().encode()
    elif kind == "clip-benchmark":
        for record in clip_benchmark_records(run, scores):
            label = f"{record['dataset']}_{record['method']}_seed{record['seed']}"
            text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
            yield folder / f"clip_benchmark_{safe_name(label)}.json", f"{text}\n".encode()
    else:
        for dataset in run.datasets:
            path = folder / f"samples_{safe_name(dataset)}.{kind}"
            yield path, _jsonl(run, dataset) if kind == "jsonl" else _parquet(run, dataset)


def _jsonl(run: Run, dataset: str) -> bytes:
    lines = (
        json.dumps(record, ensure_ascii=False, allow_nan=False)
        for record in sample_records(run, dataset)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _parquet(run: Run, dataset: str) -> bytes:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RunError("Parquet needs the extra: pip install 'dtpt[parquet]'.") from None
    records = [_columnar(record) for record in sample_records(run, dataset)]
    table = pyarrow.Table.from_pylist(records, schema=_parquet_schema())
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def _columnar(record: dict[str, Any]) -> dict[str, Any]:
    """Split the five best answers into two lists of numbers."""
    pairs = record.pop("top5") or []
    labels, probabilities = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {**record, "top5_labels": labels, "top5_probabilities": probabilities}


def _parquet_schema() -> Any:
    import pyarrow as pa

    text, whole, real = pa.string(), pa.int64(), pa.float64()
    fields = {
        **dict.fromkeys(("dataset", "id", "method"), text),
        "lambda": real,
        "seed": whole,
        **dict.fromkeys(("template", "status", "reason"), text),
        **dict.fromkeys(("label", "prediction"), whole),
        "confidence": real,
        "correct": pa.bool_(),
        **dict.fromkeys(("entropy", "p_label", "sum_squares"), real),
        "zero_shot_prediction": whole,
        "zero_shot_confidence": real,
        "lambda_used": real,
        "group": text,
        "top5_labels": pa.list_(whole),
        "top5_probabilities": pa.list_(real),
    }
    return pa.schema(list(fields.items()))


def _save(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise RunError(
            f"Cannot write {path}: {os_error(error)}. The run itself is stored; export it "
            "again with `dtpt export`."
        ) from error


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
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}-{digest}"  # names that differ at their ends stay apart
