"""The recorded demo: a run that takes too long for a demonstration, kept as results and facts.

A record is the run's `Results` (the content of results.json) and the facts of its comparison. The
package brings one, `demo.json`; it is made by

    dtpt demo --full --record src/dtpt/report/demo.json

or, from a run that exists, with `--from RUN` in addition.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from dtpt.data.openmoji import COLOUR, LINE, benchmark_names
from dtpt.errors import ReportError, os_error
from dtpt.files import write_atomically
from dtpt.methods import parse_label, resolve_method
from dtpt.metrics import METRICS, reliability_columns
from dtpt.report.derived import with_derived_rows
from dtpt.report.facts import FamilyFacts, Resampling, compare_conditions
from dtpt.report.load import CellRows, LeaveOneOut, Variant, load_runs
from dtpt.report.tables import headline_table
from dtpt.report.words import Paragraph, family_paragraph
from dtpt.runs.results import Results, results_of
from dtpt.runs.spec import Repeat
from dtpt.tables import Table

PACKAGED = "demo.json"
DIAGRAM_BINS = 10
QUICK_IMAGES = 60  # of each group in each style: two minutes on two cores
# The paper's five methods, D-TPT with its authors' λ, and the mean over views.
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt@1e5", "mean-views")
# Further λ of D-TPT and fractions of views: all sets but one select the one that is shown for it.
GRID = (
    *("d-tpt@3e5", "d-tpt@1e6", "d-tpt@2e6"),
    *(f"zero-shot+views={fraction}" for fraction in (0.1, 0.2, 0.4, 0.5, 0.7)),
)
# what of a machine decides the last bits of a number
SAME_KIND = ("machine", "processor", "system", "device", "torch", "threads")

Pair = tuple[str, str, float, float]
"""Where, metric, new and recorded value."""


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str  # that makes the run again
    results: Results
    fitted: LeaveOneOut
    families: tuple[FamilyFacts, ...]
    # reliability diagrams by data set and method, ten bins, see `metrics.reliability_columns`
    bins: dict[str, dict[str, dict[str, list[float]]]] = Field(default_factory=dict)

    @property
    def model(self) -> str:
        return self.results.config.model.name

    @property
    def images(self) -> int:
        return sum(counts.original for counts in self.results.n_samples.values())

    @property
    def temperatures_only(self) -> LeaveOneOut:
        """What a run without the grid can take over."""
        return LeaveOneOut(temperatures=self.fitted.temperatures)

    @property
    def paragraphs(self) -> tuple[Paragraph, ...]:
        return tuple(family_paragraph(facts) for facts in self.families)

    @property
    def tables(self) -> tuple[Table, ...]:
        """One table per family: methods × metrics with intervals."""
        return tuple(
            headline_table(facts, key=f"recorded-{index}", title=f"{facts.title}, recorded")
            for index, facts in enumerate(self.families, start=1)
        )

    def save(self, path: Path) -> None:
        text = self.model_dump_json(by_alias=True, exclude_defaults=True)
        try:
            write_atomically(path, text.encode() + b"\n")
        except OSError as error:
            raise ReportError(f"Cannot write {path}: {os_error(error)}.") from error


def make_record(
    run: Path | str,
    *,
    methods: Collection[str] = (),
    command: str = "",
    resampling: Resampling | None = None,
) -> Record:
    """Return the record of a finished run; of some `methods` with all their λ, or of all."""
    with load_runs([run]) as loaded:
        if len(loaded.sources) != 1:
            raise ReportError(f"{run} has {len(loaded.sources)} stores: `dtpt merge` it first.")
        (source,) = loaded.sources
        (condition,) = with_derived_rows(loaded).conditions
        results = results_of(source.run)
    cells = {k: c for k, c in condition.cells.items() if not methods or k[1].method in methods}
    for (dataset, variant, seed), cell in cells.items():
        if not cell.is_finished:
            raise ReportError(
                f"{dataset}, {variant.label}, seed {seed}: {cell.effective:,} of "
                f"{cell.expected:,} images are evaluated; a record needs all. Finish the run."
            )
    (families,) = compare_conditions([replace(condition, cells=cells)], resampling)
    labels = {variant.label for _, variant, _ in cells}
    named = {
        name: {label: record for label, record in records.items() if label in labels}
        for name, records in results.results.items()
    }
    again = source.command.rpartition(" --output ")[0]
    return Record(
        command=command or f"{again} --output runs/recorded",
        results=results.model_copy(update={"results": named, "groups": {}}),
        fitted=condition.fitted,
        families=families,
        bins=_diagrams(cells),
    )


def _diagrams(
    cells: Mapping[tuple[str, Variant, Repeat], CellRows],
) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Return the reliability diagrams of stored cells, of the first seed."""
    diagrams: dict[str, dict[str, dict[str, list[float]]]] = {}
    for (dataset, variant, _), cell in cells.items():
        of_set = diagrams.setdefault(dataset, {})
        if not variant.derived and variant.label not in of_set:
            rows = cell.predictions
            columns = reliability_columns(rows.confidence, rows.correct, bins=DIAGRAM_BINS)
            of_set[variant.label] = {
                name: [round(value, 4) for value in values] for name, values in columns.items()
            }
    return diagrams


def load_record(model: str) -> Record | None:
    """Return the packaged record; None for another model."""
    record = Record.model_validate_json((files("dtpt.report") / PACKAGED).read_bytes())
    return record if record.model == model else None


@dataclass(frozen=True)
class RecordCheck:
    same_kind: bool  # whether both come from the same kind of machine
    compared: int  # values that both have
    deviations: tuple[str, ...]  # those that differ more than they may

    @property
    def text(self) -> str:
        if not self.compared:
            return "The record has none of these data sets and methods: nothing was compared."
        kind = "within the tolerance of pooled values, because the machines differ"
        if self.same_kind:
            kind = "bit by bit, because both were computed on the same kind of machine"
        outcome = "all agree."
        if self.deviations:
            outcome = f"{len(self.deviations)} differ, first {self.deviations[0]}"
        return f"Compared with the record: {self.compared:,} numbers, {kind}; {outcome}"


def check_record(new: Record | Results, record: Record) -> RecordCheck:
    """Compare a run with a record, as far as they have data sets and methods in common.

    On the same kind of machine every value must be equal. On another, the pooled values of families
    with the same sets must be within the metrics' tolerances: the last bits decide the prediction
    of a few images in a thousand.
    """
    results = new.results if isinstance(new, Record) else new
    pairs = _family_values(new, record) if isinstance(new, Record) else []
    same = _kind(results) == _kind(record.results)
    if same:
        pairs += _set_values(results, record.results)
    deviations = [
        f"{where}, {metric}: {METRICS[metric].text(ours)}, recorded {METRICS[metric].text(theirs)}."
        for where, metric, ours, theirs in pairs
        if abs(ours - theirs) > (0.0 if same else METRICS[metric].tolerance)
    ]
    return RecordCheck(same, len(pairs), tuple(deviations))


def _kind(results: Results) -> tuple[object, ...]:
    machines = {tuple(str(env.get(name)) for name in SAME_KIND) for env in results.environment}
    spec = results.config
    return machines, spec.model.fingerprint, spec.tuning, spec.seeds, spec.template


def _set_values(new: Results, record: Results) -> list[Pair]:
    """Return the means of each data set, method and metric that both have."""
    pairs = []
    for name, methods in new.results.items():
        entry, known = new.configs[name], record.configs.get(name)
        parts = ("fingerprint", "samples", "views")
        if known is None or any(getattr(entry, part) != getattr(known, part) for part in parts):
            continue
        for label in (label for label in methods if label in record.results[name]):
            ours, theirs = (of[name][label].mean or {} for of in (new.results, record.results))
            keys = [metric for metric in ours if metric in theirs]
            pairs += [(f"{name}, {label}", key, ours[key], theirs[key]) for key in keys]
    return pairs


def _family_values(new: Record, record: Record) -> list[Pair]:
    """Return the pooled values of the families with the same sets."""
    known = {(facts.sets, facts.images): facts.values for facts in record.families}
    pairs = []
    for facts in new.families:
        for label, metrics in known.get((facts.sets, facts.images), {}).items():
            for metric, number in metrics.items():
                ours = facts.values.get(label, {}).get(metric)
                if ours is not None and ours.value is not None and number.value is not None:
                    pairs.append((f"{facts.title}, {label}", metric, ours.value, number.value))
    return pairs


def demo_plan(*, full: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return data sets and methods of the demo; the full one has the grid that is selected from."""
    sets = (*benchmark_names(COLOUR), *benchmark_names(LINE))
    return sets, (*METHODS, *GRID) if full else METHODS


def demo_variants(families: Sequence[FamilyFacts]) -> tuple[Variant, ...]:
    """Return the variants of the demo's methods in the first family."""
    found = []
    for name in METHODS:
        parsed = parse_label(name)
        stored = (v for v in families[0].variants if v.method == parsed.name and not v.derived)
        found += [v for v in stored if parsed.lambda_ in (None, v.lambda_)]
    return tuple(found)


def demo_methods() -> set[str]:
    """Return the names of the methods that a record of the demo keeps."""
    return {resolve_method(name).name for name in (*METHODS, *GRID)}
