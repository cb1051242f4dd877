"""Which figures the runs of a report become."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from dtpt.data import family_title
from dtpt.metrics import ReliabilityBins, reliability_bins, risk_coverage_curve
from dtpt.report.chosen_weights import shown_contenders
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.confidence import FloatArray, confidence_shift
from dtpt.report.figures.pareto import pareto_figure, trade_offs
from dtpt.report.figures.reliability import reliability_row
from dtpt.report.figures.risk import risk_coverage_figure
from dtpt.report.gathering.scored_cells import Condition, ScoredCell
from dtpt.report.set_titles import set_title
from dtpt.report.tables.table import Table
from dtpt.runs.exports import safe_name

MOST_PANELS = 6  # diagrams side by side
CHOICE_NOTE = (
    " Where a method was run with several λ, the one is drawn that the other sets of the family "
    "choose (lowest negative log-likelihood)."
)


def run_figures(
    condition: Condition, tables: Sequence[Table], *, prefix: str
) -> Iterable[CaptionedFigure]:
    """Yield the figures of one condition: overview per family, then three per data set.

    Args:
        condition: Its cells.
        tables: The tables of means, one per family, in order.
        prefix: Of the figures' keys.
    """
    for family, table in zip(condition.families, tables, strict=True):
        yield from _overview(condition, table, family=family, prefix=prefix)
    first = {condition.sets_of(family)[0] for family in condition.families}
    for name in condition.datasets:
        cells = [
            condition.cells[name, contender, condition.seeds[0]]
            for contender in shown_contenders(condition, name)[:MOST_PANELS]
        ]
        if cells:
            yield from _of_set(condition, cells, prefix=prefix, folded=name not in first)


def _overview(
    condition: Condition, table: Table, *, family: str, prefix: str
) -> Iterable[CaptionedFigure]:
    values, words = [], []
    for row in table.rows:
        accuracy, ece = row.entries[0].value, row.entries[1].value
        is_point = row.contender.derived != "chosen"  # which lies among the others
        if is_point and accuracy is not None and ece is not None:
            values.append((row.contender.variant, accuracy, ece))
            words.append(f"{row.title} {100 * accuracy:.1f} % and {100 * ece:.1f} %")
    if len(values) < 2:
        return
    points = trade_offs(values)
    title = f"Accuracy and ECE, {family_title(family).lower()}"
    yield CaptionedFigure(
        f"{prefix}pareto-{family}",
        title,
        f"Means over sets, {condition.size_text(table.sets)}. Right and low is better. Filled "
        "points with a rim are beaten by no other point in both; joined points are one method "
        "under growing λ.",
        f"Accuracy and ECE: {'; '.join(words)}.",
        lambda: pareto_figure(points, title=title)[0],
    )


@dataclass(frozen=True)
class _Place:
    """Where the figures of one set belong, and the words that they share."""

    key: str
    shown: str
    behind: str
    folded: bool


def _of_set(
    condition: Condition, cells: Sequence[ScoredCell], *, prefix: str, folded: bool
) -> Iterable[CaptionedFigure]:
    """Yield reliability, risk and confidence of one data set."""
    name = cells[0].dataset
    behind = f"{condition.datasets[name].size_text}, seed {condition.seeds[0]}"
    place = _Place(prefix + safe_name(name), set_title(name), behind, folded)
    several = len(condition.stored_contenders([name])) > len(cells)
    yield _reliability(cells, place, note=CHOICE_NOTE if several else "")
    yield _risk(cells, place)
    tuned = [cell for cell in cells if _is_tuned(cell)]
    if tuned:
        yield _confidence(tuned, place)


def _is_tuned(cell: ScoredCell) -> bool:
    """Tell whether an answer and that of the untuned prompt can be compared."""
    known = bool((cell.zero_shot_confidence >= 0).all())
    return cell.contender.method != "zero-shot" and known


def _reliability(cells: Sequence[ScoredCell], place: _Place, *, note: str) -> CaptionedFigure:
    bins = [(c.contender.title, reliability_bins(c.confidence, c.correct)) for c in cells]
    words = "; ".join(
        f"{c.contender.title}: accuracy {100 * c.correct.mean():.1f} %, mean confidence "
        f"{100 * c.confidence.mean():.1f} %, ECE {100 * c.metric('ece'):.1f} %"
        for c in cells
    )
    return CaptionedFigure(
        f"{place.key}-reliability",
        f"Reliability, {place.shown}",
        f"Above: accuracy in 20 bins of confidence ({place.behind}); hatched is the gap to the "
        "mean confidence of the bin. Below: share of pictures in each bin, with mean confidence "
        f"(dashed) and accuracy (solid).{note}",
        words + ".",
        lambda: reliability_row(bins)[0],
        place.folded,
        place.shown,
        tuple(partial(_one_reliability, panel) for panel in bins),
    )


def _one_reliability(panel: tuple[str, ReliabilityBins]) -> Figure:
    return reliability_row([panel])[0]


def _risk(cells: Sequence[ScoredCell], place: _Place) -> CaptionedFigure:
    curves = [
        (
            cell.contender.variant,
            cell.contender.title,
            risk_coverage_curve(cell.confidence, cell.correct),
        )
        for cell in cells
    ]
    areas = "; ".join(f"{text}: AURC {1000 * curve.aurc:.1f}" for _, text, curve in curves)
    return CaptionedFigure(
        f"{place.key}-risk",
        f"Risk and coverage, {place.shown}",
        "Error rate when only the most confident pictures are answered; lower is better "
        f"({place.behind}).",
        f"{areas} (×10³).",
        lambda: risk_coverage_figure(curves)[0],
        place.folded,
        place.shown,
    )


_Shift = tuple[str, FloatArray, FloatArray, npt.NDArray[np.bool_]]


def _one_shift(panel: _Shift) -> Figure:
    return confidence_shift([panel])[0]


def _confidence(cells: Sequence[ScoredCell], place: _Place) -> CaptionedFigure:
    panels = [
        (cell.contender.title, cell.zero_shot_confidence, cell.confidence, cell.correct)
        for cell in cells
    ]
    words = "; ".join(
        f"{title}: mean confidence {100 * before.mean():.1f} % before, {100 * after.mean():.1f} % "
        "after"
        for title, before, after, _ in panels
    )
    return CaptionedFigure(
        f"{place.key}-confidence",
        f"Confidence before and after tuning, {place.shown}",
        f"Each mark is a picture (at most 250 are drawn of {place.behind}); above the diagonal "
        "tuning made the model more sure. Circles are right answers, crosses wrong ones.",
        f"{words}.",
        lambda: confidence_shift(panels)[0],
        place.folded,
        place.shown,
        tuple(partial(_one_shift, panel) for panel in panels),
    )
