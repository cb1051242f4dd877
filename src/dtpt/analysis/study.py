"""What all studies share: runs under one folder, rows pooled by family, comparisons, files, tables.

A study that asks what a setting does is a few runs that differ in this setting. They are stored as
`dtpt eval` stores them, so that an interrupted study resumes, and image features come from the
cache. Its result is one list of rows per family of data sets, and differences between rows.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import numpy as np
from pydantic import Field

from dtpt.data.catalog import family_title
from dtpt.errors import ReportError, RunError, os_error
from dtpt.files import write_atomically
from dtpt.methods import shift_label
from dtpt.metrics import METRICS, Comparison, Estimate, compare_table, pool
from dtpt.metrics.comparison import POWER, estimates
from dtpt.options import EvalOptions, Listed, ModelOptions
from dtpt.tables import Cell, Column, Row, Table, metric_column, number_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from dtpt.clip.model import Clip
    from dtpt.data import Dataset
    from dtpt.metrics import PooledPredictions, Predictions
    from dtpt.runs import Run, RunSpec

FORMAT = 1
MEASURED = ("accuracy", "signed_gap", "squared_ce", "brier", "aurc")  # whose intervals cover
LEGEND = (
    "±: 95 % interval by cluster, of differences corrected for all of one section; *: significant; "
    f"( ): the difference that would be significant with {100 * POWER:g} % probability."
)

Names = Annotated[tuple[str, ...], Listed, Field(min_length=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Fractions = Annotated[tuple[Fraction, ...], Listed, Field(min_length=1)]
Folder = Annotated[
    Path, Field(description="Folder of the study; the same command again resumes there.")
]
Pooled = dict[tuple[str, str], "PooledPredictions"]  # by part and label of the method
Facts = dict[str, Any]


class ShiftOptions(ModelOptions):
    """The option of every study whose methods tune the prompt."""

    method: Names
    shift: Annotated[
        bool,
        Field(
            description="Study the same regularisers on a shift of the text features (tps instead "
            "of tpt); a model without text tower always does."
        ),
    ] = False

    @property
    def plain(self) -> str:
        """The tuned method without a regulariser."""
        return "tps" if self.shift else "tpt"


class StudyOptions(ShiftOptions, EvalOptions):
    """Options of a study on images."""


Options = TypeVar("Options", bound=StudyOptions)
Shifted = TypeVar("Shifted", bound=ShiftOptions)


def with_shift(options: Shifted, model: "Clip | None") -> Shifted:
    """Return options whose methods tune a shift, where that is wanted or all that is possible."""
    is_fixed = options.model.startswith("features:") if model is None else model.text is None
    if not (options.shift or is_fixed):
        return options
    methods = tuple(dict.fromkeys(map(shift_label, options.method)))
    return options.model_copy(update={"shift": True, "method": methods})


@dataclass(frozen=True)
class Origin:
    """Where the numbers of a study come from."""

    code_version: str
    model: str
    fingerprint: str
    seeds: tuple[int, ...]
    template: str
    notes: tuple[str, ...] = ()  # for readers of the numbers; every λ that was selected


@dataclass(frozen=True)
class StudyRow:
    """One variant, measured on the images of one family."""

    name: str  # in comparisons
    group: str  # section of the table
    facts: Facts  # what distinguishes the variant, and what it costs
    estimates: dict[str, Estimate]  # by metric
    reference: str | None  # row from which its differences are shown; None for none


@dataclass(frozen=True)
class StudyFamily:
    """All variants on the images of one family of data sets."""

    family: str
    sets: tuple[tuple[str, int], ...]  # names with their number of images
    clusters: int  # of these images, which are the independent units
    cluster_noun: str  # what a cluster is, in the plural
    rows: tuple[StudyRow, ...]
    comparisons: tuple[Comparison, ...]  # of rows, by their names

    @property
    def size(self) -> str:
        """How many images there are, and of how many clusters where these are fewer."""
        images = sum(images for _, images in self.sets)
        of = f" of {self.clusters:,} {self.cluster_noun}" if self.clusters < images else ""
        return f"{images:,} images{of}"


@dataclass(frozen=True)
class Study:
    """The content of a study's JSON file, all numbers as fractions."""

    name: str
    origin: Origin
    families: tuple[StudyFamily, ...] = ()
    facts: dict[str, list[Facts]] = field(default_factory=dict)  # by kind
    format: int = FORMAT


@dataclass(frozen=True, eq=False)
class Variant:
    """What is measured and compared: a row before its metrics are computed."""

    group: str  # whose differences are corrected together
    facts: Facts
    predictions: "PooledPredictions"
    reference: str | None = None
    further: tuple[str, ...] = ()  # rows that it is compared with beside its reference


@dataclass(frozen=True)
class Part:
    """One run of a study; the one with the most views is first: its features serve the others."""

    name: str  # of its folder
    methods: tuple[str, ...]
    views: int
    rho: float
    order: str = "shuffled"


@dataclass(frozen=True)
class Design(Generic[Options]):
    """A study that is a grid of methods, and how its rows are read and shown."""

    name: str
    parts: Callable[[Options], Sequence[Part]]
    variants: Callable[[Options, Pooled], dict[str, Variant]]
    heads: Mapping[str, str]  # facts that are shown, with their headings; the first names the rows
    legend: str
    facts: "Callable[[Options, Mapping[str, Run]], dict[str, list[Facts]]] | None" = None

    def run(
        self,
        options: Options,
        *,
        model: "Clip | None" = None,
        datasets: "Sequence[Dataset] | None" = None,
    ) -> Study:
        """Evaluate all parts, or what is missing of them, and summarise each family."""
        from dtpt.runs import run_options

        options = with_shift(options, model)
        shared = {name: getattr(options, name) for name in EvalOptions.model_fields}
        shared |= {"lambda_": (), "keep": "top5", "shard": "1/1"}  # as much as the metrics need
        runs: dict[str, Run] = {}
        with ExitStack() as stack:
            for part in self.parts(options):
                differing = {"method": part.methods, "views": part.views, "rho": part.rho}
                differing["order"] = part.order
                chosen = EvalOptions(
                    **{**shared, **differing, "output": options.output / part.name}
                )
                run = run_options(chosen, model=model, datasets=datasets)
                runs[part.name] = stack.enter_context(run)
            notes = [n for run in runs.values() for texts in run.notes().values() for n in texts]
            pooled = pool_by_family(runs)
            facts = {} if self.facts is None else self.facts(options, runs)
        spec = next(iter(runs.values())).spec
        nouns = {entry.family: entry.cluster_noun for entry in spec.datasets}
        families = [
            measure(family_title(family), self.variants(options, of_family), noun=nouns[family])
            for family, of_family in pooled.items()
        ]
        return Study(self.name, origin_of(spec, notes), tuple(families), facts)

    def tables(self, study: Study) -> Iterator[Table | str]:
        """Yield the tables of the study."""
        yield from study_tables(study, self.heads)
        yield f"{self.legend} {LEGEND}"


def origin_of(spec: "RunSpec", notes: Iterable[str]) -> Origin:
    model = (spec.model.name, spec.model.fingerprint)
    unique = tuple(dict.fromkeys(notes))
    return Origin(spec.code_version, *model, spec.seeds, spec.template, notes=unique)


def pool_by_family(runs: "Mapping[str, Run]") -> dict[str, Pooled]:
    """Pool the rows of runs on the same data sets, on the images that all parts could read."""
    from dtpt.runs.results import predictions_of
    from dtpt.runs.rows import ARRAY_COLUMNS

    tables = {}
    for part, run in runs.items():
        columns = run.columns(*ARRAY_COLUMNS)
        tables.update({(part, cell): columns[cell] for cell in run.cells if cell in columns})
    families: dict[str, dict[str, set[str]]] = {}  # ids of the common images by family and set
    for entry in (entry for run in runs.values() for entry in run.spec.datasets):
        ids = [set(t["sample"]) for (_, cell), t in tables.items() if cell.dataset == entry.name]
        common = set.intersection(*ids) if ids else set()
        if not common:
            raise RunError(f"{entry.name}: no image could be read, so there is nothing to study.")
        families.setdefault(entry.family, {})[entry.name] = common
    pooled: dict[str, Pooled] = {}
    passes: dict[tuple[str, str], list[Any]]
    for family, sets in families.items():
        predictions: dict[tuple[str, str], dict[str, list[Predictions]]] = {}
        passes = {}
        for (part, cell), table in tables.items():
            if cell.dataset in sets:
                kept = table[[name in sets[cell.dataset] for name in table["sample"]]]
                by_set = predictions.setdefault((part, cell.label), {name: [] for name in sets})
                by_set[cell.dataset].append(predictions_of(kept, order=cell.order))
                passes.setdefault((part, cell.label), []).append(kept["views"])
        pooled[family] = {
            key: replace(pool(by_set), passes=float(np.concatenate(passes[key]).mean()))
            for key, by_set in predictions.items()
        }
    return pooled


def measure(title: str, variants: Mapping[str, Variant], *, noun: str = "clusters") -> StudyFamily:
    """Compute the metrics of all variants, and compare them as they ask for."""
    pooled = {name: variant.predictions for name, variant in variants.items()}
    corrected: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for name, variant in variants.items():
        reference = () if variant.reference is None else (variant.reference,)
        for is_further, others in enumerate((reference, variant.further)):
            pairs = corrected.setdefault((variant.group, bool(is_further)), [])
            pairs += [(name, other) for other in others]
    comparisons = [
        comparison
        for pairs in corrected.values()
        for comparison in compare_table(
            pooled, pairs, generator=np.random.default_rng(0), metrics=MEASURED
        )
    ]
    rows = tuple(
        StudyRow(name, v.group, v.facts, estimates(v.predictions, MEASURED), v.reference)
        for name, v in variants.items()
    )
    first = next(iter(pooled.values()))
    clusters = sum(first.clusters)
    return StudyFamily(title, first.sets, clusters, noun, rows, tuple(comparisons))


def study_tables(study: Study, heads: Mapping[str, str]) -> Iterator[Table | str]:
    """Yield the rows of every family, as differences where they have a reference.

    Args:
        study: The study.
        heads: Facts that are shown, with their headings; the first names the rows.
    """
    for family in study.families:
        metrics = list(family.rows[0].estimates)
        compared: dict[tuple[str, str | None], dict[str, Comparison]] = {}
        for c in family.comparisons:
            compared.setdefault((c.first, c.second), {})[c.metric] = c
        rows = []
        for row in family.rows:
            cells = _cells(compared.pop((row.name, row.reference), row.estimates), metrics)
            first, *texts = (fact_text(row.facts.get(key)) for key in heads)
            rows.append(Row(first, (*map(Cell, texts), *cells), group=row.group))
        columns = tuple(metric_column(METRICS[key]) for key in metrics)
        title = f"{family.family}: {family.size}, {study.origin.model}"
        heading, *others = heads.values()
        yield Table(title, (*map(Column, others), *columns), tuple(rows), heading=heading)
        further = [c for pair in compared.values() for c in pair.values()]
        if further:
            count = sum(c.significant for c in further)
            title = f"{count} of {len(further)} differences are significant. {_powers(further)}"
            rows = [
                Row(f"− {second}", tuple(_cells(pair, metrics)), group=first)
                for (first, second), pair in compared.items()
            ]
            yield Table(title, columns, tuple(rows), heading="minus")


def _cells(
    values: Mapping[str, Comparison] | Mapping[str, Estimate], metrics: Sequence[str]
) -> Iterator[Cell]:
    """Yield values or differences with the larger half of their intervals."""
    for key in metrics:
        metric, value = METRICS[key], values[key]
        if isinstance(value, Comparison):
            middle, is_signed, mark = value.estimate, True, "*" * value.significant
            power = "" if value.significant else f" ({metric.text(value.detectable)})"
        else:
            middle, is_signed, mark = value.value, metric.higher_is_better is None, ""
            power = ""
        half = metric.text(max(value.high - middle, middle - value.low))
        text = number_text(middle, metric, signed=is_signed)
        yield Cell(text, spread=f"±{half}{power}", mark=mark)


def _powers(comparisons: Sequence[Comparison]) -> str:
    """Say which differences would have been found, as a range over the comparisons."""
    texts = []
    for key in dict.fromkeys(c.metric for c in comparisons):
        sizes = sorted(c.detectable for c in comparisons if c.metric == key)
        ends = dict.fromkeys(METRICS[key].text(size) for size in (sizes[0], sizes[-1]))
        texts.append(f"{METRICS[key].title} {' to '.join(ends)}")
    return f"Detectable with {100 * POWER:g} % power: {', '.join(texts)}."


def fact_text(value: Any) -> str:
    """Write a fact: fractions in percent, very small and large numbers with a power of ten.

    Example:
        >>> [fact_text(value) for value in (None, "own", 64, 17.25, 0.125, 1.1e-05)]
        ['', 'own', '64', '17.2', '12.5 %', '1.1e-05']
    """
    if isinstance(value, float) and 1 < value < 1000:
        return f"{value:.3g}"
    if isinstance(value, float):
        return f"{100 * value:.3g} %" if 1e-3 <= abs(value) <= 1 or value == 0 else f"{value:.1e}"
    return "" if value is None else str(value)


def to_json(record: "DataclassInstance") -> str:
    """Return an analysis or a study as JSON text; a number that is not finite is an error."""
    return json.dumps(asdict(record), allow_nan=False, ensure_ascii=False, indent=1)


def make_folder(folder: Path) -> None:
    """Make the folder of a result, before the long work rather than after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = os_error(error)
        raise ReportError(f"Cannot make {folder}: {reason}. Choose another --output.") from error


def save_json(record: "DataclassInstance", path: Path) -> Path:
    """Write an analysis or a study into a folder, which is made when it is missing."""
    make_folder(path.parent)
    try:
        write_atomically(path, to_json(record).encode())
    except OSError as error:
        raise ReportError(f"Cannot write {path}: {os_error(error)}.") from error
    return path
