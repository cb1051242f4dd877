"""One figure for each study of `dtpt analyze`, and calibration targets against what is reached.

A figure of a study has one panel per family of data sets, one below the other, so that it can be
read on a phone. Bands are 95 % confidence intervals over images.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.calibration import HeldOut, SplitCheck
from dtpt.methods import method_title
from dtpt.metrics import Estimate, risk_coverage_curve
from dtpt.report.figures.reliability import risk_coverage_figure
from dtpt.report.figures.style import (
    GOLD,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    LookKey,
    add_legend_beside,
    looks_for,
    new_figure,
    tidy,
)

if TYPE_CHECKING:  # the studies need torch
    from dtpt.analysis.basis_study import BasisStudy, FamilyBases
    from dtpt.analysis.control_study import ControlStudy, FamilyControls
    from dtpt.analysis.view_study import FamilyViews, SettingRow, ViewStudy

WIDTH, HEIGHT = 4.8, 3.4
GAP = "confidence − accuracy (%)"
BASIS_LOOKS = {
    "own": (INK, "o"),
    "random 0": (GREY, "s"),
    "random 1": (GOLD, "^"),
    "gap": (PURPLE, "D"),
    "mean text": (ORANGE, "P"),
}

Family = TypeVar("Family", "FamilyViews", "FamilyControls", "FamilyBases")


def dial_figure(study: "ViewStudy") -> Figure:
    """Draw the signed gap over the fraction of views from which the prediction is read."""
    return _panels(study.families, _draw_dial, labels=("views read out (%)", GAP))


def _draw_dial(axes: Axes, family: "FamilyViews") -> None:
    most = max(row.setting.views for row in family.rows)
    dial = [r for r in family.rows if r.setting.share is not None and r.setting.views == most]
    looks = looks_for((row.setting.method, None) for row in dial)
    for method in dict.fromkeys(row.setting.method for row in dial):
        own = sorted((r for r in dial if r.setting.method == method), key=_read)
        x, gaps = [_read(row) for row in own], [row.estimates["signed_gap"] for row in own]
        look = looks[method, None]
        low, high = [100 * gap.low for gap in gaps], [100 * gap.high for gap in gaps]
        axes.fill_between(x, low, high, color=look.colour, alpha=0.12, linewidth=0)
        y = [100 * gap.value for gap in gaps]
        axes.plot(x, y, color=look.colour, marker=look.marker, markersize=4, label=method)
    axes.axhline(0, color=INK, linewidth=0.8)


def _read(row: "SettingRow") -> float:
    return 100 * (row.setting.share or 0.0)


def controls_figure(study: "ControlStudy") -> Figure:
    """Draw accuracy over signed gap: smaller steps, regularisers, and random directions."""
    return _panels(study.families, _draw_controls, labels=(GAP, "accuracy (%)"))


def _draw_controls(axes: Axes, family: "FamilyControls") -> None:
    curve = _plane(point.estimates for point in family.curve)
    axes.plot(*curve, color=INK, marker="o", markersize=4, label="smaller steps")
    looks = looks_for((row.method, None) for row in family.rows)
    for (method, _), look in looks.items():
        points = _plane(row.estimates for row in family.rows if row.method == method)
        axes.plot(*points, **look.line, linewidth=0.9, markersize=5, label=method)


def _plane(points: Iterable[Mapping[str, Estimate]]) -> tuple[list[float], list[float]]:
    found = [(100 * p["signed_gap"].value, 100 * p["accuracy"].value) for p in points]
    return [gap for gap, _ in found], [accuracy for _, accuracy in found]


def basis_figure(study: "BasisStudy") -> Figure:
    """Draw D-TPT's signed gap over λ, one curve for every basis."""
    return _panels(study.families, _draw_basis, labels=("λ of D-TPT", GAP))


def _draw_basis(axes: Axes, family: "FamilyBases") -> None:
    for name, (colour, marker) in BASIS_LOOKS.items():
        own = sorted((r for r in family.rows if r.basis == name), key=lambda r: r.weight)
        x, y = [r.weight for r in own], [100 * r.estimates["signed_gap"].value for r in own]
        axes.plot(x, y, color=colour, marker=marker, markersize=5, label=name)
    axes.set_xscale("log")


def _panels(
    families: Sequence[Family],
    draw: Callable[[Axes, Family], None],
    *,
    labels: tuple[str, str],
) -> Figure:
    """Return one panel per family, one below the other, with one legend."""
    figure = new_figure(WIDTH, HEIGHT * len(families))
    column = figure.subplots(len(families), 1, squeeze=False)[:, 0]
    figure.subplots_adjust(hspace=0.4)
    for axes, family in zip(column, families, strict=True):
        draw(axes, family)
        count = sum(images for _, images in family.sets)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        axes.set_title(f"{family.family}, {count:,} images")
        tidy(axes, grid="both")
    add_legend_beside(figure, column[0])
    return figure


def coverage_figure(
    checked: Sequence[tuple[LookKey, SplitCheck]],
) -> tuple[Figure, tuple[Axes, Axes, Axes]]:
    """Draw, by method, coverage, how often errors meet their target, and acceptance.

    A mark is one (method, λ) on one data set, all with the same targets. The faint line behind a
    coverage spans nine of ten splits.
    """
    variants = list(dict.fromkeys(key for key, _ in checked))
    looks, targets = looks_for(variants), checked[0][1].targets
    figure = new_figure(8.2, 0.9 + 0.42 * len(variants), left=1.75, top=0.36)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for index, (key, splits) in enumerate(checked):
        own = [i for i, (other, _) in enumerate(checked) if other == key]
        height = variants.index(key) + 0.5 * (own.index(index) + 0.5) / len(own) - 0.25
        style = {"marker": looks[key].marker, "color": looks[key].colour, "markersize": 5}
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
    left.set_yticks(range(len(variants)), [method_title(*key) for key in variants])
    left.invert_yaxis()
    for axes in (left, middle, right):
        tidy(axes, grid="x")
    return figure, (left, middle, right)


def selective_risk_figure(
    checked: Sequence[tuple[LookKey, str, HeldOut]], *, error: float
) -> tuple[Figure, Axes]:
    """Draw error rate against coverage, the target error, and a ring where each threshold stops."""
    curves = [
        (key, text, risk_coverage_curve(found.confidence, ~found.wrong))
        for key, text, found in checked
    ]
    figure, axes = risk_coverage_figure(curves)
    axes.axhline(error, color=INK, linewidth=0.9, linestyle="--")
    looks = looks_for(key for key, _, _ in checked)
    for key, _, found in checked:
        if found.accepted.any():
            point = [found.acceptance], [found.error]
            axes.plot(*point, "o", markersize=9, fillstyle="none", color=looks[key].colour)
    return figure, axes
