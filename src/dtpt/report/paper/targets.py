"""What each table and figure of the paper needs, what of it is here, and what is missing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from dtpt.clip.loading.hub import cached_folder
from dtpt.clip.loading.names import aliases, parse_name
from dtpt.data import DatasetSummary, expand_names, list_datasets
from dtpt.data.catalog import catalog_entry
from dtpt.data.layouts import expected_paths, resolve_root
from dtpt.errors import ReportError, UnknownName
from dtpt.methods import parse_label

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
        context: Whether a trained context is needed for some rows and was not given; the other
            rows can be had without it.
    """

    models: tuple[str, ...]
    datasets: tuple[tuple[DatasetSummary, tuple[str, ...]], ...]
    context: bool = False

    def __bool__(self) -> bool:
        """Whether weights or data are missing."""
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


def narrowed(
    target: Target,
    *,
    model: str | None = None,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> Target:
    """Keep the part of a target that belongs to a model, to some data sets and to some methods.

    Args:
        target: The whole.
        model: Its name; None for all.
        datasets: Names, of groups too; empty for all.
        methods: Names; one without a weight stands for all weights that the target has of it. One
            that the target has not is run all the same. Empty for all.

    Raises:
        ReportError: Nothing of the target is left.
    """
    wanted = set(expand_names(datasets)) if datasets else set()
    known = aliases().get(model, model) if model is not None else None
    runs = []
    for run in target.runs:
        kept = tuple(name for name in run.datasets if not wanted or name in wanted)
        if kept and known in (None, run.model):
            chosen = _chosen_methods(run.methods, methods) if methods else run.methods
            runs.append(replace(run, datasets=kept, methods=chosen))
    if target.runs and not runs:
        models = ", ".join(dict.fromkeys(run.model for run in target.runs))
        sets = ", ".join(dict.fromkeys(name for run in target.runs for name in run.datasets))
        raise ReportError(
            f"Nothing of {target.name} is left: it has the models {models} and the data sets "
            f"{sets}."
        )
    return replace(target, runs=tuple(runs))


def _chosen_methods(planned: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Return planned methods that are wanted, with their weights, and wanted ones not planned.

    Example:
        >>> _chosen_methods(("tpt", "c-tpt@50", "c-tpt@20"), ("c-tpt", "zero"))
        ('c-tpt@50', 'c-tpt@20', 'zero')
    """
    found: list[str] = []
    for name in wanted:
        found += [own for own in planned if name in (own, parse_label(own).name)] or [name]
    return tuple(dict.fromkeys(found))


def available(target: Target, missing: MissingInputs) -> Target:
    """Keep the part of a target whose model, data sets and context are here."""
    absent = {summary.name for summary, _ in missing.datasets}
    runs = []
    for run in target.runs:
        kept = tuple(name for name in run.datasets if name not in absent)
        has_context = not (run.needs_context and missing.context)
        if kept and has_context and run.model not in missing.models:
            runs.append(replace(run, datasets=kept))
    return replace(target, runs=tuple(runs))


def find_missing(
    target: Target, data_root: Path | None, *, context: Path | None = None
) -> MissingInputs:
    """Compare what a target needs with what is on this machine; asks no network.

    Args:
        target: What is wanted.
        data_root: Folder that holds the data sets.
        context: File of a trained context, if there is one.
    """
    root = resolve_root(data_root)
    known = {summary.name: summary for summary in list_datasets(data_root)}
    wanted = dict.fromkeys(name for run in target.runs for name in run.datasets)
    base = root if root is not None else Path("DATA_ROOT")
    absent = tuple(
        (known[name], tuple(expected_paths(catalog_entry(name), base)))
        for name in wanted
        if not known[name].found
    )
    models = dict.fromkeys(run.model for run in target.runs)
    return MissingInputs(
        models=tuple(name for name in models if not _is_here(name)),
        datasets=absent,
        context=context is None and any(run.needs_context for run in target.runs),
    )


def _is_here(model: str) -> bool:
    name = parse_name(model)
    return name.kind not in ("catalog", "hub") or cached_folder(name) is not None
