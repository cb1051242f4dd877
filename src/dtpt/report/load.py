"""From stored runs to cells with metrics, or an error: never a mean over things that do not match.

Every store is scanned once. Runs of different models, templates, contexts, tuning settings or
precision are separate *conditions* with tables of their own. Shards and copies of one run are
joined here, under one policy: equal rows count once, contradicting rows are an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dtpt.clip.ensembles import prompt_label
from dtpt.commands import eval_command, method_words
from dtpt.data.catalog import NAMED_SETS, catalog_entry
from dtpt.errors import ReportError, RunError
from dtpt.files import canonical_json
from dtpt.methods import method_label, method_title, parse_label
from dtpt.metrics import METRICS, Conventions, Predictions
from dtpt.runs.merging import merge_columns, pair_samples
from dtpt.runs.reading import Run, open_file, session_notes
from dtpt.runs.results import predictions_of
from dtpt.runs.rows import Columns, column_types
from dtpt.runs.shards import MAIN_STORE, store_files
from dtpt.runs.spec import Cell, DatasetSpec, Repeat
from dtpt.tuning.settings import TuningSettings

COLUMNS = (
    *("sample", "cluster", "label", "prediction", "correct", "confidence", "p_label"),
    *("sum_squares", "zero_shot_prediction", "zero_shot_confidence", "position"),
)
DERIVED = {
    "temperature": " + temperature (leave-one-dataset-out)",
    "chosen": " (λ leave-one-dataset-out)",
    "fraction": " (fraction leave-one-dataset-out)",
}
"""Rows that are computed from stored ones, and what follows the method in their titles."""
MOST_UNFINISHED = 20  # cells that the notes name
MOST_NAMED = 3  # incomplete data sets by their names

LogProbabilities = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Variant:
    """One row of a table: a method with its λ, or what was derived from it.

    Example:
        >>> Variant("d-tpt", 1e5).label, Variant("tpt", derived="temperature").label
        ('d-tpt@1e5', 'tpt+temperature')
    """

    method: str  # modifiers included
    lambda_: Annotated[float | None, Field(alias="lambda")] = None
    derived: str = ""  # a key of `DERIVED`; empty for stored rows

    @property
    def label(self) -> str:
        """Method and λ as typed: `d-tpt@1e5`."""
        label = method_label(self.method, self.lambda_)
        return f"{label}+{self.derived}" if self.derived else label

    @property
    def title(self) -> str:
        """Method and λ as the paper writes them."""
        return method_title(self.method, self.lambda_) + DERIVED.get(self.derived, "")

    @property
    def is_mean_of_views(self) -> bool:
        """Whether this is the untuned model, read from a fraction of the views."""
        parsed = parse_label(self.method)
        return parsed.without_views().name == (
            "mean-views" if parsed.views is None else "zero-shot"
        )

    @property
    def look(self) -> tuple[str, float | None]:
        return (self.label if self.derived else self.method), self.lambda_


Key = tuple[str, Variant, Repeat]
"""Data set, variant and repeat of a cell.

Where methods carry state, the repeats are all pairs of a seed and an order; the rows of the other
methods are the same under each order.
"""


@dataclass(frozen=True, eq=False)
class CellRows:
    """The successful rows of one cell, by sample id."""

    expected: int  # images that should have a row
    failed: int  # images that could not be read
    records: Columns = field(repr=False)  # structured array with `COLUMNS`
    order: int | None = None  # of the images, where the method carries state

    @property
    def effective(self) -> int:
        """Images that enter the metrics."""
        return len(self.records)

    @property
    def is_finished(self) -> bool:
        """Whether every image was tried and at least one succeeded."""
        return self.effective > 0 and self.effective + self.failed >= self.expected

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.ascontiguousarray(self.records[name])  # (n,)

    @cached_property
    def predictions(self) -> Predictions:
        return predictions_of(self.records, order=self.order)

    def metric(self, key: str) -> float:
        predictions, metric = self.predictions, METRICS[key]
        return predictions.once(("metric", key), lambda: metric.value(predictions, Conventions()))


@dataclass(frozen=True)
class LeaveOneOut:
    """What was chosen for each data set on the other sets of its family."""

    temperatures: Mapping[str, float] = field(default_factory=dict)  # of TPT, by data set
    variants: Mapping[str, Mapping[str, Variant]] = field(default_factory=dict)
    """The stored variant whose rows are shown, by data set and label of the derived one."""


class Source:
    """One store that was read; it stays open for the log-probabilities."""

    def __init__(self, run: Run) -> None:
        self.run, self.spec = run, run.spec
        self.sessions, self.failures, self.notes = run.sessions(), run.failures(), run.notes()
        self.classes = {name: run.classes(name) for name in run.datasets}
        self.columns, self.counts = run.columns(*COLUMNS), run.counts()

    @property
    def folder(self) -> Path:
        """The run's folder, as given to commands."""
        path = self.run.path
        return path.parent if path.name == MAIN_STORE else path

    @property
    def command(self) -> str:
        """The `dtpt eval` that makes (or resumes) the run."""
        spec = self.spec
        seeds = tuple(map(Repeat, spec.seeds))
        return _command([self], spec.datasets, method_words(spec), seeds, output=self.folder)


def _command(
    sources: Sequence[Source],
    datasets: Sequence[DatasetSpec],
    methods: Sequence[str],
    repeats: Sequence[Repeat],
    *,
    output: Path | None = None,
) -> str:
    return eval_command(
        sources[0].spec,
        datasets=datasets,
        methods=methods,
        seeds=list(dict.fromkeys(repeat.seed for repeat in repeats)),
        sessions=[session for source in sources for session in source.sessions],
        failures={(f.dataset, f.sample) for source in sources for f in source.failures},
        output=output,
    )


@dataclass(frozen=True)
class Condition:
    """All cells that share model, prompt, tuning and precision: those of one table."""

    model: str
    fingerprint: str
    template: str
    context: str | None  # sha256 of a trained context
    tuning: Mapping[str, Any]
    datasets: Mapping[str, DatasetSpec]  # by name, in order of appearance
    seeds: tuple[Repeat, ...]  # under which everything is finished; all, where there is none
    cells: Mapping[Key, CellRows]  # those that some run planned
    lacking: tuple[Key, ...] = ()  # what every seed should have: unfinished, or in no run
    sources: tuple[Source, ...] = ()
    precision: str = "float32"
    order: str = ""  # of the images, where methods carry state
    fitted: LeaveOneOut = field(default_factory=LeaveOneOut)

    @property
    def title(self) -> str:
        context = " with trained context" if self.context else ""
        return ", ".join((self.model, f"“{prompt_label(self.template)}”{context}", *self.unusual))

    @property
    def unusual(self) -> tuple[str, ...]:
        """The settings that are not the default: `steps 2`, `float16`."""
        changed = [
            f"{name.replace('_', ' ')} {self.tuning[name]}"
            for name, setting in TuningSettings.model_fields.items()
            if name in self.tuning and self.tuning[name] != setting.default
        ]
        order = [f"order {self.order}"] if self.order else []
        return (*changed, *([] if self.precision == "float32" else [self.precision]), *order)

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entry.family for entry in self.datasets.values()))

    def sets_of(self, family: str) -> tuple[str, ...]:
        return tuple(n for n, entry in self.datasets.items() if entry.family == family)

    def variants(self, datasets: Iterable[str] = ()) -> tuple[Variant, ...]:
        """Return the variants of any of some data sets (of all), in order of appearance."""
        names = set(datasets or self.datasets)
        return tuple(dict.fromkeys(variant for name, variant, _ in self.cells if name in names))

    def stored_variants(self, datasets: Iterable[str] = ()) -> tuple[Variant, ...]:
        return tuple(variant for variant in self.variants(datasets) if not variant.derived)

    def finished(self, dataset: str, variant: Variant) -> tuple[CellRows, ...]:
        """Return the cells under every seed if all of them are finished, else nothing."""
        cells = [self.cells.get((dataset, variant, seed)) for seed in self.seeds]
        finished = tuple(cell for cell in cells if cell and cell.is_finished)
        return finished if len(finished) == len(cells) else ()

    def size_text(self, datasets: Iterable[str], *, answered: int | None = None) -> str:
        """Return the number of images behind a number: `120 of 1,692 images of 20 drawings`."""
        names = tuple(datasets)
        entries = [self.datasets[name] for name in names]
        count = sum(entry.samples for entry in entries) if answered is None else answered
        whole = sum(max(entry.samples, entry.whole or 0) for entry in entries)
        text = f"{count:,} images" if count == whole else f"{count:,} of {whole:,} images"
        clusters = sum(
            self._clusters.get(name, entry.samples)
            for name, entry in zip(names, entries, strict=True)
        )
        nouns = {entry.cluster_noun for entry in entries}
        noun = nouns.pop() if len(nouns) == 1 else "clusters"
        return f"{text} of {clusters:,} {noun}" if clusters < count else text

    @cached_property
    def _clusters(self) -> dict[str, int]:
        """The number of clusters of each data set with rows."""
        found: dict[str, int] = {}
        for (name, _, _), cell in self.cells.items():
            if name not in found and cell.effective:
                found[name] = len(np.unique(cell.records["cluster"].astype(str)))
        return found

    def row_command(self, datasets: Iterable[str], variant: Variant) -> str:
        """Return the `dtpt eval` that computes one row of a table by itself."""
        entries = [self.datasets[name] for name in datasets]
        return _command(self.sources, entries, [variant.label], self.seeds)

    def log_probabilities(self, key: Key) -> LogProbabilities | None:
        """Read (n, C) log-probabilities in the order of a cell's rows; None where not stored."""
        dataset, variant, repeat = key
        seeds = dict.fromkeys((repeat, Repeat(repeat.seed)))
        method = dataset, variant.method, variant.lambda_
        cells = [Cell(*method, r.seed, template=self.template, order=r.order) for r in seeds]
        try:
            parts = [
                s.run.probabilities(cell)
                for s in self.sources
                for cell in cells
                if cell in s.run.cells
            ]
        except RunError:  # stored without all probabilities
            return None
        if not parts:
            return None
        ids, numbers = parts[0]
        if len(parts) > 1:  # their rows agree: see `_cell_rows`
            ids, first = np.unique(np.concatenate([part[0] for part in parts]), return_index=True)
            numbers = np.concatenate([part[1] for part in parts])[first]
        return numbers if np.array_equal(ids, self.cells[key].records["sample"]) else None


@dataclass(frozen=True)
class Loaded:
    """Everything a report is made of; the stores stay open until it is closed."""

    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...]  # what readers must know: missing rows, failed images, other versions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self.sources:
            source.run.close()


def load_runs(paths: Sequence[Path | str]) -> Loaded:
    """Read run folders, shards or SQLite files; after an error no store stays open.

    Raises:
        ReportError: nothing to report, or runs that cannot be combined.
        RunError: there is no run, it is damaged, or runs contradict each other.
    """
    if not paths:
        raise ReportError("No run given: name at least one folder made by `dtpt eval`.")
    files = list(dict.fromkeys(f.resolve() for path in paths for f in store_files(path)))
    with ExitStack() as stack:
        loaded = _combine([Source(stack.enter_context(open_file(file))) for file in files])
        stack.pop_all()
    return loaded


def _combine(sources: Sequence[Source]) -> Loaded:
    _check_datasets(sources, ("fingerprint",))
    grouped: dict[tuple[str, ...], list[Source]] = {}
    for source in sources:
        spec = source.spec
        order = spec.order.kind if spec.order else ""
        key = (spec.model.fingerprint, spec.template, str(spec.context), spec.precision, order)
        grouped.setdefault((*key, canonical_json(spec.tuning)), []).append(source)
    clusters = pair_samples([source.run for source in sources])
    conditions = tuple(_condition(tuple(group), clusters) for group in grouped.values())
    if not any(cell.effective for condition in conditions for cell in condition.cells.values()):
        where = ", ".join(str(source.run.path) for source in sources)
        raise ReportError(f"No image has been evaluated yet in {where}: finish `dtpt eval`.")
    return Loaded(tuple(sources), conditions, tuple(_notes(sources, conditions)))


def _check_datasets(sources: Sequence[Source], names: Sequence[str]) -> dict[str, DatasetSpec]:
    """Return the data sets by name; raise where sources differ in one of some properties."""
    firsts: dict[str, tuple[Source, DatasetSpec]] = {}
    for source in sources:
        for entry in source.spec.datasets:
            other, first = firsts.setdefault(entry.name, (source, entry))
            for name in names:
                if getattr(entry, name) != getattr(first, name):
                    what = f"{name} ({getattr(first, name)} and {getattr(entry, name)})"
                    if name == "fingerprint":
                        same = other.classes.get(entry.name) == source.classes.get(entry.name)
                        what = "images or labels" if same else "class lists"
                    raise ReportError(
                        f"{other.run.path} and {source.run.path} have different {what} of "
                        f"{entry.name!r}: pass them to separate reports."
                    )
    return {name: entry for name, (_, entry) in firsts.items()}


def _condition(sources: tuple[Source, ...], clusters: Mapping[str, Mapping[str, str]]) -> Condition:
    first = sources[0].spec
    parts: dict[Cell, list[Source]] = {}
    for source in sources:
        for cell in source.run.cells:
            parts.setdefault(cell, []).append(source)
    orders = sorted({cell.order for cell in parts if cell.order is not None})
    cells = {}
    for cell, group in parts.items():
        rows = _cell_rows(cell, group, clusters=clusters[cell.dataset])
        for order in orders if cell.order is None and orders else (cell.order,):
            variant = Variant(cell.method, cell.lambda_)
            cells[cell.dataset, variant, Repeat(cell.seed, order)] = rows
    seeds = sorted({seed for _, _, seed in cells})
    lacking = _lacking(cells, seeds)
    complete = [seed for seed in seeds if all(seed != other for _, _, other in lacking)]
    return Condition(
        model=first.model.name,
        fingerprint=first.model.fingerprint,
        template=first.template,
        context=first.context,
        tuning=first.tuning,
        datasets=_check_datasets(sources, ("samples", "presentation", "views")),
        seeds=tuple(complete or seeds),
        cells=cells,
        lacking=lacking,
        sources=sources,
        precision=first.precision,
        order=first.order.kind if first.order else "",
    )


def _lacking(cells: Mapping[Key, CellRows], seeds: Sequence[Repeat]) -> tuple[Key, ...]:
    pairs = dict.fromkeys((name, variant) for name, variant, _ in cells)
    keys = ((*pair, seed) for pair in pairs for seed in seeds)
    return tuple(key for key in keys if key not in cells or not cells[key].is_finished)


def _cell_rows(cell: Cell, sources: Sequence[Source], *, clusters: Mapping[str, str]) -> CellRows:
    expected = sources[-1].spec.dataset(cell.dataset).samples
    tables = [(source.run, source.columns[cell]) for source in sources if cell in source.columns]
    records = np.empty(0, column_types(COLUMNS))
    if tables:
        records = merge_columns(cell, tables, clusters=clusters)
    # an image that failed in one store may have succeeded in another
    failed = min(sum(s.counts[cell][1] for s in sources), max(expected - len(records), 0))
    return CellRows(expected, failed, records, cell.order)


def _notes(sources: Sequence[Source], conditions: Sequence[Condition]) -> Iterator[str]:
    unfinished = [_missing_cell(c, key) for c in conditions for key in c.lacking]
    yield from unfinished[:MOST_UNFINISHED]
    if len(unfinished) > MOST_UNFINISHED:
        yield f"{len(unfinished) - MOST_UNFINISHED} further cells are unfinished and in no mean."
    for condition in conditions:
        left_out = {seed for _, _, seed in condition.lacking}.difference(condition.seeds)
        if left_out:
            used, unused = (_seeds(seeds) for seeds in (condition.seeds, sorted(left_out)))
            yield (
                f"{condition.model}: all results are of {used}, under which every method is "
                f"finished on every data set; {unused} is left out."
            )
    failed: dict[str, dict[str, str]] = {}  # reasons by data set and sample
    for failure in (failure for source in sources for failure in source.failures):
        failed.setdefault(failure.dataset, {})[failure.sample] = failure.reason
    for name, reasons in failed.items():
        sample, reason = min(reasons.items())
        count = f"{len(reasons)} images could not be read and are in no metric"
        yield f"{name}: {count}, first {sample} ({reason})."
    yield from filter(None, map(_partial, conditions))
    of_one = {text for source in sources for text in session_notes(source.sessions)}
    notes = [(n, text) for source in sources for n, few in source.notes.items() for text in few]
    for name, text in dict.fromkeys(notes):
        if text not in of_one:  # that of all stores together follows
            yield f"{name}: {text}" if name else text
    yield from session_notes([session for source in sources for session in source.sessions])
    versions = dict.fromkeys(source.spec.code_version for source in sources)
    if len(versions) > 1:
        yield f"The runs were computed by different versions of dtpt: {', '.join(versions)}."
    models = [(condition.model, condition.fingerprint[:12]) for condition in conditions]
    yield from _ambiguities("models", models)
    sets = [(set_title(name), name) for condition in conditions for name in condition.datasets]
    yield from _ambiguities("data sets", sets)


def _partial(condition: Condition) -> str:
    partial = [name for name, entry in condition.datasets.items() if entry.is_partial]
    few = len(partial) <= MOST_NAMED
    names = ", ".join(map(set_title, partial)) if few else f"{len(partial)} data sets"
    return f"{names}: only {condition.size_text(partial)} were evaluated." if partial else ""


def _missing_cell(condition: Condition, key: Key) -> str:
    name, variant, seed = key
    cell = condition.cells.get(key)
    state = "it was not run"
    if cell is not None:
        state = f"{cell.effective:,} of {cell.expected:,} images are evaluated; it enters no mean"
    return f"{condition.model}, {name}, {variant.label}, seed {seed}: {state}."


def _seeds(seeds: Sequence[Repeat]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _ambiguities(kind: str, titles: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Name models or data sets that share a title."""
    named: dict[str, dict[str, None]] = {}
    for title, name in titles:
        named.setdefault(title, {})[name] = None
    for title, names in named.items():
        if len(names) > 1:
            yield f"{title!r} is the title of {len(names)} {kind}: {', '.join(names)}."


def set_title(name: str) -> str:
    """Return a short title of a data set.

    Example:
        >>> set_title("oxford_pets"), set_title("openmoji-line/food"), set_title("folder:/data/my")
        ('OxfordPets', 'food (line)', 'my')
    """
    if name in NAMED_SETS:
        return catalog_entry(name).title
    style, slash, group = name.partition("/")
    if style in ("openmoji", "openmoji-line"):
        kind = "line" if style.endswith("-line") else "colour"
        return f"{group} ({kind})" if slash else f"OpenMoji ({kind})"
    scheme, colon, rest = name.partition(":")
    if colon and scheme in ("folder", "manifest", "wds", "hf"):
        return rest.rstrip("/").rsplit("/", 1)[-1] or rest
    return name
