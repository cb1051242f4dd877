"""Coverage and selective risk on the runs of a report: fitted on one half, checked on the other.

Every data set is divided in halves by hash of the samples' clusters. Each half fits temperature,
conformal quantile and abstention threshold, and the other half checks them, so that no image is
checked by numbers that it or another image of its cluster helped to fit.
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
    *("Method", "Coverage (%)", "Low classes (%)", "Classes per set", "APS coverage (%)"),
    *("APS classes", "Accepted (%)", "Error (%)"),
)


@dataclass(frozen=True)
class CheckedCell:
    """One method on one data set under the first seed, with LAC and with APS sets."""

    dataset: str
    variant: Variant
    lac: HeldOut
    aps: HeldOut

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns `HEADS`."""
        return (
            self.variant.title,
            f"{100 * self.lac.coverage:.1f}",
            f"{100 * self.lac.class_coverage:.1f}",
            f"{self.lac.mean_size:.1f}",
            f"{100 * self.aps.coverage:.1f}",
            f"{self.aps.mean_size:.1f}",
            f"{100 * self.lac.acceptance:.1f}",
            f"{100 * self.lac.error:.1f}" if self.lac.accepted.any() else "—",
        )


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
        count = len({cell.dataset for cell in own})
        targets = TARGETS.model_dump(include={"coverage", "error", "confidence"})
        percent = {name: 100 * value for name, value in targets.items()}
        words = caption("tables", "coverage", **percent, sets=count)
        rows = [cell.texts for cell in pooled]
        tables.append(text_table(f"{title}: coverage check", HEADS, rows=rows, caption=words))
        if len(names) > 1:
            rows = [(set_title(cell.dataset), *cell.texts) for cell in own]
            heads = ("Data set", *HEADS)
            sets.append(text_table(f"{title}: coverage check by data set", heads, rows=rows))
        shown = pooled[:MOST_CURVES]
        curves = [(cell.variant.look, cell.variant.title, cell.lac) for cell in shown]
        figures.append(
            captioned(
                "selective-risk",
                selective_risk_figure(curves, error=TARGETS.error)[0],
                key=f"{prefix}coverage-{family}",
                words=[f"{c.variant.title} accepts {100 * c.lac.acceptance:.1f} %" for c in shown],
                family=title,
                error=percent["error"],
            )
        )
    return CoverageReport(tuple(tables), tuple(sets), tuple(figures))


def checked_cells(condition: Condition) -> list[CheckedCell]:
    """Check every shown method on every set.

    Left out are rows without probabilities, sets of which half is too small to fit on, and methods
    that carry state: their rows depend on each other, and no guarantee holds for them.
    """
    cells = []
    for name in condition.datasets:
        for variant in shown_variants(condition, name):
            key = (name, variant, condition.seeds[0])
            cell = condition.cells[key]
            logs = condition.log_probabilities(key) if cell.order is None else None
            if logs is not None:
                rows = cell.records
                clusters, predictions = rows["cluster"], rows["prediction"]
                with contextlib.suppress(CalibrationError):
                    labelled = LabelledPredictions.of(
                        logs, rows["label"], predictions=predictions, clusters=clusters
                    )
                    lac, aps = cross_fit(labelled, clusters.tolist(), targets=TARGETS)
                    cells.append(CheckedCell(name, variant, lac, aps))
    return cells


def _pooled(cells: Sequence[CheckedCell]) -> list[CheckedCell]:
    """Pool the sets of each method; it is shown with the λ of its first set."""
    groups: dict[str, list[CheckedCell]] = {}
    for cell in cells:
        groups.setdefault(cell.variant.method, []).append(cell)
    most = max(map(len, groups.values()))  # the same sets for every row
    return [
        CheckedCell(
            "",
            group[0].variant,
            concatenate([cell.lac for cell in group], same_classes=False),
            concatenate([cell.aps for cell in group], same_classes=False),
        )
        for group in groups.values()
        if len(group) == most
    ]
