"""What a run is: everything that decides its numbers, as one frozen, hashable record.

Two runs with the same hash give the same rows. What cannot change a number (output folder, worker
count, shard, dates) is not part of it; what can but is a property of the machine (threads, torch)
is recorded with every session of the store instead. Names for people (of the model, of the family
of a data set) and the size of the whole set are recorded, but do not enter the hash.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from dtpt.methods import method_label

SPEC_FORMAT = 1
NOT_IN_HASH = ("family", "whole")  # of a data set
# settings that came later: the default is what runs without them had
LATER = {"precision": "float32", "batch": 1}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ModelSpec(_Frozen):
    """The model: its name for people, its fingerprint (sha256) for the identity of the run."""

    name: str
    fingerprint: str


class MethodSpec(_Frozen):
    """A method with its weight; λ is None where there is no regulariser to weigh."""

    name: str
    lambda_: float | None = Field(
        default=None, validation_alias="lambda", serialization_alias="lambda"
    )

    @property
    def label(self) -> str:
        """The name as typed: `d-tpt@100000`, or `tpt` where there is no λ."""
        return method_label(self.name, self.lambda_)


class DatasetSpec(_Frozen):
    """A data set with what depends on it: methods with their λ, and views (AugMix or not).

    Attributes:
        name: As on the command line; part of every row's key.
        fingerprint: Over class names and sample labels of the whole set, before the limit.
        classes: Number of classes.
        samples: Number of samples to evaluate, after the limit.
        whole: Pictures of the complete set; None in stores that did not record it.
        family: The group in which tables put the set.
        presentation: Kind of picture (emoji sets only).
        limit: As given; None for the whole set.
        methods: In the order given.
        views: The view recipe, as data.
    """

    name: str
    fingerprint: str
    classes: int
    samples: int
    whole: int | None = None
    family: str = "fine-grained"
    presentation: str | None = None
    limit: int | None = None
    methods: tuple[MethodSpec, ...]
    views: dict[str, JsonValue]

    @property
    def is_partial(self) -> bool:
        """Whether pictures of the set were left out (--limit, --partial)."""
        return self.limit is not None or (self.whole is not None and self.samples < self.whole)

    @property
    def size_text(self) -> str:
        """How many pictures, to print beside every number: `120 of 1,692 pictures`."""
        if self.whole is not None and self.samples < self.whole:
            return f"{self.samples:,} of {self.whole:,} pictures"
        return f"{self.samples:,} pictures"


@dataclass(frozen=True)
class Cell:
    """One combination of which every sample has one row."""

    dataset: str
    method: str
    lambda_: float | None
    seed: int
    template: str

    @property
    def key(self) -> int:
        """A 63-bit hash of the content: the same on every machine."""
        content = [self.dataset, self.method, self.lambda_, self.seed, self.template]
        digest = hashlib.sha256(canonical_json(content).encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    @property
    def label(self) -> str:
        """Method and λ as one word: `d-tpt@100000`."""
        return method_label(self.method, self.lambda_)


class RunSpec(_Frozen):
    """Everything that decides the numbers of a run.

    Attributes:
        format: Version of this record.
        model: Name and fingerprint.
        datasets: In the order of evaluation.
        seeds: Seeds of the views.
        template: Prompt with {} for the class name.
        context: sha256 of a trained initial context, None when the template's words are used.
        tuning: Optimiser and selection, as data (`TuningSettings`).
        precision: In which the towers compute.
        batch: Pictures that share forward passes, which changes numbers in the last bits.
        code_version: Version of dtpt.
    """

    format: int = SPEC_FORMAT
    model: ModelSpec
    datasets: tuple[DatasetSpec, ...]
    seeds: tuple[int, ...]
    template: str
    context: str | None = None
    tuning: dict[str, JsonValue]
    precision: str = "float32"
    batch: int = 1
    code_version: str

    def canonical(self) -> str:
        """Return the one JSON text of this record (sorted keys, no blanks)."""
        return canonical_json(self.model_dump(mode="json", by_alias=True))

    @property
    def hash(self) -> str:
        """sha256 of what decides the numbers; names for people and the whole size do not."""
        content = self.model_dump(mode="json", by_alias=True)
        del content["model"]["name"]
        for entry in content["datasets"]:
            for name in NOT_IN_HASH:
                del entry[name]
        for name, default in LATER.items():
            if content[name] == default:
                del content[name]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()

    def cells(self, *, dataset: str | None = None, seed: int | None = None) -> tuple[Cell, ...]:
        """Return every combination of the run, of one data set, or of one seed, in its order."""
        return tuple(
            Cell(entry.name, method.name, method.lambda_, number, self.template)
            for entry in self.datasets
            if dataset in (None, entry.name)
            for number in self.seeds
            if seed in (None, number)
            for method in entry.methods
        )

    def dataset(self, name: str) -> DatasetSpec:
        """Return the entry of one data set."""
        return next(entry for entry in self.datasets if entry.name == name)

    def unlimited(self) -> "RunSpec":
        """Return the record without limits, which tells whether two runs differ in nothing else."""
        open_ended = tuple(
            entry.model_copy(update={"limit": None, "samples": 0}) for entry in self.datasets
        )
        return self.model_copy(update={"datasets": open_ended})

    def only_enlarges(self, other: "RunSpec") -> bool:
        """Tell whether this is `other` with larger limits: every row of `other` is one of ours."""
        if self.unlimited().hash != other.unlimited().hash:
            return False
        pairs = zip(self.datasets, other.datasets, strict=True)
        return all(mine.samples >= theirs.samples for mine, theirs in pairs)


def canonical_json(content: Any) -> str:
    """Serialise so that equal content gives equal bytes."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def describe_difference(old: RunSpec, new: RunSpec) -> list[str]:
    """Return one readable line per setting that differs, `setting: old → new`.

    Example:
        a λ that was changed gives `datasets.dtd.methods: tpt, d-tpt@100000 → tpt, d-tpt@10000`.
    """
    before, after = _flatten(old), _flatten(new)
    if before.get("model.fingerprint") == after.get("model.fingerprint"):
        before.pop("model.name", None)
        after.pop("model.name", None)
    keys = [*before, *(key for key in after if key not in before)]
    absent = "(absent)"
    return [
        f"{key}: {_short(before.get(key, absent))} → {_short(after.get(key, absent))}"
        for key in keys
        if before.get(key, absent) != after.get(key, absent)
    ]


def refusal(path: Path, *, stored: RunSpec, spec: RunSpec) -> str:
    """Say why a folder cannot be used for another configuration."""
    lines = "".join(f"\n  {line}" for line in describe_difference(stored, spec))
    return (
        f"{path} holds a run with another configuration (there → asked for):{lines}\n"
        "Use another --output, or --fresh to move the old run aside and start anew."
    )


def _flatten(spec: RunSpec) -> dict[str, str]:
    content = spec.model_dump(mode="json", by_alias=True)
    content["datasets"] = {
        entry.name: {
            **{name: value for name, value in dumped.items() if name not in NOT_IN_HASH},
            "methods": ", ".join(method.label for method in entry.methods),
        }
        for entry, dumped in zip(spec.datasets, content["datasets"], strict=True)
    }
    return dict(_leaves(content, ""))


def _leaves(content: Any, path: str) -> list[tuple[str, str]]:
    if isinstance(content, dict):
        return [
            leaf
            for key, value in content.items()
            for leaf in _leaves(value, f"{path}.{key}" if path else str(key))
        ]
    return [(path, content if isinstance(content, str) else json.dumps(content))]


def _short(text: str) -> str:
    """Cut fingerprints and other long values to what tells them apart."""
    is_digest = len(text) == 64 and all(c in "0123456789abcdef" for c in text)
    return text[:12] + "…" if is_digest else text
