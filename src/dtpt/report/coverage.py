"""Coverage check of a report: fitted on one half of each data set, checked on the other.

Halves are by hash of the sample id. Each half fits temperature, sets and threshold for the other,
so that no image is checked with numbers it helped to fit.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.calibration import HeldOut, LabelledPredictions, Targets, concatenate, cross_fit
from dtpt.data import family_title
from dtpt.errors import CalibrationError, RunError
from dtpt.report.chosen_weights import shown_contenders
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.coverage import selective_risk_figure
from dtpt.report.gathering.scored_cells import Condition, Contender
from dtpt.report.set_titles import set_title
from dtpt.report.tables.analysis_tables import WordTable
from dtpt.runs.calibrate import labelled_predictions
from dtpt.runs.spec import Cell

TARGETS = Targets(coverage=0.9, error=0.1, confidence=0.95)
MOST_CURVES = 6
HEADS = (
    "Method",
    "Coverage (%)",
    "Classes per set",
    "APS coverage (%)",
    "APS classes",
    "Accepted (%)",
    "Error (%)",
)


@dataclass(frozen=True)
class CheckedCell:
    """One method on one data set, first seed."""

    dataset: str
    contender: Contender
    lac: HeldOut
    aps: HeldOut


@dataclass(frozen=True)
class CoverageReport:
    """Coverage checks of a report; empty where no row holds all its probabilities."""

    tables: tuple[WordTable, ...] = ()  # one per family, over all its sets
    sets: tuple[WordTable, ...] = ()  # one per family, with every set
    figures: tuple[CaptionedFigure, ...] = ()  # one per family


def coverage_report(condition: Condition, *, prefix: str = "") -> CoverageReport:
    """Return tables and figures of all families, checked at `TARGETS`."""
    cells = checked_cells(condition)
    tables, sets, figures = [], [], []
    for family in condition.families:
        names = condition.sets_of(family)
        part = [cell for cell in cells if cell.dataset in names]
        if part:
            pooled = _pooled(part)
            title = family_title(family)
            tables.append(_table(f"{title}: coverage check", pooled, caption=_caption(part)))
            figures.append(_figure(pooled, title, key=f"{prefix}coverage-{family}"))
        if len(names) > 1 and part:
            sets.append(_set_table(f"{title}: coverage check by data set", part))
    return CoverageReport(tuple(tables), tuple(sets), tuple(figures))


def checked_cells(condition: Condition) -> tuple[CheckedCell, ...]:
    """Check every shown method on every set.

    Left out are rows without all probabilities, and sets of which half is too small to calibrate.
    """
    return tuple(
        CheckedCell(name, contender, *checked)
        for name in condition.datasets
        for contender in shown_contenders(condition, name)
        for checked in _checked(condition, name, contender=contender)
    )


def _checked(
    condition: Condition, dataset: str, *, contender: Contender
) -> Iterator[tuple[HeldOut, HeldOut]]:
    """Yield LAC and APS of one cell, or nothing."""
    with contextlib.suppress(CalibrationError, RunError):
        ids, rows = _labelled(condition, dataset, contender=contender)
        yield cross_fit(rows, ids, targets=TARGETS)


def _labelled(
    condition: Condition, dataset: str, *, contender: Contender
) -> tuple[list[str], LabelledPredictions]:
    """Return ids and rows of a cell from all stores that have some, each image once."""
    seed, template = condition.seeds[0], condition.template
    cell = Cell(dataset, contender.method, contender.lambda_, seed, template)
    stores = [source.run for source in condition.sources if cell in source.run.cells]
    parts = [labelled_predictions(run, cell) for run in stores]
    names, first = np.unique(np.concatenate([ids for ids, _ in parts]), return_index=True)
    rows = LabelledPredictions(
        np.concatenate([part.log_probabilities for _, part in parts]),
        np.concatenate([part.labels for _, part in parts]),
        np.concatenate([part.predictions for _, part in parts]),
    )
    return names.tolist(), rows.take(first)


def _pooled(cells: Sequence[CheckedCell]) -> list[CheckedCell]:
    """Pool the sets of each method; a method is shown with the λ of its first set."""
    groups: dict[str, list[CheckedCell]] = {}
    for cell in cells:
        groups.setdefault(cell.contender.method, []).append(cell)
    most = max(len(group) for group in groups.values())
    return [
        CheckedCell(
            "",
            group[0].contender,
            concatenate([cell.lac for cell in group]),
            concatenate([cell.aps for cell in group]),
        )
        for group in groups.values()
        if len(group) == most  # the same sets for every row
    ]


def _table(title: str, cells: Sequence[CheckedCell], *, caption: str) -> WordTable:
    rows = [(cell.contender.title, *_numbers(cell)) for cell in cells]
    return WordTable(title, caption, HEADS, tuple(rows))


def _set_table(title: str, cells: Sequence[CheckedCell]) -> WordTable:
    rows = [(set_title(cell.dataset), cell.contender.title, *_numbers(cell)) for cell in cells]
    return WordTable(title, _caption(cells), ("Data set", *HEADS), tuple(rows))


def _numbers(cell: CheckedCell) -> tuple[str, ...]:
    error = f"{100 * cell.lac.error:.1f}" if cell.lac.accepted.any() else "—"
    return (
        f"{100 * cell.lac.coverage:.1f}",
        f"{cell.lac.mean_size:.1f}",
        f"{100 * cell.aps.coverage:.1f}",
        f"{cell.aps.mean_size:.1f}",
        f"{100 * cell.lac.acceptance:.1f}",
        error,
    )


def _caption(cells: Sequence[CheckedCell]) -> str:
    sets = len(dict.fromkeys(cell.dataset for cell in cells))
    return (
        f"Targets: prediction sets (split conformal) contain the true class of "
        f"{100 * TARGETS.coverage:g} % of the images; with confidence "
        f"{100 * TARGETS.confidence:g} % at most {100 * TARGETS.error:g} % of the accepted "
        f"predictions are wrong. Each of {sets} data set{'s' if sets > 1 else ''} is split in "
        "halves: calibrated on one, checked on the other, and vice versa. Where a model errs too "
        "often or images are too few, nothing is accepted."
    )


def _figure(cells: Sequence[CheckedCell], family: str, *, key: str) -> CaptionedFigure:
    shown = cells[:MOST_CURVES]
    curves = [(cell.contender.variant, cell.contender.title, cell.lac) for cell in shown]
    words = (f"{cell.contender.title} accepts {100 * cell.lac.acceptance:.1f} %" for cell in shown)
    return CaptionedFigure(
        key=key,
        title=f"{family}: selective risk",
        caption=(
            "Error rate among the most confident images, by calibrated confidence. A ring marks "
            f"the fitted threshold; the dashed line is its target ({100 * TARGETS.error:g} %)."
        ),
        alternative=f"At the threshold: {'; '.join(words)}.",
        draw=lambda: selective_risk_figure(curves, error=TARGETS.error)[0],
    )
