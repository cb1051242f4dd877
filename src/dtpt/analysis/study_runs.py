"""The runs behind a study: evaluated under one folder, resumable as every run, pooled by family.

A study that asks what a setting does is a few runs that differ in this setting. They are stored as
`dtpt eval` stores them, so that an interrupted study goes on where it was, and image features come
from the cache.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtpt.data.catalog import family_title
from dtpt.errors import RunError
from dtpt.methods import parse_label
from dtpt.metrics import PooledPredictions, Predictions, pool
from dtpt.options import EvalOptions
from dtpt.runs import run_options
from dtpt.runs.rows import Columns
from dtpt.runs.spec import Cell, RunSpec

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset
    from dtpt.runs import Run
    from dtpt.runs.evaluation import Task

COLUMNS = ("sample", "correct", "confidence", "p_label", "sum_squares")


@dataclass(frozen=True)
class Part:
    """One run of a study.

    Attributes:
        name: of its folder.
        methods: as typed.
        views: of each picture.
        kept: share of the views that is tuned on.
    """

    name: str
    methods: tuple[str, ...]
    views: int
    kept: float


@dataclass(frozen=True)
class Key:
    """One method in one part of a study: `Key("views-64", "d-tpt@100000")`."""

    part: str
    label: str


@dataclass(frozen=True)
class FamilyAnswers:
    """All methods' answers on the data sets of one family.

    Attributes:
        title: of the family.
        answers: by part and method, on the same pictures.
    """

    title: str
    answers: dict[Key, PooledPredictions]

    @property
    def sets(self) -> tuple[tuple[str, int], ...]:
        """Names of the data sets with their number of pictures."""
        return next(iter(self.answers.values())).sets


@dataclass(frozen=True)
class StudyOrigin:
    """Where the numbers of a study come from.

    Attributes:
        code_version: of dtpt.
        model: name of the model.
        fingerprint: of the model.
        seeds: of the views.
        template: the prompt.
        remarks: what readers of the numbers should know, and every λ that was found.
    """

    code_version: str
    model: str
    fingerprint: str
    seeds: tuple[int, ...]
    template: str
    remarks: tuple[str, ...]


def run_parts(
    options: EvalOptions,
    parts: Sequence[Part],
    *,
    model: "Clip | None" = None,
    datasets: "Sequence[Dataset] | None" = None,
) -> tuple[StudyOrigin, list[FamilyAnswers]]:
    """Evaluate all parts, or what is missing of them, and pool their answers by family.

    Args:
        options: what all parts share; each gets a folder inside `output`.
        parts: the one with the most views should come first: its features serve the others.
        model: used instead of loading `options.model`.
        datasets: used instead of loading `options.dataset`.
    """
    with ExitStack() as stack:
        runs = {}
        for part in parts:
            chosen = part_options(options, part)
            run = run_options(chosen, model=model, datasets=datasets)
            runs[part.name] = stack.enter_context(run)
        stored = list(runs.values())
        remarks = (text for run in stored for text in run.remarks())
        return origin_of(stored[0].spec, remarks), pool_by_family(runs)


def part_options(options: EvalOptions, part: Part) -> EvalOptions:
    """Return the options of one run of a study; rows keep no more than the metrics need."""
    changes = {
        "method": part.methods,
        "lambda_": (),
        "views": part.views,
        "rho": part.kept,
        "output": options.output / part.name,
        "keep": "top5",
        "shard": "1/1",
    }
    shared = {name: getattr(options, name) for name in EvalOptions.model_fields}
    return EvalOptions(**{**shared, **changes})


def check_weights(tasks: "Sequence[Task]") -> None:
    """Refuse methods whose λ is found by a run only, where a study makes none.

    Raises:
        RunError: the message names the first of them.
    """
    for method in (method for task in tasks for method in task.methods):
        if method.needs_lambda_search:
            plain = parse_label(method.name).name
            raise RunError(
                f"{method.name}: this study looks for no lambda. Give it ({plain}@LAMBDA); "
                "`dtpt eval` finds and prints one."
            )


def origin_of(spec: RunSpec, remarks: Iterable[str]) -> StudyOrigin:
    """Say where the numbers of a study come from; every remark once."""
    return StudyOrigin(
        code_version=spec.code_version,
        model=spec.model.name,
        fingerprint=spec.model.fingerprint,
        seeds=spec.seeds,
        template=spec.template,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def pool_by_family(runs: "Mapping[str, Run]") -> list[FamilyAnswers]:
    """Put the answers of some runs together, family by family, on the pictures that all could read.

    Args:
        runs: by name of the part, all on the same data sets.
    """
    tables = {}
    for part, run in runs.items():
        found = run.columns(*COLUMNS)
        tables.update({(part, cell): found[cell] for cell in run.cells if cell in found})
    families: dict[str, dict[str, None]] = {}
    for run in runs.values():
        for entry in run.spec.datasets:
            families.setdefault(entry.family, {})[entry.name] = None
    shared = {name: _shared_samples(tables, name) for names in families.values() for name in names}
    return [
        FamilyAnswers(family_title(family), _pool_family(tables, names, shared=shared))
        for family, names in families.items()
    ]


def _shared_samples(tables: Mapping[tuple[str, Cell], Columns], dataset: str) -> set[str]:
    """Return the pictures of a data set that have a row everywhere."""
    found = [set(table["sample"]) for (_, cell), table in tables.items() if cell.dataset == dataset]
    common = set.intersection(*found) if found else set()
    if not common:
        raise RunError(f"{dataset}: no picture could be read, so nothing was studied.")
    return common


def _pool_family(
    tables: Mapping[tuple[str, Cell], Columns],
    names: Mapping[str, None],
    *,
    shared: Mapping[str, set[str]],
) -> dict[Key, PooledPredictions]:
    """Return the answers of every part and method on some data sets."""
    found: dict[Key, dict[str, list[Predictions]]] = {}
    for (part, cell), table in tables.items():
        if cell.dataset in names:
            sets = found.setdefault(Key(part, cell.label), {name: [] for name in names})
            sets[cell.dataset].append(_predictions(table, shared[cell.dataset]))
    return {key: pool(sets) for key, sets in found.items()}


def _predictions(table: Columns, shared: set[str]) -> Predictions:
    kept = table[[name in shared for name in table["sample"]]]
    return Predictions.from_confidence(
        kept["confidence"],
        kept["correct"],
        p_label=kept["p_label"],
        sum_squares=kept["sum_squares"],
        samples=kept["sample"],
    )
