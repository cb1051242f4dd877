"""Coverage and selective risk on the runs of a report: fitted on one half, checked on the other.

Every data set is divided in halves by hash of the sample id. Each half fits temperature, conformal
quantile and abstention threshold, and the other half checks them, so that no image is checked by
numbers that it helped to fit.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.calibration import HeldOut, LabelledPredictions, Targets, concatenate, cross_fit
from dtpt.data import family_title
from dtpt.errors import CalibrationError
from dtpt.report.derived import shown_variants
from dtpt.report.figures import CaptionedFigure, captioned
from dtpt.report.figures.studies import selective_risk_figure
from dtpt.report.load import Condition, Variant, set_title
from dtpt.report.words import caption
from dtpt.tables import Table, text_table

TARGETS = Targets(coverage=0.9, error=0.1, confidence=0.95)
MOST_CURVES = 6
HEADS = (
    *("Method", "Coverage (%)", "Classes per set", "APS coverage (%)", "APS classes"),
    *("Accepted (%)", "Error (%)"),
)


@dataclass(frozen=True)
class CheckedCell:
    """One method on one data set under the first seed, with LAC and with APS sets."""

    dataset: str
    variant: Variant
    lac: HeldOut
    aps: HeldOut


@dataclass(frozen=True)
class CoverageReport:
    """One table and figure per family, and a table with every set; empty if nothing is checked."""

    tables: tuple[Table, ...] = ()
    sets: tuple[Table, ...] = ()
    figures: tuple[CaptionedFigure, ...] = ()


def coverage_report(condition: Condition, *, prefix: str = "") -> CoverageReport:
    cells = checked_cells(condition)
    tables, sets, figures = [], [], []
    for family in condition.families:
        names, title = condition.sets_of(family), family_title(family)
        own = [cell for cell in cells if cell.dataset in names]
        if not own:
            continue
        pooled = _pooled(own)
        rows = [(cell.variant.title, *_numbers(cell)) for cell in pooled]
        count = len({cell.dataset for cell in own})
        sets_text = f"{count} data set{'s' if count > 1 else ''}"
        targets = {name: 100 * value for name, value in TARGETS.model_dump().items()}
        words = caption("tables", "coverage", **targets, sets=sets_text)
        tables.append(text_table(f"{title}: coverage check", HEADS, rows=rows, caption=words))
        figures.append(_figure(pooled, title, key=f"{prefix}coverage-{family}"))
        if len(names) > 1:
            rows = [(set_title(c.dataset), c.variant.title, *_numbers(c)) for c in own]
            heads = ("Data set", *HEADS)
            sets.append(text_table(f"{title}: coverage check by data set", heads, rows=rows))
    return CoverageReport(tuple(tables), tuple(sets), tuple(figures))


def checked_cells(condition: Condition) -> tuple[CheckedCell, ...]:
    """Check every shown method on every set.

    Left out are rows without probabilities, and sets of which half is too small to fit on.
    """
    found = []
    for name in condition.datasets:
        for variant in shown_variants(condition, name):
            key = (name, variant, condition.seeds[0])
            logs, rows = condition.log_probabilities(key), condition.cells[key].records
            if logs is not None:
                with contextlib.suppress(CalibrationError):
                    own = LabelledPredictions.of(
                        logs, rows["label"], predictions=rows["prediction"]
                    )
                    lac, aps = cross_fit(own, rows["sample"].tolist(), targets=TARGETS)
                    found.append(CheckedCell(name, variant, lac, aps))
    return tuple(found)


def _pooled(cells: Sequence[CheckedCell]) -> list[CheckedCell]:
    """Pool the sets of each method; it is shown with the λ of its first set."""
    groups: dict[str, list[CheckedCell]] = {}
    for cell in cells:
        groups.setdefault(cell.variant.method, []).append(cell)
    most = max(len(group) for group in groups.values())
    pooled = []
    for group in groups.values():
        if len(group) == most:  # the same sets for every row
            lac, aps = (concatenate([getattr(c, kind) for c in group]) for kind in ("lac", "aps"))
            pooled.append(CheckedCell("", group[0].variant, lac, aps))
    return pooled


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


def _figure(cells: Sequence[CheckedCell], family: str, *, key: str) -> CaptionedFigure:
    shown = cells[:MOST_CURVES]
    curves = [(cell.variant.look, cell.variant.title, cell.lac) for cell in shown]
    words = (f"{cell.variant.title} accepts {100 * cell.lac.acceptance:.1f} %" for cell in shown)
    return captioned(
        "selective-risk",
        selective_risk_figure(curves, error=TARGETS.error)[0],
        key=key,
        alternative=f"At the threshold: {'; '.join(words)}.",
        family=family,
        error=100 * TARGETS.error,
    )
