"""What each table and figure of the paper needs, what of it is here, and what is missing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from dtpt.clip.loading.hub import cached_folder
from dtpt.clip.loading.names import parse_name
from dtpt.data import DatasetSummary, expand_names, list_datasets
from dtpt.data.named_sets import catalog_entry
from dtpt.data.paths import data_root as resolve_root
from dtpt.data.places import expected_places
from dtpt.errors import ReportError, UnknownName

Kind = Literal["eval", "analysis", "drawing"]


@dataclass(frozen=True)
class PlannedRun:
    """One run that a target needs.

    Attributes:
        model: Name of the model.
        datasets: Names of the data sets.
        methods: Names of the methods, `@λ` where the target asks for it.
        seeds: Of the views.
        views: Per picture.
        template: Prompt with {}.
        needs_context: Whether it starts from a trained context that the user must give.
    """

    model: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    views: int
    template: str
    needs_context: bool

    @property
    def name(self) -> str:
        """A folder name for it."""
        prompt = "-coop" if self.needs_context else ""
        prompt += "-picture" if "picture" in self.template else ""
        return self.model.replace("/", "-") + prompt


@dataclass(frozen=True)
class Target:
    """One table or figure of the paper."""

    name: str
    title: str
    kind: Kind
    note: str
    runs: tuple[PlannedRun, ...]


@dataclass(frozen=True)
class MissingInputs:
    """What a target needs and this machine has not.

    Attributes:
        models: Names of models whose weights are not in the cache.
        datasets: Data sets that are not under the data root, with where they are expected.
    """

    models: tuple[str, ...]
    datasets: tuple[tuple[DatasetSummary, tuple[str, ...]], ...]

    def __bool__(self) -> bool:
        """Whether anything is missing."""
        return bool(self.models or self.datasets)


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    text = (files("dtpt.report.paper") / "reproduction.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def target_names() -> tuple[str, ...]:
    """Return the names of all targets, `table1` to `fig7`."""
    return tuple(_content()["targets"])


def find_target(name: str) -> Target:
    """Return one target.

    Raises:
        UnknownName: The paper has no such table or figure.
    """
    targets = _content()["targets"]
    if name not in targets:
        raise UnknownName("table or figure", name, targets, f"Known: {', '.join(targets)}.")
    entry = targets[name]
    runs = tuple(_planned(run) for run in entry["runs"])
    return Target(name, entry["title"], entry["kind"], entry.get("note", ""), runs)


def _planned(run: dict[str, Any]) -> PlannedRun:
    merged = {**_content()["defaults"], **run}
    return PlannedRun(
        model=merged["model"],
        datasets=tuple(expand_names(merged["dataset"])),
        methods=tuple(merged["method"]),
        seeds=tuple(merged["seed"]),
        views=merged["views"],
        template=merged["template"],
        needs_context=merged.get("context", False),
    )


def narrowed(target: Target, *, model: str | None = None, datasets: Sequence[str] = ()) -> Target:
    """Keep the part of a target that belongs to one model and to some data sets.

    Args:
        target: The whole.
        model: Its name; None for all.
        datasets: Names, of groups too; empty for all.

    Raises:
        ReportError: Nothing of the target is left.
    """
    wanted = set(expand_names(datasets)) if datasets else set()
    runs = []
    for run in target.runs:
        kept = tuple(name for name in run.datasets if not wanted or name in wanted)
        if kept and model in (None, run.model):
            runs.append(replace(run, datasets=kept))
    if target.runs and not runs:
        models = ", ".join(dict.fromkeys(run.model for run in target.runs))
        sets = ", ".join(dict.fromkeys(name for run in target.runs for name in run.datasets))
        raise ReportError(
            f"Nothing of {target.name} is left: it has the models {models} and the data sets "
            f"{sets}."
        )
    return replace(target, runs=tuple(runs))


def find_missing(target: Target, data_root: Path | None) -> MissingInputs:
    """Compare what a target needs with what is on this machine; asks no network."""
    root = resolve_root(data_root)
    known = {summary.name: summary for summary in list_datasets(data_root)}
    wanted = dict.fromkeys(name for run in target.runs for name in run.datasets)
    base = root if root is not None else Path("DATA_ROOT")
    absent = tuple(
        (known[name], tuple(expected_places(catalog_entry(name), base)))
        for name in wanted
        if not known[name].found
    )
    models = dict.fromkeys(run.model for run in target.runs)
    return MissingInputs(tuple(name for name in models if not _is_here(name)), absent)


def _is_here(model: str) -> bool:
    name = parse_name(model)
    return name.kind not in ("catalog", "hub") or cached_folder(name) is not None
