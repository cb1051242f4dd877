"""What promises are worth on the runs of a report: fitted on one half, judged on the other.

Every data set is divided in halves by hash of the sample id. Each half fits temperature, sets and
threshold, and the other half judges them, so that no picture is judged by numbers it helped to fit.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.calibration import Judged, Labelled, Levels, cross_fits, judge_both, together
from dtpt.data import family_title
from dtpt.errors import PromiseError, RunError
from dtpt.report.chosen_weights import shown_contenders
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.promises import promised_risk_figure
from dtpt.report.gathering.scored_cells import Condition, Contender
from dtpt.report.set_titles import set_title
from dtpt.report.tables.analysis_tables import WordTable
from dtpt.runs.promised import labelled
from dtpt.runs.spec import Cell

LEVELS = Levels(coverage=0.9, error=0.1, confidence=0.95)
MOST_CURVES = 6
HEADS = (
    "Method",
    "Coverage (%)",
    "Classes per set",
    "APS coverage (%)",
    "APS classes",
    "Answered (%)",
    "Wrong of these (%)",
)


@dataclass(frozen=True)
class JudgedCell:
    """One method on one data set, first seed.

    Attributes:
        dataset: Name.
        contender: Method and λ.
        lac: Judged with LAC sets.
        aps: Judged with APS sets.
    """

    dataset: str
    contender: Contender
    lac: Judged
    aps: Judged


@dataclass(frozen=True)
class PromiseReport:
    """What a report says about promises; empty where no row holds its probabilities.

    Attributes:
        tables: One per family, over all its sets.
        sets: One per family, with every set.
        figures: One per family.
    """

    tables: tuple[WordTable, ...] = ()
    sets: tuple[WordTable, ...] = ()
    figures: tuple[CaptionedFigure, ...] = ()


def promise_report(condition: Condition, *, prefix: str = "") -> PromiseReport:
    """Return tables and figures of all families, judged at `LEVELS`."""
    cells = judged_cells(condition)
    tables, sets, figures = [], [], []
    for family in condition.families:
        names = condition.sets_of(family)
        mine = [cell for cell in cells if cell.dataset in names]
        if mine:
            pooled = _pooled(mine)
            title = family_title(family)
            tables.append(_table(f"{title}: promises kept", pooled, caption=_caption(mine)))
            figures.append(_figure(pooled, title, key=f"{prefix}promises-{family}"))
        if len(names) > 1 and mine:
            sets.append(_set_table(f"{title}: promises by set", mine))
    return PromiseReport(tuple(tables), tuple(sets), tuple(figures))


def judged_cells(condition: Condition, *, levels: Levels = LEVELS) -> tuple[JudgedCell, ...]:
    """Judge every shown method on every set; nothing where rows lack their probabilities.

    Left out is also what half of a set cannot promise, because it is too small.
    """
    return tuple(
        JudgedCell(name, contender, *judged)
        for name in condition.datasets
        for contender in shown_contenders(condition, name)
        for judged in _judged(condition, name, contender=contender, levels=levels)
    )


def _judged(
    condition: Condition, dataset: str, *, contender: Contender, levels: Levels
) -> Iterator[tuple[Judged, Judged]]:
    """Yield LAC and APS of one cell, or nothing."""
    with contextlib.suppress(PromiseError, RunError):
        ids, rows = _labelled(condition, dataset, contender=contender)
        fitted = cross_fits(rows.ranked(), ids, levels=levels)
        lac, aps = zip(*(judge_both(found, others) for found, others in fitted), strict=True)
        yield together(lac), together(aps)


def _labelled(
    condition: Condition, dataset: str, *, contender: Contender
) -> tuple[list[str], Labelled]:
    """Return ids and rows of a cell from all stores that have some, each picture once."""
    seed, template = condition.seeds[0], condition.template
    cell = Cell(dataset, contender.method, contender.lambda_, seed, template)
    stores = [source.run for source in condition.sources if cell in source.run.cells]
    found = [labelled(run, cell) for run in stores]
    names, first = np.unique(np.concatenate([ids for ids, _ in found]), return_index=True)
    rows = Labelled(
        np.concatenate([part.log_probabilities for _, part in found]),
        np.concatenate([part.labels for _, part in found]),
        np.concatenate([part.predictions for _, part in found]),
    )
    return names.tolist(), rows.take(first)


def _pooled(cells: Sequence[JudgedCell]) -> list[JudgedCell]:
    """Put the sets of each method together; a method counts with the weight of its first set."""
    groups: dict[str, list[JudgedCell]] = {}
    for cell in cells:
        groups.setdefault(cell.contender.method, []).append(cell)
    most = max(len(group) for group in groups.values())
    return [
        JudgedCell(
            "",
            group[0].contender,
            together([cell.lac for cell in group]),
            together([cell.aps for cell in group]),
        )
        for group in groups.values()
        if len(group) == most  # the same sets for every row
    ]


def _table(title: str, cells: Sequence[JudgedCell], *, caption: str) -> WordTable:
    rows = [(cell.contender.title, *_numbers(cell)) for cell in cells]
    return WordTable(title, caption, HEADS, tuple(rows))


def _set_table(title: str, cells: Sequence[JudgedCell]) -> WordTable:
    rows = [(set_title(cell.dataset), cell.contender.title, *_numbers(cell)) for cell in cells]
    return WordTable(title, _caption(cells), ("Data set", *HEADS), tuple(rows))


def _numbers(cell: JudgedCell) -> tuple[str, ...]:
    error = f"{100 * cell.lac.error:.1f}" if cell.lac.answered.any() else "—"
    return (
        f"{100 * cell.lac.coverage:.1f}",
        f"{cell.lac.mean_size:.1f}",
        f"{100 * cell.aps.coverage:.1f}",
        f"{cell.aps.mean_size:.1f}",
        f"{100 * cell.lac.share_answered:.1f}",
        error,
    )


def _caption(cells: Sequence[JudgedCell]) -> str:
    sets = len(dict.fromkeys(cell.dataset for cell in cells))
    return (
        f"Promised: sets hold the true class for {100 * LEVELS.coverage:g} % of the pictures; with "
        f"confidence {100 * LEVELS.confidence:g} % at most {100 * LEVELS.error:g} % of the answers "
        f"given are wrong. Each of {sets} data set{'s' if sets > 1 else ''} is divided in halves; "
        "one fits, the other judges, and the other way round. No answer is the honest result "
        "where a model errs too often or pictures are too few."
    )


def _figure(cells: Sequence[JudgedCell], family: str, *, key: str) -> CaptionedFigure:
    shown = cells[:MOST_CURVES]
    curves = [(cell.contender.variant, cell.contender.title, cell.lac) for cell in shown]
    words = (
        f"{cell.contender.title} answers {100 * cell.lac.share_answered:.1f} %" for cell in shown
    )
    return CaptionedFigure(
        key=key,
        title=f"{family}: errors against answers",
        caption=(
            "Share of wrong answers if only the most confident pictures are answered, by "
            "calibrated confidence. A ring is where the fitted threshold stops; the dashed line is "
            f"what it promises not to exceed ({100 * LEVELS.error:g} %)."
        ),
        alternative=f"Where the threshold stops: {'; '.join(words)}.",
        draw=lambda: promised_risk_figure(curves, error=LEVELS.error)[0],
    )
