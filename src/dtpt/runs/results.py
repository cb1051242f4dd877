"""Metrics of a run, always recomputed from its rows, and the files that are exported.

The keys of results.json follow lm-eval's files; all numbers are fractions (NLL in nats). Files are
written atomically and never read back; samples are streamed. Apart from the field `date` their
bytes depend on the rows alone, so two runs can be compared with `diff`.
"""

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from dtpt.errors import RunError, os_error
from dtpt.files import open_atomically, write_atomically
from dtpt.methods import lambda_text
from dtpt.metrics import Predictions, metrics_with, score
from dtpt.runs.reading import EXPORTED, Failure, Run
from dtpt.runs.rows import ARRAY_COLUMNS, Columns
from dtpt.runs.schema import SAMPLE_COLUMNS, damaged
from dtpt.runs.schema import Column as StoreColumn
from dtpt.runs.spec import Cell, DatasetSpec, Repeat, RunSpec
from dtpt.tables import Cell as TableCell
from dtpt.tables import Column, Row, Table, metric_column, number_text

FORMATS = ("results", "jsonl", "parquet", "clip-benchmark")
SCORED = {"results", "clip-benchmark"}
LONGEST_NAME = 150
ROWS_PER_GROUP = 50_000  # of a Parquet file
_CELL = {"dataset": "TEXT", "id": "TEXT", "method": "TEXT", "lambda": "REAL", "seed": "INTEGER"}
_CELL |= {"order": "INTEGER", "template": "TEXT"}
_SAMPLE = tuple(column.name for column in SAMPLE_COLUMNS if column.is_exported)[1:]  # no label


@dataclass(frozen=True)
class CellResult:
    """One cell with its metrics."""

    cell: Cell
    metrics: Mapping[str, float]  # fractions, by key; empty without rows
    expected: int  # samples that should have a row
    effective: int  # samples that entered the metrics
    failed: int
    selected_lambda: float | None = None  # without labels (`@auto`); None where λ was given
    views: float | None = None  # mean passes of an image through the image tower


@dataclass(frozen=True)
class MethodResult:
    """One data set and method over its seeds, and over its orders where it carries state."""

    dataset: str
    label: str
    seeds: Mapping[Repeat, CellResult]

    @cached_property
    def mean(self) -> dict[str, float]:
        """Mean over seeds, by metric; empty when a seed has no rows."""
        return {key: float(values.mean()) for key, values in self._values.items()}

    @cached_property
    def std(self) -> dict[str, float]:
        """Sample standard deviation over seeds (n - 1), by metric; empty for one seed."""
        if len(self.seeds) < 2:
            return {}
        return {key: float(values.std(ddof=1)) for key, values in self._values.items()}

    @cached_property
    def _values(self) -> dict[str, Any]:
        metrics = [result.metrics for result in self.seeds.values()]
        if not all(metrics):
            return {}
        return {key: np.array([entry[key] for entry in metrics]) for key in metrics[0]}

    @property
    def views(self) -> float | None:
        """Mean passes of an image through the image tower; None when a seed has no rows."""
        means = [result.views for result in self.seeds.values()]
        return None if None in means else float(np.mean([m for m in means if m is not None]))

    @property
    def selected_lambdas(self) -> dict[Repeat, float]:
        """λ that were selected without labels, by seed; empty where λ was given."""
        pairs = ((seed, result.selected_lambda) for seed, result in self.seeds.items())
        return {seed: value for seed, value in pairs if value is not None}


def predictions_of(table: Columns, *, order: int | None = None) -> Predictions:
    """Return stored rows as what metrics and comparisons are computed from."""
    predictions = Predictions.from_confidence(
        table["confidence"],
        table["prediction"] == table["label"],
        p_label=table["p_label"],
        sum_squares=table["sum_squares"],
        samples=table["sample"],
        clusters=table["cluster"],
    )
    return predictions if order is None else replace(predictions, order=order)


def score_methods(run: Run) -> list[MethodResult]:
    """Compute the metrics of every data set and method; one pass over the rows."""
    tables, counts, lambdas = run.columns(*ARRAY_COLUMNS), run.counts(), run.lambdas()
    expected = {entry.name: entry.samples for entry in run.spec.datasets}
    grouped: dict[tuple[str, str], dict[Repeat, CellResult]] = {}
    for cell in run.cells:
        grouped.setdefault((cell.dataset, cell.label), {})[cell.repeat] = CellResult(
            cell,
            score(predictions_of(tables[cell])) if cell in tables else {},
            expected[cell.dataset],
            *counts[cell],
            selected_lambda=lambdas[cell].value if cell in lambdas else None,
            views=float(tables[cell]["views"].mean()) if cell in tables else None,
        )
    return [MethodResult(*key, seeds) for key, seeds in grouped.items()]


def result_table(run: Run, results: Sequence[MethodResult]) -> Table:
    """Return mean ± standard deviation over seeds, with the columns of reports and comparisons."""
    metrics = metrics_with("headline")
    rows = []
    for result in results:
        cells = [TableCell("—")] * len(metrics)
        if result.mean:
            std = result.std or {}
            spreads = [f"±{m.text(std[m.key])}" if m.key in std else "" for m in metrics]
            texts = [number_text(result.mean[metric.key], metric) for metric in metrics]
            cells = [TableCell(t, spread=spread) for t, spread in zip(texts, spreads, strict=True)]
        cells.append(TableCell("—" if result.views is None else f"{result.views:.3g}"))
        cells.append(TableCell(_count(result, run.spec.dataset(result.dataset).whole)))
        rows.append(Row(_label(result), tuple(cells), group=result.dataset))
    seeds = ",".join(map(str, run.spec.seeds))
    title = f"{run.spec.model.name}, seeds {seeds}, {run.spec.template!r}"
    if order := run.spec.order:
        title += f", order {order.kind} with seeds {','.join(map(str, order.seeds))}"
    columns = (*map(metric_column, metrics), Column("Passes"), Column("Images"))
    return Table(title, columns, tuple(rows))


def _label(result: MethodResult) -> str:
    """Return a method's name, with the range of λ that were selected for it."""
    lambdas = sorted(result.selected_lambdas.values())
    ends = dict.fromkeys(map(lambda_text, (*lambdas[:1], *lambdas[-1:])))
    return f"{result.label} (λ {' to '.join(ends)})" if ends else result.label


def _count(result: MethodResult, whole: int | None) -> str:
    """Return how many images a number rests on, and of how many."""
    effective = min(seed.effective for seed in result.seeds.values())
    total = max(whole or 0, *(seed.expected for seed in result.seeds.values()))
    return f"{effective:,}" if effective == total else f"{effective:,} of {total:,}"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class MethodRecord(_Record):
    """One method on one data set."""

    mean: dict[str, float] | None  # over seeds; None when a seed has no rows
    std: dict[str, float] | None  # sample standard deviation over seeds; None for one seed
    seeds: dict[str, dict[str, int | float]]  # metrics, `n` samples behind them, `failed` samples
    selected_lambda: dict[str, float] = Field(default_factory=dict)  # by seed (`@auto`)
    views: float | None = None  # mean passes of an image through the image tower


class GroupRecord(_Record):
    """Means over the data sets of one family; methods that lack a set are left out."""

    datasets: tuple[str, ...]
    mean: dict[str, dict[str, float]]


class SampleCounts(_Record):
    """How many images of a data set are behind the numbers."""

    original: int  # to evaluate
    effective: int  # with a row in every cell
    failed: int
    whole: int  # of the complete set


class Fingerprints(_Record):
    """Hashes (sha256) of what decides the numbers."""

    run: str
    model: str
    datasets: dict[str, str]


class Dates(_Record):
    exported: str
    sessions: tuple[dict[str, JsonValue], ...]


class Results(_Record):
    """The content of results.json."""

    results: dict[str, dict[str, MethodRecord]]  # by data set and method (`d-tpt@1e5`)
    groups: dict[str, GroupRecord]  # by family with more than one data set
    configs: dict[str, DatasetSpec]
    versions: dict[str, str | int]
    higher_is_better: dict[str, bool | None]  # by metric; None where neither direction is better
    units: dict[str, str]
    n_samples: dict[str, SampleCounts] = Field(
        validation_alias="n-samples", serialization_alias="n-samples"
    )
    config: RunSpec
    fingerprints: Fingerprints
    complete: bool  # whether every image has a row everywhere
    failures: tuple[Failure, ...]
    notes: dict[str, tuple[str, ...]]  # by data set; "" for the whole run
    environment: tuple[dict[str, JsonValue], ...]  # distinct machines and versions
    date: Dates  # the only entry that differs between equal runs

    def document(self) -> dict[str, Any]:
        """Return the content as plain data, with the keys of the file."""
        return self.model_dump(mode="json", by_alias=True)

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def results_of(run: Run, scores: Sequence[MethodResult] | None = None) -> Results:
    """Summarise a run; `scores` are those of `score_methods`, when the caller has them."""
    methods = score_methods(run) if scores is None else scores
    metrics = metrics_with(known=("confidence", "label"))
    counts, failures, sessions = run.counts(), run.failures(), run.sessions()
    environments = {json.dumps(s.get("environment", {}), sort_keys=True) for s in sessions}
    dated = ({k: v for k, v in session.items() if k != "environment"} for session in sessions)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    spec = run.spec
    return Results(
        results={
            name: {m.label: _method_record(m) for m in methods if m.dataset == name}
            for name in run.datasets
        },
        groups=_groups(spec, methods),
        configs={entry.name: entry for entry in spec.datasets},
        versions={"dtpt": spec.code_version, "spec": spec.format},
        higher_is_better={metric.key: metric.higher_is_better for metric in metrics},
        units={metric.key: metric.file_unit for metric in metrics},
        n_samples={
            entry.name: SampleCounts(
                original=entry.samples,
                effective=min(ok for c, (ok, _) in counts.items() if c.dataset == entry.name),
                failed=sum(failure.dataset == entry.name for failure in failures),
                whole=entry.whole,
            )
            for entry in spec.datasets
        },
        config=spec,
        fingerprints=Fingerprints(
            run=spec.hash,
            model=spec.model.fingerprint,
            datasets={entry.name: entry.fingerprint for entry in spec.datasets},
        ),
        complete=run.is_complete,
        failures=tuple(failures),
        notes=run.notes(),
        environment=tuple(map(json.loads, sorted(environments))),
        date=Dates(exported=now, sessions=tuple(dated)),
    )


def _method_record(result: MethodResult) -> MethodRecord:
    return MethodRecord(
        mean=result.mean or None,
        std=result.std or None,
        seeds={
            str(seed): {**cell.metrics, "n": cell.effective, "failed": cell.failed}
            for seed, cell in result.seeds.items()
        },
        selected_lambda={str(seed): value for seed, value in result.selected_lambdas.items()},
        views=result.views,
    )


def _groups(spec: RunSpec, methods: Sequence[MethodResult]) -> dict[str, GroupRecord]:
    groups = {}
    for family in dict.fromkeys(entry.family for entry in spec.datasets):
        datasets = tuple(entry.name for entry in spec.datasets if entry.family == family)
        means: dict[str, list[dict[str, float]]] = {}
        for method in methods:
            if method.dataset in datasets and method.mean:
                means.setdefault(method.label, []).append(method.mean)
        if len(datasets) > 1:
            over_sets = {
                label: {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}
                for label, parts in means.items()
                if len(parts) == len(datasets)
            }
            groups[family] = GroupRecord(datasets=datasets, mean=over_sets)
    return groups


def sample_records(
    run: Run, dataset: str, *, columns: tuple[StoreColumn, ...] = EXPORTED
) -> Iterator[dict[str, Any]]:
    """Yield one flat record per row of a data set, failed ones included, in a fixed order."""
    samples = run.samples(dataset)
    for cell in run.select(dataset=dataset):
        for row in run.stored_rows(cell, columns=columns):
            try:
                sample = samples[row["sample"]]
                record = _record(cell, row) | {name: getattr(sample, name) for name in _SAMPLE}
            except (KeyError, ValueError, TypeError) as error:
                raise RunError(damaged(run.path, f"row of {cell.label}: {error}")) from error
            yield record


def _record(cell: Cell, row: dict[str, Any]) -> dict[str, Any]:
    sample_id, prediction = row.pop("sample"), row["prediction"]
    if row["top5"] is not None:
        row["top5"] = json.loads(row["top5"])
    method = cell.method, cell.lambda_
    values = (cell.dataset, sample_id, *method, *cell.repeat, cell.template)
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
            "seed": repeat.seed,
            **({} if repeat.order is None else {"order": repeat.order}),
            "metrics": {
                "acc1": cell.metrics.get("accuracy"),
                **{key: value for key, value in cell.metrics.items() if key != "accuracy"},
            },
        }
        for method in scores
        for repeat, cell in method.seeds.items()
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
            label += f"_order{record['order']}" if "order" in record else ""
            text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
            path = folder / f"clip_benchmark_{safe_name(label)}.json"
            write_atomically(path, f"{text}\n".encode())
            yield path
    else:
        for dataset in run.datasets:
            path = folder / f"samples_{safe_name(dataset)}.{kind}"
            records = sample_records(run, dataset)
            with open_atomically(path) as stream:
                (_write_jsonl if kind == "jsonl" else write_parquet)(stream, records)
            yield path


def _write_jsonl(stream: Any, records: Iterator[dict[str, Any]]) -> None:
    for record in records:
        line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        stream.write(f"{line}\n".encode())


def write_parquet(
    stream: Any, records: Iterator[dict[str, Any]], *, columns: tuple[StoreColumn, ...] = EXPORTED
) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise RunError("Parquet needs the extra: pip install 'dtpt[parquet]'.") from None
    schema = _parquet_schema(columns)
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


def _parquet_schema(columns: tuple[StoreColumn, ...]) -> Any:
    import pyarrow as pa

    kinds = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}
    fields = {name: kinds[kind] for name, kind in _CELL.items()}
    fields |= {column.name: kinds[column.type] for column in columns if column.name != "top5"}
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
