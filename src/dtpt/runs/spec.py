"""What a run is: everything that decides its numbers, as one frozen, hashable record.

Two runs with the same hash give the same rows. What cannot change a number (output folder, worker
count, shard, dates) is not part of it; what can but is a property of the machine (threads, torch)
is recorded with every session of the store instead. Names for people (of the model, of the family
of a data set) and the size of the whole set are recorded, but do not enter the hash.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from dtpt.data.catalog import family_protocol
from dtpt.files import canonical_json, digest
from dtpt.methods import method_label

SPEC_FORMAT = 2
NOT_IN_HASH = ("family", "whole", "cluster_noun", "cluster_level")  # of a data set


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ModelSpec(_Frozen):
    name: str
    fingerprint: str  # sha256; the identity of the run rests on it


class MethodSpec(_Frozen):
    """A method with its λ; None where there is no regulariser, or where λ is to be selected."""

    name: str
    lambda_: float | None = Field(
        default=None, validation_alias="lambda", serialization_alias="lambda"
    )

    @property
    def label(self) -> str:
        return method_label(self.name, self.lambda_)


class DatasetSpec(_Frozen):
    """A data set with what depends on it: methods with their λ, and views (AugMix or not)."""

    name: str  # as on the command line; part of every row's key
    fingerprint: str  # of class names and sample labels of the whole set, before the limit
    classes: int
    samples: int  # to evaluate, after the limit
    whole: int  # images of the complete set
    family: str = "fine-grained"
    protocol: str = Field(default_factory=lambda data: family_protocol(data["family"]))
    cluster_noun: str = "clusters"  # what a cluster of samples is, for counts
    cluster_level: int | None = None  # that a user named (folders only)
    presentation: str | None = None  # kind of image (emoji sets only)
    limit: int | None = None
    methods: tuple[MethodSpec, ...]
    views: dict[str, JsonValue]
    pack: str | None = None  # sha256 of the feature pack that holds it

    @property
    def is_partial(self) -> bool:
        return self.limit is not None or self.samples < self.whole


class OrderSpec(_Frozen):
    """The order of the images, for the methods that carry state from image to image."""

    kind: str  # see `dtpt.data.order`
    seeds: tuple[int, ...]  # one stream each
    methods: tuple[str, ...]  # that carry state
    digest: str  # sha256 of the ids in all orders


class Repeat(NamedTuple):
    """What a number is averaged over: a seed of the views and, for streams, one of the order."""

    seed: int
    order: int | None = None

    def __str__(self) -> str:
        return f"{self.seed}" if self.order is None else f"{self.seed} order {self.order}"


@dataclass(frozen=True)
class Cell:
    """One combination of which every sample has one row."""

    dataset: str
    method: str
    lambda_: float | None
    seed: int
    template: str
    order: int | None = None  # seed of the order, where the method carries state

    @property
    def key(self) -> int:
        """A 63-bit hash of the content: the same on every machine."""
        content = [self.dataset, self.method, self.lambda_, self.seed, self.template]
        content += [] if self.order is None else [self.order]
        return int(digest(content)[:16], 16) >> 1

    @property
    def repeat(self) -> Repeat:
        return Repeat(self.seed, self.order)

    @property
    def label(self) -> str:
        """Method and λ as one word: `d-tpt@1e5`."""
        return method_label(self.method, self.lambda_)


class RunSpec(_Frozen):
    """Everything that decides the numbers of a run."""

    format: int = SPEC_FORMAT
    model: ModelSpec
    datasets: tuple[DatasetSpec, ...]
    seeds: tuple[int, ...]
    template: str
    context: str | None = None  # sha256 of a trained initial context
    tuning: dict[str, JsonValue]
    precision: str = "float32"
    batch: int = 1  # images that share forward passes, which changes numbers in the last bits
    order: OrderSpec | None = None  # where a method carries state
    code_version: str

    def canonical(self) -> str:
        """Return the one JSON text of this record (sorted keys, no blanks)."""
        return canonical_json(self.model_dump(mode="json", by_alias=True))

    @property
    def hash(self) -> str:
        return hash_of(self.model_dump(mode="json", by_alias=True))

    def cells(
        self, *, dataset: str | None = None, seed: int | None = None, order: int | None = None
    ) -> tuple[Cell, ...]:
        """Return every combination of the run, of one data set, seed or order, in its order.

        Of one data set, seed and order there is one for each method.
        """
        return tuple(
            Cell(entry.name, method.name, method.lambda_, number, self.template, position)
            for entry in self.datasets
            if dataset in (None, entry.name)
            for number in self.seeds
            if seed in (None, number)
            for method in entry.methods
            for position in self.orders(method.name)
            if order is None or position in (None, order)
        )

    def orders(self, method: str) -> tuple[int | None, ...]:
        """Return the seeds of the orders under which a method runs; (None,) without state."""
        if self.order is None or method not in self.order.methods:
            return (None,)
        return self.order.seeds

    def dataset(self, name: str) -> DatasetSpec:
        return next(entry for entry in self.datasets if entry.name == name)

    def unlimited(self) -> "RunSpec":
        """Return the record without limits: two runs with equal ones differ in nothing else."""
        open_ended = tuple(
            entry.model_copy(update={"limit": None, "samples": 0}) for entry in self.datasets
        )
        return self.model_copy(update={"datasets": open_ended})

    def only_enlarges(self, other: "RunSpec") -> bool:
        """Check whether this is `other` with larger limits: every row of `other` is one of ours.

        With an order, earlier images decide later ones, so only an equal run contains its rows.
        """
        if self.order is not None or other.order is not None:
            return self.hash == other.hash
        if self.unlimited().hash != other.unlimited().hash:
            return False
        pairs = zip(self.datasets, other.datasets, strict=True)
        return all(mine.samples >= theirs.samples for mine, theirs in pairs)


def hash_of(content: dict[str, Any]) -> str:
    """Return the hash of a stored `RunSpec`, by the fields that it had when it was written."""
    content["model"].pop("name", None)
    for entry in content["datasets"]:
        for name in NOT_IN_HASH:
            entry.pop(name, None)
    return digest(content)


def describe_difference(old: RunSpec, new: RunSpec) -> list[str]:
    """Return one line per setting that differs, `setting: old → new`."""
    before, after = _content(old), _content(new)
    if old.model.fingerprint == new.model.fingerprint:
        before["model"] = after["model"]  # only the name differs
    return list(_differences(before, after, path=""))


COMBINE = (
    "Methods, seeds and data sets of several runs are combined by naming all of them in `dtpt "
    "compare`, `dtpt report` and `dtpt publish`."
)


def refusal(path: Path, *, stored: RunSpec, spec: RunSpec) -> str:
    lines = "".join(f"\n  {line}" for line in describe_difference(stored, spec))
    return (
        f"{path} holds a run with another configuration (stored → requested):{lines}\n"
        f"Use another --output, or --fresh to archive the old run and start a new one. {COMBINE}"
    )


def _content(spec: RunSpec) -> dict[str, Any]:
    content = spec.model_dump(mode="json", by_alias=True, exclude={"datasets"})
    dumped = {e.name: e.model_dump(mode="json", exclude=set(NOT_IN_HASH)) for e in spec.datasets}
    for entry in spec.datasets:
        dumped[entry.name]["methods"] = ", ".join(method.label for method in entry.methods)
    return {**content, "datasets": dumped}


def _differences(old: Any, new: Any, *, path: str) -> Iterator[str]:
    if isinstance(old, dict) or isinstance(new, dict):
        before, after = (value if isinstance(value, dict) else {} for value in (old, new))
        for key in {**before, **after}:
            name = f"{path}.{key}" if path else key
            yield from _differences(before.get(key), after.get(key), path=name)
    elif old != new:
        yield f"{path}: {_short(old)} → {_short(new)}"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    # fingerprints are cut to what distinguishes them
    is_digest = len(text) == 64 and all(c in "0123456789abcdef" for c in text)
    return text[:12] + "…" if is_digest else text
