"""Everything a report says, put together once and then rendered as page, card and files."""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dtpt.analysis.results import Analysis
from dtpt.data import family_title
from dtpt.machine import package_version
from dtpt.methods import method_title
from dtpt.report.chosen_weights import CHOICE_WORDS
from dtpt.report.comparison import FamilyComparison, Resampling, compare_conditions
from dtpt.report.coverage import CoverageReport, coverage_report
from dtpt.report.figures.analysis_figures import analysis_figures
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.pooled_reliability import pooled_reliability
from dtpt.report.figures.run_figures import run_figures
from dtpt.report.gathering.scored_cells import Condition, Gathered
from dtpt.report.mistakes import Mistake, mistaken_contenders, shown_method, worst_mistakes
from dtpt.report.recorded.schema import Record
from dtpt.report.repeat_commands import report_command, row_command, run_command
from dtpt.report.tables.cell_draws import CellDraws
from dtpt.report.tables.means import family_table, prompt_table, set_table
from dtpt.report.tables.pooled import difference_tables, pooled_table
from dtpt.report.tables.table import COLUMNS, Table
from dtpt.report.verdict import Verdict, verdicts
from dtpt.runs.exports import safe_name


@dataclass(frozen=True)
class ConditionReport:
    """What the report says about one model, prompt and tuning setting.

    Attributes:
        condition: Its cells.
        verdicts: What can be said, by family.
        comparisons: The methods of each family on the same pictures.
        pictures: One for each verdict: reliability of the methods on all pictures of a family.
        pooled: Tables of all pictures of a family together, with intervals.
        differences: Tables of differences to zero-shot and to TPT.
        means: Tables of means, one per family.
        sets: (family, one table per metric) over the sets.
        figures: Of its runs.
        coverage: Coverage check: calibrated on one half of each set, checked on the other.
        mistakes: The most confident ones.
        mistakes_of: Method and λ they belong to, in words.
        rows: (row title, command) of each row of the tables of means.
    """

    condition: Condition
    verdicts: tuple[Verdict, ...]
    comparisons: tuple[FamilyComparison, ...]
    pictures: tuple[CaptionedFigure, ...]
    pooled: tuple[Table, ...]
    differences: tuple[Table, ...]
    means: tuple[Table, ...]
    sets: tuple[tuple[str, tuple[Table, ...]], ...]
    figures: tuple[CaptionedFigure, ...]
    coverage: CoverageReport
    mistakes: tuple[Mistake, ...]
    mistakes_of: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Report:
    """The whole report as data.

    Attributes:
        title: Headline.
        gathered: What was read.
        parts: One per model, prompt and tuning setting.
        prompt_tables: Prompt-initialisation tables.
        figures: All of them, in order.
        analysis: An analysis file; None without one.
        analysis_figures: Its figures.
        commands: That make runs and report again.
        date: When the report was made (UTC).
        version: Of dtpt.
        note: What the reader must know about the verdict; empty for nothing.
        recorded: A run shown beneath this one.
    """

    title: str
    gathered: Gathered
    parts: tuple[ConditionReport, ...]
    prompt_tables: tuple[Table, ...]
    figures: tuple[CaptionedFigure, ...]
    analysis: Analysis | None
    analysis_figures: tuple[CaptionedFigure, ...]
    commands: tuple[str, ...]
    date: str
    version: str
    note: str = ""
    recorded: Record | None = None

    @property
    def coverage_figures(self) -> tuple[CaptionedFigure, ...]:
        """Those of coverage checks, of all parts."""
        return tuple(figure for part in self.parts for figure in part.coverage.figures)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables: pooled, differences, means, then per set."""
        pooled = [table for part in self.parts for table in (*part.pooled, *part.differences)]
        means = [table for part in self.parts for table in part.means]
        sets = [table for part in self.parts for _, group in part.sets for table in group]
        return (*pooled, *means, *self.prompt_tables, *sets)


def compose(
    gathered: Gathered,
    *,
    output: Path,
    analysis: Analysis | None = None,
    extra: Sequence[CaptionedFigure] = (),
    resampling: Resampling | None = None,
    intervals: bool = False,
    data_root: Path | None = None,
    title: str = "",
    note: str = "",
    recorded: Record | None = None,
) -> Report:
    """Compute tables, figures and words of a report.

    Args:
        gathered: What was read from the runs, with the derived rows.
        output: Folder of the report, for its command.
        analysis: Found by `dtpt analyze`; adds its figures.
        extra: Further figures, shown first.
        resampling: How differences are judged.
        intervals: Whether tables of means have intervals too.
        data_root: Where the pictures of mistakes are looked for.
        title: Headline; made from models and sets when empty.
        note: What the reader must know about the verdict.
        recorded: A run shown beneath this one.
    """
    chosen = resampling or Resampling()
    conditions = gathered.conditions
    parts = _parts(conditions, chosen, intervals=intervals, data_root=data_root)
    return Report(
        title=title or _title(conditions),
        gathered=gathered,
        parts=parts,
        prompt_tables=tuple(
            _prompt_tables(conditions, CellDraws(chosen.resamples, seed=chosen.seed))
        ),
        figures=(*extra, *(figure for part in parts for figure in part.figures)),
        analysis=analysis,
        analysis_figures=tuple(analysis_figures(analysis)) if analysis else (),
        commands=(
            *dict.fromkeys(run_command(source) for source in gathered.sources),
            report_command(
                gathered.sources,
                output,
                resampling=chosen,
                intervals=intervals,
                analysed=analysis is not None,
                data_root=data_root,
            ),
        ),
        date=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
        version=package_version("dtpt"),
        note=note,
        recorded=recorded,
    )


def _parts(
    conditions: Sequence[Condition],
    resampling: Resampling,
    *,
    intervals: bool,
    data_root: Path | None,
) -> tuple[ConditionReport, ...]:
    prefixes = [f"c{i}-" if len(conditions) > 1 else "" for i in range(1, len(conditions) + 1)]
    compared = compare_conditions(conditions, resampling)
    return tuple(
        _part(
            condition,
            comparisons,
            prefix=prefix,
            resampling=resampling,
            intervals=intervals,
            data_root=data_root,
        )
        for condition, comparisons, prefix in zip(conditions, compared, prefixes, strict=True)
    )


def _part(
    condition: Condition,
    comparisons: tuple[FamilyComparison, ...],
    *,
    prefix: str,
    resampling: Resampling,
    intervals: bool,
    data_root: Path | None,
) -> ConditionReport:
    draws = CellDraws(resampling.resamples, seed=resampling.seed)
    means = tuple(
        family_table(condition, f, key=f"{prefix}{f}", draws=draws, intervals=intervals)
        for f in condition.families
    )
    coverage = coverage_report(condition, prefix=prefix)
    told = partial(_told_apart, title=condition.title if prefix else "")
    keys = {one: f"{prefix}pooled-{place}" for place, one in enumerate(comparisons, start=1)}
    return ConditionReport(
        condition=condition,
        verdicts=verdicts(condition, comparisons),
        comparisons=comparisons,
        pictures=told(
            pooled_reliability(one, key=f"{key}-reliability") for one, key in keys.items()
        ),
        pooled=tuple(pooled_table(one, key=key) for one, key in keys.items()),
        differences=tuple(
            table for one, key in keys.items() for table in difference_tables(one, prefix=key)
        ),
        means=means,
        sets=_set_tables(condition, prefix=prefix, draws=draws, intervals=intervals),
        figures=told(run_figures(condition, means, prefix=prefix)),
        coverage=replace(coverage, figures=told(coverage.figures)),
        mistakes=tuple(worst_mistakes(condition, data_root=data_root)),
        mistakes_of=_mistakes_of(condition),
        rows=tuple(
            (
                f"{table.title}: {row.title}",
                row_command(condition, table.sets, contender=row.contender),
            )
            for table in means
            for row in table.rows
            if not row.contender.derived
        ),
    )


def _told_apart(figures: Iterable[CaptionedFigure], *, title: str) -> tuple[CaptionedFigure, ...]:
    """Add the title of their condition to figures, where there are several conditions."""
    if not title:
        return tuple(figures)
    return tuple(
        replace(
            figure,
            title=f"{figure.title} ({title})",
            topic=f"{figure.topic} ({title})" if figure.topic else "",
        )
        for figure in figures
    )


def _set_tables(
    condition: Condition, *, prefix: str, draws: CellDraws, intervals: bool
) -> tuple[tuple[str, tuple[Table, ...]], ...]:
    """Return, for each family of several sets, one table per metric."""
    return tuple(
        (
            family_title(family),
            tuple(
                set_table(
                    condition,
                    family,
                    metric=metric,
                    key=f"{prefix}{family}-{metric.key}",
                    draws=draws,
                    intervals=intervals,
                )
                for metric in COLUMNS
            ),
        )
        for family in condition.families
        if len(condition.sets_of(family)) > 1
    )


def _mistakes_of(condition: Condition) -> str:
    """Name the method whose mistakes are shown, with its λ or how that was chosen."""
    contenders = set(mistaken_contenders(condition).values())
    if len(contenders) == 1:
        return contenders.pop().title
    return f"{method_title(shown_method(condition))} ({CHOICE_WORDS})"


def _prompt_tables(conditions: Sequence[Condition], draws: CellDraws) -> list[Table]:
    found = []
    alike: dict[tuple[str, ...], list[Condition]] = {}
    for condition in conditions:
        alike.setdefault((condition.fingerprint, *condition.unusual), []).append(condition)
    for (fingerprint, *unusual), mine in alike.items():
        for family in dict.fromkeys(family for c in mine for family in c.families):
            key = safe_name("-".join(("prompts", family, fingerprint[:8], *unusual)))
            table = prompt_table(mine, family, key=key, draws=draws)
            found += [table] if table is not None else []
    return found


def _title(conditions: Sequence[Condition]) -> str:
    models = list(dict.fromkeys(condition.model for condition in conditions))
    sets = list(dict.fromkeys(name for condition in conditions for name in condition.datasets))
    what = f"{len(sets)} data sets" if len(sets) > 1 else sets[0]
    return f"{', '.join(models)} on {what}"
