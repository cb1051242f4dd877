"""results.json: everything about a run except its single rows, as a typed record.

The keys follow lm-eval's files. All numbers are fractions (NLL in nats). Only `date` depends on
when and in how many pieces the run was computed.
"""

import datetime
import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from dtpt.metrics import metrics_with
from dtpt.runs.reading import Run
from dtpt.runs.spec import DatasetSpec, RunSpec
from dtpt.runs.summary import MethodResult, mean_over_datasets, score_methods


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class MethodRecord(_Record):
    """One method on one data set.

    Attributes:
        mean: Metrics, averaged over seeds; None when a seed has no rows.
        std: Their sample standard deviation over seeds; None for one seed.
        seeds: By seed: metrics, `n` samples that entered them, `failed` samples.
        lambda_found: By seed: λ that was found without labels (`@auto`); empty where it was given.
    """

    mean: dict[str, float] | None
    std: dict[str, float] | None
    seeds: dict[str, dict[str, int | float]]
    lambda_found: dict[str, float] = Field(default_factory=dict)


class GroupRecord(_Record):
    """Means over the data sets of one family.

    Attributes:
        datasets: The sets.
        mean: By method: metrics; methods that lack a set are left out.
    """

    datasets: tuple[str, ...]
    mean: dict[str, dict[str, float]]


class SampleCounts(_Record):
    """How many pictures of a data set are behind the numbers.

    Attributes:
        original: Pictures to evaluate.
        effective: Pictures with a row in every cell.
        failed: Pictures that could not be read.
        whole: Pictures of the complete set; None when not known.
    """

    original: int
    effective: int
    failed: int
    whole: int | None


class Fingerprints(_Record):
    """Hashes (sha256) of what decides the numbers: the whole configuration, model, data sets."""

    run: str
    model: str
    datasets: dict[str, str]


class FailureRecord(_Record):
    """A picture that could not be read, and why."""

    dataset: str
    sample: str
    reason: str


class Dates(_Record):
    """When the file was written, and the sessions in which the run was computed."""

    exported: str
    sessions: tuple[dict[str, JsonValue], ...]


class Results(_Record):
    """The content of results.json.

    Attributes:
        results: By data set and method (`d-tpt@100000`).
        groups: By family with more than one data set.
        configs: By data set: its part of the configuration.
        versions: Of dtpt and of the configuration's format.
        higher_is_better: By metric; None where neither direction is better.
        units: By metric.
        n_samples: By data set, under the key `n-samples`.
        config: The whole configuration.
        fingerprints: Hashes of what decides the numbers.
        complete: Whether every picture has a row everywhere.
        failures: Pictures that could not be read.
        remarks: By data set, what readers should know; "" for the whole run.
        environment: The distinct machines and versions that worked on the run.
        date: When; the only entry that differs between equal runs.
    """

    results: dict[str, dict[str, MethodRecord]]
    groups: dict[str, GroupRecord]
    configs: dict[str, DatasetSpec]
    versions: dict[str, str | int]
    higher_is_better: dict[str, bool | None]
    units: dict[str, str]
    n_samples: dict[str, SampleCounts] = Field(
        validation_alias="n-samples", serialization_alias="n-samples"
    )
    config: RunSpec
    fingerprints: Fingerprints
    complete: bool
    failures: tuple[FailureRecord, ...]
    remarks: dict[str, tuple[str, ...]]
    environment: tuple[dict[str, JsonValue], ...]
    date: Dates

    def document(self) -> dict[str, Any]:
        """Return the content as plain data, with the keys of the file."""
        return self.model_dump(mode="json", by_alias=True)

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def results_of(run: Run, scores: Sequence[MethodResult] | None = None) -> Results:
    """Sum a run up.

    Args:
        run: The run.
        scores: What `score_methods` says about it, when the caller has that already.
    """
    methods = score_methods(run) if scores is None else scores
    metrics = metrics_with(known=("confidence", "label"))
    return Results(
        results={
            name: {m.label: _method_record(m) for m in methods if m.dataset == name}
            for name in run.datasets
        },
        groups=_groups(run, methods),
        configs={entry.name: entry for entry in run.spec.datasets},
        versions={"dtpt": run.spec.code_version, "spec": run.spec.format},
        higher_is_better={metric.key: metric.higher_is_better for metric in metrics},
        units={metric.key: metric.file_unit for metric in metrics},
        n_samples=_sample_counts(run),
        config=run.spec,
        fingerprints=Fingerprints(
            run=run.spec.hash,
            model=run.spec.model.fingerprint,
            datasets={entry.name: entry.fingerprint for entry in run.spec.datasets},
        ),
        complete=run.is_complete,
        failures=tuple(FailureRecord(**vars(failure)) for failure in run.failures()),
        remarks={name: texts for name in ("", *run.datasets) if (texts := run.remarks(name))},
        environment=_environments(run),
        date=_dates(run),
    )


def _method_record(result: MethodResult) -> MethodRecord:
    return MethodRecord(
        mean=dict(result.mean) or None,
        std=dict(result.std) or None,
        seeds={
            str(seed): {**cell.metrics, "n": cell.effective, "failed": cell.failed}
            for seed, cell in result.seeds.items()
        },
        lambda_found={str(seed): weight for seed, weight in result.weights.items()},
    )


def _groups(run: Run, methods: Sequence[MethodResult]) -> dict[str, GroupRecord]:
    """Return means over the data sets of each family; methods that lack a set are left out."""
    found = {}
    for family in dict.fromkeys(entry.family for entry in run.spec.datasets):
        names = tuple(entry.name for entry in run.spec.datasets if entry.family == family)
        if len(names) > 1:
            parts = [method for method in methods if method.dataset in names]
            found[family] = GroupRecord(datasets=names, mean=mean_over_datasets(parts))
    return found


def _sample_counts(run: Run) -> dict[str, SampleCounts]:
    counts = run.counts()
    found = {}
    for entry in run.spec.datasets:
        successes = [ok for cell, (ok, _) in counts.items() if cell.dataset == entry.name]
        found[entry.name] = SampleCounts(
            original=entry.samples,
            effective=min(successes, default=0),
            failed=len(run.failures(entry.name)),
            whole=entry.whole,
        )
    return found


def _environments(run: Run) -> tuple[dict[str, JsonValue], ...]:
    """Return the distinct environments that worked on the run, in a fixed order."""
    texts = {json.dumps(s.get("environment", {}), sort_keys=True) for s in run.sessions()}
    return tuple(json.loads(text) for text in sorted(texts))


def _dates(run: Run) -> Dates:
    sessions = tuple(
        {key: value for key, value in session.items() if key != "environment"}
        for session in run.sessions()
    )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Dates(exported=now, sessions=sessions)
