"""Coverage, errors and acceptance of calibrations over many random splits."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.calibration import HeldOut, SplitCheck
from dtpt.methods import method_title
from dtpt.metrics import risk_coverage_curve
from dtpt.report.figures.risk import risk_coverage_figure
from dtpt.report.figures.style import GREY, INK, Variant, looks_for, new_figure, tidy

Checked = tuple[Variant, SplitCheck]
"""(method, λ) on one data set, and its random splits."""


def coverage_figure(checked: Sequence[Checked]) -> tuple[Figure, tuple[Axes, Axes, Axes]]:
    """Draw, by method, coverage, how often errors stay within their target, and acceptance.

    A mark is one data set. The faint line behind a coverage spans nine of ten splits.

    Args:
        checked: at least one; all with the same targets.

    Returns:
        The figure and its three panels; each mark is a line of one point.
    """
    variants = list(dict.fromkeys(variant for variant, _ in checked))
    looks, targets = looks_for(variants), checked[0][1].targets
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
        middle.plot([100 * splits.valid], [height], **style)
        right.plot([100 * splits.acceptance.mean()], [height], **style)
    left.axvline(100 * targets.coverage, color=INK, linewidth=0.9, linestyle="--")
    middle.axvline(100 * targets.confidence, color=INK, linewidth=0.9, linestyle="--")
    left.set(xlabel="sets with the true class (%)", title="coverage")
    middle.set(xlabel=f"splits with at most {100 * targets.error:g} % errors (%)", title="errors")
    right.set(xlabel="images accepted (%)", title="acceptance")
    left.set_yticks(range(len(variants)), [method_title(*variant) for variant in variants])
    left.invert_yaxis()
    for axes in (left, middle, right):
        tidy(axes, grid="x")
    return figure, (left, middle, right)


def selective_risk_figure(
    checked: Sequence[tuple[Variant, str, HeldOut]], *, error: float
) -> tuple[Figure, Axes]:
    """Draw the error rate against coverage, with the target error and the fitted thresholds.

    Args:
        checked: ((method, λ) for the look, legend text, held-out images).
        error: target error rate.

    Returns:
        The figure and its axes; after the curves come the target and one ring per method that
        accepts anything.
    """
    curves = [
        (variant, text, risk_coverage_curve(found.confidence, ~found.wrong))
        for variant, text, found in checked
    ]
    figure, axes = risk_coverage_figure(curves)
    axes.axhline(error, color=INK, linewidth=0.9, linestyle="--")
    looks = looks_for(variant for variant, _, _ in checked)
    for variant, _, found in checked:
        if found.accepted.any():
            point = [found.acceptance], [found.error]
            axes.plot(*point, "o", markersize=9, fillstyle="none", color=looks[variant].colour)
    return figure, axes
