"""Promises against what happened: coverage, errors and answers over many random splits."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.calibration import Judged, Splits
from dtpt.methods import method_title
from dtpt.metrics import risk_coverage_curve
from dtpt.report.figures.risk import risk_coverage_figure
from dtpt.report.figures.style import GREY, INK, Variant, looks_for, new_figure, tidy

Checked = tuple[Variant, Splits]
"""(method, λ) on one data set, and what its splits show."""


def kept_promises_figure(checked: Sequence[Checked]) -> tuple[Figure, tuple[Axes, Axes, Axes]]:
    """Draw, by method, coverage, how often errors stay within their level, and who is answered.

    A mark is one data set. The faint line behind a coverage spans nine of ten splits.

    Args:
        checked: at least one; all with the same levels.

    Returns:
        The figure and its three panels; each mark is a line of one point.
    """
    variants = list(dict.fromkeys(variant for variant, _ in checked))
    looks, levels = looks_for(variants), checked[0][1].levels
    figure = new_figure(8.2, 0.9 + 0.42 * len(variants), left=1.75, top=0.36)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for place, (variant, splits) in enumerate(checked):
        mine = [i for i, (other, _) in enumerate(checked) if other == variant]
        spread = 0.5 * (mine.index(place) + 0.5) / len(mine) - 0.25
        height = variants.index(variant) + spread
        style = {"marker": looks[variant].marker, "color": looks[variant].colour, "markersize": 5}
        low, high = np.quantile(splits.coverage, [0.05, 0.95])
        left.plot([100 * low, 100 * high], [height] * 2, color=GREY, linewidth=0.7)
        left.plot([100 * splits.coverage.mean()], [height], **style)
        middle.plot([100 * splits.kept], [height], **style)
        right.plot([100 * splits.answered.mean()], [height], **style)
    left.axvline(100 * levels.coverage, color=INK, linewidth=0.9, linestyle="--")
    middle.axvline(100 * levels.confidence, color=INK, linewidth=0.9, linestyle="--")
    left.set(xlabel="sets with the true class (%)", title="coverage")
    middle.set(xlabel=f"splits with at most {100 * levels.error:g} % errors (%)", title="errors")
    right.set(xlabel="pictures answered (%)", title="answers")
    left.set_yticks(range(len(variants)), [method_title(*variant) for variant in variants])
    left.invert_yaxis()
    for axes in (left, middle, right):
        tidy(axes, grid="x")
    return figure, (left, middle, right)


def promised_risk_figure(
    judged: Sequence[tuple[Variant, str, Judged]], *, error: float
) -> tuple[Figure, Axes]:
    """Draw error against share answered, with the promised level and where thresholds stop.

    Args:
        judged: ((method, λ) for the look, legend text, judged pictures).
        error: promised share of wrong answers.

    Returns:
        The figure and its axes; after the curves come the level and one ring per method that
        answers anything.
    """
    curves = [
        (variant, text, risk_coverage_curve(found.confidence, ~found.wrong))
        for variant, text, found in judged
    ]
    figure, axes = risk_coverage_figure(curves)
    axes.axhline(error, color=INK, linewidth=0.9, linestyle="--")
    looks = looks_for(variant for variant, _, _ in judged)
    for variant, _, found in judged:
        if found.answered.any():
            point = [found.share_answered], [found.error]
            axes.plot(*point, "o", markersize=9, fillstyle="none", color=looks[variant].colour)
    return figure, axes
