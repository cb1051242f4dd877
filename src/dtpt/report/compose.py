"""A report: computed once from the runs, then written as page, card, tables and figures."""

import datetime
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dtpt.analysis import Analysis, load_analysis
from dtpt.data import family_title
from dtpt.errors import ReportError, flag, os_error
from dtpt.files import printable, write_atomically
from dtpt.report.bars import BarTable, bar_table
from dtpt.report.coverage import CoverageReport, coverage_report
from dtpt.report.derived import with_derived_rows
from dtpt.report.facts import (
    PAPER,
    FamilyFacts,
    MeanFacts,
    Resampling,
    compare_conditions,
    mean_facts,
    with_decisions,
)
from dtpt.report.figures import CaptionedFigure, FigureKind
from dtpt.report.figures.geometry import analysis_figures
from dtpt.report.figures.reliability import dataset_figures, family_figures, lead_reliability
from dtpt.report.lead import Lead, lead_of
from dtpt.report.load import Condition, LeaveOneOut, Loaded, load_runs
from dtpt.report.mistakes import Mistake, example_table, mistakes_title, worst_mistakes
from dtpt.report.record import Record, demo_variants
from dtpt.report.tables import (
    difference_tables,
    headline_table,
    mean_table,
    pooled_table,
    prompt_table,
    set_table,
    stream_tables,
)
from dtpt.report.words import Paragraph, caption, verdict_paragraphs
from dtpt.runs.results import safe_name
from dtpt.tables import Table, csv_text, latex, markdown, records

Figures = tuple[CaptionedFigure, ...]
Tables = tuple[Table, ...]


@dataclass(frozen=True)
class ConditionReport:
    """One model, prompt and tuning setting."""

    condition: Condition
    families: tuple[FamilyFacts, ...]  # those with several methods on the same images
    lead: Lead
    paragraphs: tuple[Paragraph, ...]  # the verdicts, by family
    lead_figures: Figures  # that of the first screen, if there is one
    bars: BarTable | None
    headline: Tables  # of each family: the mean over its data sets
    differences: Tables
    pooled: Tables  # the same over all images
    means: Tables
    sets: tuple[tuple[str, Tables], ...]  # (family, one table per metric)
    figures: Figures  # of each family
    set_figures: Figures
    coverage: CoverageReport
    mistakes: tuple[Mistake, ...]
    mistakes_of: str
    rows: tuple[tuple[str, str], ...]  # (row title, command) of the tables of means


@dataclass(frozen=True)
class Report:
    title: str
    loaded: Loaded
    parts: tuple[ConditionReport, ...]
    prompt_tables: Tables
    extra: Figures
    analysis: Analysis | None
    analysis_figures: Figures
    commands: tuple[str, ...]
    note: str = ""  # about the verdict
    record: Record | None = None  # the run of all images, shown first
    example: Table | None = None  # every method on the image of `extra`

    @property
    def date(self) -> str:
        return datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")

    @property
    def lead(self) -> Lead:
        """What the first screen says: of the record, else of the first condition."""
        if self.record is not None:
            return lead_of(self.record.families, model=self.record.model)
        return self.parts[0].lead

    @property
    def bars(self) -> BarTable | None:
        if self.record is not None:
            return bar_table(self.record.families, variants=demo_variants(self.record.families))
        return self.parts[0].bars

    @property
    def caveat(self) -> str:
        """The one sentence of doubt on the first screen."""
        if self.note:
            return self.note
        seeds = min(len({s.seed for s in part.condition.seeds}) for part in self.parts)
        return caption("lead", "one-seed" if seeds == 1 else "classes")

    @property
    def families(self) -> tuple[FamilyFacts, ...]:
        return tuple(facts for part in self.parts for facts in part.families)

    @property
    def model(self) -> str:
        return ", ".join(dict.fromkeys(part.condition.model for part in self.parts))

    @property
    def figures(self) -> Figures:
        return tuple(figure for part in self.parts for figure in part.figures)

    @property
    def set_figures(self) -> Figures:
        return tuple(figure for part in self.parts for figure in part.set_figures)

    @property
    def coverage_figures(self) -> Figures:
        return tuple(figure for part in self.parts for figure in part.coverage.figures)

    @property
    def all_figures(self) -> Figures:
        first = [figure for part in self.parts for figure in part.lead_figures]
        own = (*self.extra, *self.figures, *self.set_figures)
        return (*first, *own, *self.coverage_figures, *self.analysis_figures)

    @property
    def tables(self) -> Tables:
        """All tables of numbers: headline, differences, pooled, means, then per data set."""
        first = [table for p in self.parts for table in (*p.headline, *p.differences, *p.pooled)]
        means = [table for part in self.parts for table in part.means]
        sets = [table for part in self.parts for _, group in part.sets for table in group]
        return (*first, *means, *self.prompt_tables, *sets)

    @property
    def headed(self) -> Iterator[tuple[str, ConditionReport]]:
        """Yield every part with its heading, which is empty for a single one."""
        for part in self.parts:
            yield (part.condition.title if len(self.parts) > 1 else ""), part


@dataclass(frozen=True)
class WrittenReport:
    """Where a report was written, and the report as data."""

    page: Path
    card: Path
    files: tuple[Path, ...]  # everything written, page and card included
    report: Report

    def document(self) -> dict[str, Any]:
        return {
            "verdicts": [
                f"{heading}: {paragraph.text}" if heading else paragraph.text
                for heading, part in self.report.headed
                for paragraph in part.paragraphs
            ],
            "notes": list(self.report.loaded.notes),
            "tables": list(records(self.report.tables)),
            "files": [printable(path) for path in self.files],
        }


def write_report(
    runs: Sequence[Path | str],
    output: Path | str,
    *,
    analysis: Path | str | None = None,
    extra: Sequence[CaptionedFigure] = (),
    resampling: Resampling | None = None,
    intervals: bool = False,
    fitted: LeaveOneOut | None = None,
    data_root: Path | None = None,
    title: str = "",
    note: str = "",
    record: Record | None = None,
    example: tuple[str, str] | None = None,
    figures: Sequence[FigureKind] = ("svg",),
) -> WrittenReport:
    """Make the report of some runs: page, card, tables and figures in one folder.

    Args:
        runs: run folders, folders of shards, or SQLite files.
        output: folder for the report.
        analysis: file (or folder) of `dtpt analyze`.
        extra: further figures, shown first.
        resampling: how differences are decided.
        intervals: whether tables of means have intervals too.
        fitted: temperatures and λ from another run; fitted on these runs when not given.
        data_root: of the images of mistakes; `$DTPT_DATA` when not given.
        title: headline; made from models and sets when empty.
        note: about the verdict.
        record: a run of all images of which this is a sample; the first screen shows it.
        example: data set and sample of which every method's answer is shown, beneath `extra`.
        figures: kinds of files of the figures.

    Raises:
        ReportError: runs that cannot be combined, nothing to report, or an unwritable file.
    """
    folder, chosen = Path(output), resampling or Resampling()
    found = load_analysis(analysis) if analysis is not None else None
    with load_runs(runs) as stored:
        loaded = with_derived_rows(stored, fitted)
        parts, prompt_tables = _parts(loaded, chosen, intervals=intervals, data_root=data_root)
    named = {"analysis": found and "ANALYSIS-FILE", "data_root": data_root}
    options = {**named, "intervals": intervals}
    again = report_command(loaded, folder, resampling=chosen, options=options)
    report = Report(
        title=title or _title(loaded.conditions),
        loaded=loaded,
        parts=parts,
        prompt_tables=prompt_tables,
        extra=tuple(extra),
        analysis=found,
        analysis_figures=tuple(analysis_figures(found)) if found else (),
        commands=(*dict.fromkeys(source.command for source in loaded.sources), again),
        note=note,
        record=record,
        example=example and example_table(loaded.conditions[0], example[0], sample=example[1]),
    )
    contents = {**_files(report), **_figure_files(report, figures)}.items()
    paths = tuple(_save(folder / name, data) for name, data in contents)
    return WrittenReport(folder / "index.html", folder / "card.md", paths, report)


def report_command(
    loaded: Loaded, output: Path, *, resampling: Resampling, options: Mapping[str, object]
) -> str:
    """Return the `dtpt report` that makes a report again; options without a value are left out."""
    parts = ["dtpt", "report", *dict.fromkeys(str(source.folder) for source in loaded.sources)]
    chosen = {n: v for n, v in asdict(resampling).items() if v != getattr(Resampling(), n)}
    for name, value in {"output": output, **options, **chosen}.items():
        parts += [flag(name)] if value else []
        parts += [str(value)] if value and value is not True else []
    return shlex.join(parts)


def _files(report: Report) -> dict[str, bytes]:
    from dtpt.report.page import render_page, run_card

    texts = {
        "index.html": render_page(report),
        "card.md": run_card(report),
        "tables.md": "\n".join(map(markdown, report.tables)),
        "tables.tex": "\n".join(map(latex, report.tables)),
        "tables.csv": csv_text(report.tables),
    }
    return {name: text.encode() for name, text in texts.items()}


def _figure_files(report: Report, kinds: Sequence[FigureKind]) -> dict[str, bytes]:
    return {
        f"figures/{figure.key}.{kind}": figure.content(kind)
        for figure in report.all_figures
        for kind in kinds
    }


def _save(path: Path, data: bytes) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise ReportError(f"Cannot write {path}: {os_error(error)}.") from error
    return path


def _title(conditions: Sequence[Condition]) -> str:
    models = list(dict.fromkeys(condition.model for condition in conditions))
    sets = list(dict.fromkeys(name for condition in conditions for name in condition.datasets))
    what = f"{len(sets)} data sets" if len(sets) > 1 else sets[0]
    return f"{', '.join(models)} on {what}"


def _parts(
    loaded: Loaded, resampling: Resampling, *, intervals: bool, data_root: Path | None
) -> tuple[tuple[ConditionReport, ...], Tables]:
    """Return a part per condition, and the tables of prompts across conditions."""
    conditions = loaded.conditions
    means = [
        [mean_facts(c, f, resampling=resampling, intervals=intervals) for f in c.families]
        for c in conditions
    ]
    compared = compare_conditions(conditions, resampling)
    means = [
        [with_decisions(family, own) for family in families]
        for families, own in zip(means, compared, strict=True)
    ]
    prefixes = [f"c{index}-" for index in range(1, len(means) + 1)] if len(means) > 1 else [""]
    parts = tuple(
        _part(own, families, prefix=prefix, data_root=data_root)
        for own, families, prefix in zip(means, compared, prefixes, strict=True)
    )
    return parts, tuple(_prompt_tables([family for own in means for family in own]))


def _part(
    means: Sequence[MeanFacts],
    families: Sequence[FamilyFacts],
    *,
    prefix: str,
    data_root: Path | None,
) -> ConditionReport:
    condition = means[0].condition
    keys = {f"{prefix}family-{n}": facts for n, facts in enumerate(families, start=1)}
    tables = tuple(mean_table(family, key=f"{prefix}{family.family}") for family in means)
    coverage = coverage_report(condition, prefix=prefix)
    first = lead_reliability(condition, families, key=f"{prefix}lead")
    drawn = [figure for k, f in keys.items() for figure in family_figures(condition, f, key=k)]
    titled = partial(_titled, title=f" ({condition.title})" if prefix else "")
    return ConditionReport(
        condition=condition,
        families=tuple(families),
        lead=lead_of(families, model=condition.model),
        paragraphs=verdict_paragraphs(condition, families),
        lead_figures=titled([first] if first else []),
        bars=bar_table(families),
        headline=tuple(headline_table(facts, key=key) for key, facts in keys.items()),
        pooled=tuple(pooled_table(f, key=f"{key}-pooled") for key, f in keys.items() if f.pooled),
        differences=tuple(
            table
            for key, f in keys.items()
            for table in (*difference_tables(f, prefix=key), *stream_tables(condition, f, key=key))
        ),
        means=tables,
        sets=tuple(
            (
                family_title(family.family),
                tuple(set_table(family, m, key=f"{prefix}{family.family}-{m}") for m in PAPER),
            )
            for family in means
            if len(family.sets) > 1
        ),
        figures=titled(drawn),
        set_figures=titled(dataset_figures(condition, prefix=prefix)),
        coverage=replace(coverage, figures=titled(coverage.figures)),
        mistakes=worst_mistakes(condition, data_root=data_root),
        mistakes_of=mistakes_title(condition),
        rows=tuple(
            (f"{table.title}: {v.title}", condition.row_command(family.sets, v))
            for table, family in zip(tables, means, strict=True)
            for v in family.variants
            if not v.derived
        ),
    )


def _titled(figures: Iterable[CaptionedFigure], title: str) -> Figures:
    """Add the title of their condition to figures and topics."""
    return tuple(
        replace(figure, title=figure.title + title, topic=figure.topic and figure.topic + title)
        for figure in figures
    )


def _prompt_tables(means: Sequence[MeanFacts]) -> Iterator[Table]:
    """Yield a table for each family that was run with several prompts and is otherwise alike."""
    alike: dict[tuple[str, ...], list[MeanFacts]] = {}
    for family in means:
        key = (family.family, family.condition.fingerprint[:8], *family.condition.unusual)
        alike.setdefault(key, []).append(family)
    for key, group in alike.items():
        table = prompt_table(group, key=safe_name("-".join(("prompts", *key))))
        if table is not None:
            yield table
