"""Published runs: their card, and one page that ranks many of them.

Results are ranked among those on the same images only, by intervals: one has rank 1 + the number of
results whose 95 % interval lies wholly on its better side, so results that do not differ that much
are ties. That is more cautious than a paired test, which needs the rows of both (`dtpt compare`).
Rows are listed by the value of `LISTED_BY`, which is no rank.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dtpt.clip.loading.names import EMBEDDED
from dtpt.errors import DtptError, ReportError, RunError, os_error
from dtpt.files import printable, write_atomically
from dtpt.methods import method_cost, parse_label, resolve_method
from dtpt.metrics import METRICS, Metric
from dtpt.report.clip_record import ClipMethod, ClipRecord, load_clip_record
from dtpt.report.derived import with_derived_rows
from dtpt.report.facts import (
    FamilyFacts,
    Number,
    Resampling,
    can_draw,
    compare_methods,
    family_methods,
)
from dtpt.report.load import Source, Variant, load_runs, set_title
from dtpt.report.page import markdown_card, render_leaderboard
from dtpt.report.record import load_record
from dtpt.runs.published import publish
from dtpt.runs.reading import Run
from dtpt.runs.results import Results, result_table, results_of, score_methods
from dtpt.runs.verification import Check, Verification, verify
from dtpt.tables import (
    Cell,
    Column,
    Row,
    Table,
    interval_text,
    metric_column,
    number_text,
    text_table,
)

SHOWN = tuple(METRICS[key] for key in ("accuracy", "ece", "brier", "aurc"))
LISTED_BY = METRICS["brier"]  # it counts accuracy and calibration
RECORD = "record of the package"

Task = tuple[str, tuple[tuple[str, str, int], ...]]
"""Family, and name, fingerprint and number of images of its data sets."""

Ranks = Sequence[tuple[int, bool] | None]
"""Rank and whether it is shared, by entry."""


@dataclass(frozen=True)
class Entry:
    """One method of one published run on one task."""

    task: Task
    title: str  # method and λ
    model: str
    seeds: int
    numbers: Mapping[str, Number]
    passes: str
    source: str
    outcome: str  # verified or recorded


@dataclass(frozen=True)
class Publication:
    """One published run, or a record of the package; without entries if it failed verification."""

    name: str
    model: str = "—"  # with the beginning of its fingerprint
    images: int = 0
    version: str = "—"
    entries: tuple[Entry, ...] = ()
    verification: Verification | None = None  # None for a record, which has no rows

    @property
    def outcome(self) -> str:
        return _outcome(self.verification)


def _outcome(verification: Verification | None) -> str:
    if verification is None:
        return "recorded"
    return "verified" if verification.is_verified else "failed"


def publish_with_card(
    paths: Sequence[Path | str], folder: Path, *, keep_all: bool = True
) -> list[Path]:
    """Publish runs (see `dtpt.runs.published.publish`) and write the card beside them."""
    return publish(paths, folder, keep_all=keep_all, card=_card)


def _card(run: Run) -> str:
    command = Source(run).command.rpartition(" --output ")[0]
    return markdown_card(
        "published.md",
        title=f"{run.spec.model.name} on {', '.join(map(set_title, run.datasets))}",
        images=f"{sum(entry.samples for entry in run.spec.datasets):,}",
        seeds=", ".join(map(str, run.spec.seeds)),
        spec=run.spec,
        tables=[result_table(run, score_methods(run))],
        notes=run.notes(),
        commands=["dtpt verify .", "dtpt report .", f"{command} --output runs/again"],
    )


def write_leaderboard(
    folders: Sequence[Path], output: Path, *, data_root: Path | None = None
) -> tuple[Publication, ...]:
    """Verify published runs and rank them, with the package's records, on one page."""
    found = [*_recorded(), *(_publication(folder, data_root=data_root) for folder in folders)]
    entries = [entry for publication in found for entry in publication.entries]
    tasks: dict[Task, list[Entry]] = {}
    for entry in entries:
        tasks.setdefault(entry.task, []).append(entry)
    text = render_leaderboard(
        title="Leaderboard",
        entries=len(entries),
        metrics=SHOWN,
        listed_by=LISTED_BY,
        tables=[_task_table(*pair, number=n) for n, pair in enumerate(tasks.items(), start=1)],
        publications=_publication_table(found),
    )
    _save(output, text)
    return tuple(found)


def _save(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise ReportError(f"Cannot write {printable(path)}: {os_error(error)}.") from error


def _recorded() -> Iterator[Publication]:
    if record := load_record(EMBEDDED):
        yield _published(RECORD, record.results, record.families)
    if clip := load_clip_record():
        task = (
            f"{clip.model}, as recorded",
            tuple((name, "", images) for name, images in clip.datasets.items()),
        )
        entries = tuple(_clip_entry(clip, method, task) for method in clip.methods)
        model, images = f"{clip.model} ({clip.fingerprint[:8]})", sum(clip.datasets.values())
        yield Publication(RECORD, model, images, entries=entries)


def _clip_entry(clip: ClipRecord, method: ClipMethod, task: Task) -> Entry:
    numbers = {}
    for key in (metric.key for metric in SHOWN):
        low, high = method.intervals.get(key, (None, None))
        floor = method.floor if key == "ece" else None
        numbers[key] = Number(getattr(method, key), low=low, high=high, floor=floor)
    passes = _passes(parse_label(method.method).name, views=clip.views, measured=method.views)
    seeds = len(clip.seeds)
    return Entry(task, method.title, clip.model, seeds, numbers, passes, RECORD, "recorded")


def _publication(folder: Path, *, data_root: Path | None) -> Publication:
    name = printable(folder)
    try:
        verification = verify(folder, data_root=data_root)
    except RunError as error:
        verification = Verification(folder, (Check("files", "failed", str(error)),))
    if not verification.is_verified:
        return Publication(name, verification=verification)
    with load_runs([folder]) as loaded:
        (source,) = loaded.sources
        (condition,) = with_derived_rows(loaded).conditions
        families = [
            compare_methods(methods, family, resampling=Resampling())
            for family in condition.families
            if (methods := family_methods(condition, family)) and can_draw(methods)
        ]
        return _published(name, results_of(source.run), families, verification=verification)


def _published(
    name: str,
    results: Results,
    families: Iterable[FamilyFacts],
    *,
    verification: Verification | None = None,
) -> Publication:
    spec = results.config
    outcome, entries = _outcome(verification), []
    for facts in families:
        sets = [spec.dataset(dataset) for dataset in facts.sets]
        task = facts.title, tuple((e.name, e.fingerprint, e.samples) for e in sets)
        for variant in facts.shown:
            numbers = facts.values[variant.label]
            passes = _passes(
                variant.method,
                views=int(str(sets[0].views.get("count", 64))),
                steps=int(str(spec.tuning["steps"])),
                measured=_measured_views(variant, results, facts.sets),
            )
            model, seeds = spec.model.name, facts.seeds
            entries.append(Entry(task, variant.title, model, seeds, numbers, passes, name, outcome))
    return Publication(
        name,
        f"{spec.model.name} ({spec.model.fingerprint[:8]})",
        sum(entry.samples for entry in spec.datasets),
        spec.code_version,
        tuple(entries),
        verification,
    )


def _measured_views(variant: Variant, results: Results, sets: Sequence[str]) -> float | None:
    """Return how many views were encoded for one image, where the method decides that."""
    stored = [results.results[name].get(variant.label) for name in sets]
    means = [one.views for one in stored if one is not None and one.views is not None]
    return sum(means) / len(means) if means else None


def _passes(method: str, *, views: int, steps: int = 1, measured: float | None = None) -> str:
    """Return the passes through image and text tower for one image."""
    try:
        cost = method_cost(resolve_method(method), views=views, steps=steps)
    except DtptError:  # a method that is not installed here
        return "—"
    image = cost.image_passes if measured is None else measured
    return f"{image:.3g} + {cost.text_forward + cost.text_backward}"


def _task_table(task: Task, entries: Iterable[Entry], *, number: int) -> Table:
    title, sets = task
    entries = sorted(entries, key=_listing)
    images = sum(samples for *_, samples in sets)
    names = ", ".join(set_title(name) + f" ({own[:8]})" * bool(own) for name, own, _ in sets)
    ranks = {metric.key: _ranks(entries, metric) for metric in SHOWN}
    rows = []
    for index, entry in enumerate(entries):
        numbers = [_number_cell(entry, m, ranks=ranks[m.key], index=index) for m in SHOWN]
        words = (entry.model, entry.passes, str(entry.seeds), entry.outcome, entry.source)
        rows.append(Row(entry.title, (*numbers, *map(Cell, words))))
    columns = (
        *map(metric_column, SHOWN),
        Column("Model", is_text=True),
        Column("Passes", meaning="Passes through image tower + text tower for one image."),
        Column("Seeds"),
        Column("Rows", is_text=True, meaning="Whether the numbers were recomputed from rows."),
        Column("From", is_text=True),
    )
    mean = "Mean over the data sets, " * (len(sets) > 1)
    caption = f"{images:,} images: {names}. {mean}95\u00a0% intervals."
    return Table(title, columns, tuple(rows), key=f"task-{number}", caption=caption)


def _listing(entry: Entry) -> float:
    value = entry.numbers.get(LISTED_BY.key, Number()).value
    if value is None:
        return math.inf
    return -value if LISTED_BY.higher_is_better else value


def _number_cell(entry: Entry, metric: Metric, *, ranks: Ranks, index: int) -> Cell:
    rank = ranks[index]
    is_ahead = rank is not None and rank[0] == 1 and any(one and one[0] > 1 for one in ranks)
    number = entry.numbers.get(metric.key, Number())
    if number.value is None:
        return Cell("not computed", is_missing=True)
    interval = ""
    if number.low is not None and number.high is not None:
        interval = interval_text((number.low, number.high), metric)
    position = "no rank" if rank is None else f"rank {rank[0]}{', tied' * rank[1]}"
    return Cell(
        number_text(number.value, metric),
        bold=is_ahead,
        interval=interval,
        spread=position,
        reference="" if number.floor is None else f"floor {number_text(number.floor, metric)}",
        value=number.value,
        record={"value": number.value, "rank": rank and rank[0]},
    )


def _ranks(entries: Sequence[Entry], metric: Metric) -> Ranks:
    """Rank the entries by a metric; None without interval."""
    spans: list[tuple[float, float] | None] = []
    sign = -1 if metric.higher_is_better else 1
    for entry in entries:
        number = entry.numbers.get(metric.key, Number())
        ends = sorted(sign * end for end in (number.low, number.high) if end is not None)
        spans.append((ends[0], ends[1]) if len(ends) == 2 else None)
    ranks = [span and 1 + sum(o is not None and o[1] < span[0] for o in spans) for span in spans]
    return [None if rank is None else (rank, ranks.count(rank) > 1) for rank in ranks]


def _publication_table(publications: Sequence[Publication]) -> Table:
    heads = ("Published run", "Model", "Images", "dtpt", "Outcome", "Failed", "Not checked")
    rows = []
    for one in publications:
        checks = one.verification.checks if one.verification else ()
        failed, skipped = (_reasons(checks, outcome) or "—" for outcome in ("failed", "skipped"))
        if one.verification is None:
            skipped = "the rows are not part of the package"
        images = f"{one.images:,}" if one.images else "—"
        rows.append((one.name, one.model, images, one.version, one.outcome, failed, skipped))
    return replace(text_table("", heads, rows=rows), key="publications")


def _reasons(checks: Iterable[Check], outcome: str) -> str:
    """Join the texts of checks; what is the same for several data sets is said once."""
    found: dict[str, list[str]] = {}
    for check in checks:
        if check.outcome == outcome:
            name, colon, what = check.text.partition(": ")
            found.setdefault(what if colon else name, []).extend([name] if colon else [])
    parts = ((", ".join(names), what) for what, names in found.items())
    return "; ".join(": ".join(filter(None, part)) for part in parts)
