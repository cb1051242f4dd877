"""Everything a report says, put together once and then rendered as page, card and files."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dtpt.analysis.results import Analysis
from dtpt.data import family_title
from dtpt.methods import method_title
from dtpt.report.chosen_weights import CHOICE_WORDS
from dtpt.report.figures.analysis_figures import analysis_figures
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.run_figures import run_figures
from dtpt.report.gathering.scored_cells import Condition, Gathered
from dtpt.report.mistakes import Mistake, mistaken_contenders, shown_method, worst_mistakes
from dtpt.report.repeat_commands import report_command, row_command, run_command
from dtpt.report.tables.intervals import interval_by_bootstrap
from dtpt.report.tables.means import IntervalOf, family_table, prompt_table, set_table
from dtpt.report.tables.table import COLUMNS, Table


@dataclass(frozen=True)
class ConditionReport:
    """What the report says about one model, prompt and tuning setting.

    Attributes:
        condition: Its cells.
        means: Tables of means, one per family.
        sets: (family, one table per metric) over the sets.
        figures: Of its runs.
        mistakes: The most confident ones.
        mistakes_of: Method and λ they belong to, in words.
        rows: (row title, command) of each row of the tables of means.
    """

    condition: Condition
    means: tuple[Table, ...]
    sets: tuple[tuple[str, tuple[Table, ...]], ...]
    figures: tuple[CaptionedFigure, ...]
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

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, means first."""
        means = [table for part in self.parts for table in part.means]
        sets = [table for part in self.parts for _, group in part.sets for table in group]
        return (*means, *self.prompt_tables, *sets)


def compose(
    gathered: Gathered,
    *,
    output: Path,
    analysis: Analysis | None = None,
    extra: Sequence[CaptionedFigure] = (),
    bootstrap: int = 0,
    data_root: Path | None = None,
    title: str = "",
) -> Report:
    """Compute tables, figures and words of a report.

    Args:
        gathered: What was read from the runs.
        output: Folder of the report, for its command.
        analysis: Found by `dtpt analyze`; adds its figures.
        extra: Further figures, shown first.
        bootstrap: Resamples for 95 % intervals; 0 for none.
        data_root: Where the pictures of mistakes are looked for.
        title: Headline; made from models and sets when empty.
    """
    interval = interval_by_bootstrap(bootstrap) if bootstrap else None
    conditions = gathered.conditions
    prefixes = [f"c{i}-" if len(conditions) > 1 else "" for i in range(1, len(conditions) + 1)]
    parts = tuple(
        _part(gathered, condition, prefix=prefix, interval=interval, data_root=data_root)
        for condition, prefix in zip(conditions, prefixes, strict=True)
    )
    return Report(
        title=title or _title(conditions),
        gathered=gathered,
        parts=parts,
        prompt_tables=tuple(_prompt_tables(conditions)),
        figures=(*extra, *(figure for part in parts for figure in part.figures)),
        analysis=analysis,
        analysis_figures=tuple(analysis_figures(analysis)) if analysis else (),
        commands=(
            *dict.fromkeys(run_command(source) for source in gathered.sources),
            report_command(gathered.sources, output),
        ),
        date=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
        version=_version(),
    )


def _part(
    gathered: Gathered,
    condition: Condition,
    *,
    prefix: str,
    interval: IntervalOf | None,
    data_root: Path | None,
) -> ConditionReport:
    means = tuple(
        family_table(condition, family, key=f"{prefix}{family}", interval=interval)
        for family in condition.families
    )
    return ConditionReport(
        condition=condition,
        means=means,
        sets=_set_tables(condition, prefix=prefix, interval=interval),
        figures=tuple(run_figures(condition, means, prefix=prefix)),
        mistakes=tuple(worst_mistakes(gathered, condition, data_root=data_root)),
        mistakes_of=_mistakes_of(condition),
        rows=tuple(
            (
                f"{table.title}: {row.title}",
                row_command(condition, table.sets, contender=row.contender),
            )
            for table in means
            for row in table.rows
        ),
    )


def _set_tables(
    condition: Condition, *, prefix: str, interval: IntervalOf | None
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
                    interval=interval,
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


def _prompt_tables(conditions: Sequence[Condition]) -> list[Table]:
    found = []
    for fingerprint in dict.fromkeys(condition.fingerprint for condition in conditions):
        mine = [condition for condition in conditions if condition.fingerprint == fingerprint]
        for family in dict.fromkeys(family for c in mine for family in c.families):
            table = prompt_table(mine, family, key=f"prompts-{family}-{fingerprint[:8]}")
            found += [table] if table is not None else []
    return found


def _title(conditions: Sequence[Condition]) -> str:
    models = list(dict.fromkeys(condition.model for condition in conditions))
    sets = list(dict.fromkeys(name for condition in conditions for name in condition.datasets))
    what = f"{len(sets)} data sets" if len(sets) > 1 else sets[0]
    return f"{', '.join(models)} on {what}"


def _version() -> str:
    try:
        return version("dtpt")
    except PackageNotFoundError:
        return "(not installed)"
