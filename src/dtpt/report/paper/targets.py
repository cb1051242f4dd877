"""What each table and figure of the paper needs, what of it is here, and what is missing."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
from dtpt.files import printable
from dtpt.methods import parse_label

Kind = Literal["eval", "analysis", "drawing"]


@dataclass(frozen=True)
class PlannedRun:
    model: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]  # `@λ` where the target needs it
    seeds: tuple[int, ...]
    views: int
    template: str
    needs_context: bool  # starts from a trained context that the user must give

    @property
    def name(self) -> str:
        prompt = "-coop" if self.needs_context else ""
        prompt += "-picture" if "picture" in self.template else ""
        return self.model.replace("/", "-") + prompt


@dataclass(frozen=True)
class Target:
    name: str
    title: str
    kind: Kind
    note: str
    runs: tuple[PlannedRun, ...]


@dataclass(frozen=True)
class MissingInputs:
    """What a target needs and this machine does not have."""

    models: tuple[str, ...]  # without weights in the cache
    datasets: tuple[tuple[DatasetSummary, tuple[str, ...]], ...]  # with where they are expected
    root: Path  # where data sets are looked for
    context: bool = False  # needed for some rows only

    def __bool__(self) -> bool:
        """Whether weights or data are missing."""
        return bool(self.models or self.datasets)

    @property
    def lines(self) -> list[str]:
        return [
            *(f"Missing weights: {m}. Fetch them with: dtpt models fetch {m}" for m in self.models),
            *([f"Fetch data with: {self._fetch}"] if self.datasets else []),
            *(
                f"Missing data: {summary.name} ({summary.title}, {summary.images:,} images, "
                f"{summary.classes:,} classes); expected at {' or '.join(paths)}"
                for summary, paths in self.datasets
            ),
            *(["Missing context: the CoOp rows need --context FILE."] if self.context else []),
        ]

    @property
    def _fetch(self) -> str:
        names = ",".join(summary.name for summary, _ in self.datasets)
        root = printable(self.root)
        return shlex.join(["dtpt", "datasets", "fetch", names, "--data-root", root])

    def document(self) -> dict[str, Any]:
        sets = [{**asdict(summary), "expected_at": paths} for summary, paths in self.datasets]
        return {"models": self.models, "datasets": sets, "context": self.context}


@lru_cache(maxsize=1)
def _content() -> dict[str, Any]:
    text = (files("dtpt.report.paper") / "reproduction.json").read_text("utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def target_names() -> tuple[str, ...]:
    """Return the names of all targets, `table1` to `fig7`."""
    return tuple(_content()["targets"])


def find_target(name: str) -> Target:
    """Return one target; raise `UnknownName` if the paper has no such table or figure."""
    targets, defaults = _content()["targets"], _content()["defaults"]
    if name not in targets:
        raise UnknownName("table or figure", name, targets, f"Known: {', '.join(targets)}.")
    entry = targets[name]
    runs = tuple(
        PlannedRun(
            model=run["model"],
            datasets=tuple(expand_names(run["dataset"])),
            methods=tuple(run["method"]),
            seeds=tuple(run["seed"]),
            views=run["views"],
            template=run["template"],
            needs_context=run.get("context", False),
        )
        for run in ({**defaults, **run} for run in entry["runs"])
    )
    return Target(name, entry["title"], entry["kind"], entry.get("note", ""), runs)


def with_model(target: Target, model: str | None) -> Target:
    """Add the runs of a target for a model that the paper does not have, as for its first model."""
    wanted = aliases().get(model, model) if model is not None else None
    models = [run.model for run in target.runs]
    if wanted is None or wanted in models:
        return target
    own = [replace(run, model=wanted) for run in target.runs if run.model == models[0]]
    return replace(target, runs=(*target.runs, *own))


def narrowed(
    target: Target,
    *,
    model: str | None = None,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> Target:
    """Keep the part of a target that belongs to a model, to some data sets and to some methods.

    Empty means all. A method without λ means all λ that the target has of it; one that the target
    does not have is run all the same.
    """
    sets = set(expand_names(datasets)) if datasets else set()
    wanted = aliases().get(model, model) if model is not None else None
    runs = []
    for run in target.runs:
        kept = tuple(name for name in run.datasets if not sets or name in sets)
        if kept and wanted in (None, run.model):
            chosen: list[str] = []
            for name in methods or run.methods:
                planned = [own for own in run.methods if name in (own, parse_label(own).name)]
                chosen += planned or [name]
            runs.append(replace(run, datasets=kept, methods=tuple(dict.fromkeys(chosen))))
    if target.runs and not runs:
        models = ", ".join(dict.fromkeys(run.model for run in target.runs))
        names = ", ".join(dict.fromkeys(name for run in target.runs for name in run.datasets))
        raise ReportError(
            f"Nothing of {target.name} is left: it has the models {models} and the data sets "
            f"{names}. For others use `dtpt eval --model MODEL --dataset NAME` and `dtpt report`."
        )
    return replace(target, runs=tuple(runs))


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
    """Compare what a target needs with what is on this machine, without any network."""
    root = resolve_root(data_root) or Path("DATA_ROOT")
    summaries = {summary.name: summary for summary in list_datasets(data_root)}
    models = {run.model: parse_name(run.model) for run in target.runs}
    return MissingInputs(
        models=tuple(
            model
            for model, name in models.items()
            if name.kind in ("catalog", "hub") and cached_folder(name) is None
        ),
        datasets=tuple(
            (summaries[name], tuple(expected_paths(catalog_entry(name), root)))
            for name in dict.fromkeys(name for run in target.runs for name in run.datasets)
            if not summaries[name].found
        ),
        root=root,
        context=context is None and any(run.needs_context for run in target.runs),
    )
