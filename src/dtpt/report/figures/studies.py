"""One figure for each study of `dtpt analyze`, and calibration targets against what is reached.

A figure of a study has one panel per family of data sets, one below the other, so that it can be
read on a phone. Bands are 95 % confidence intervals by cluster.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis import Study, StudyFamily, StudyRow
from dtpt.analysis.bases import NAMED
from dtpt.calibration import HeldOut, SplitCheck
from dtpt.methods import method_title
from dtpt.metrics import risk_coverage_curve
from dtpt.report.figures.reliability import risk_coverage_figure
from dtpt.report.figures.streams import GAP, along_figure
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

WIDTH, HEIGHT = 4.8, 3.4
BASIS_LOOKS = dict(
    zip(
        NAMED,
        (
            (INK, "o"),
            (INK, "v"),
            (ORANGE, "P"),
            (ORANGE, "X"),
            (GOLD, "^"),
            (GREY, "s"),
            (PURPLE, "D"),
        ),
        strict=True,
    )
)


def dial_figure(study: Study) -> Figure:
    """Draw the signed gap over the fraction of views from which the prediction is read."""
    return _panels(study, _draw_dial, labels=("views read out (%)", GAP))


def _draw_dial(axes: Axes, family: StudyFamily) -> None:
    most = max(row.facts["views"] for row in family.rows)
    full = [r for r in family.rows if r.facts["views"] == most and not r.facts["tolerance"]]
    dial = [row for row in full if row.facts["fraction"]]
    dial.sort(key=lambda row: float(row.facts["fraction"]))
    for (method, _), look in looks_for((row.facts["method"], None) for row in dial).items():
        curve = [row for row in dial if row.facts["method"] == method]
        gaps = [row.estimates["signed_gap"] for row in curve]
        x = [100 * float(row.facts["fraction"]) for row in curve]
        y, low, high = ([100 * getattr(g, end) for g in gaps] for end in ("value", "low", "high"))
        axes.fill_between(x, low, high, color=look.colour, alpha=0.12, linewidth=0)
        axes.plot(x, y, color=look.colour, marker=look.marker, markersize=4, label=method)
    axes.axhline(0, color=INK, linewidth=0.8)


def positions_figure(study: Study) -> Figure:
    """Draw accuracy, gap and ECE along the streams of a study."""
    return along_figure(study.facts["positions"])


def controls_figure(study: Study) -> Figure:
    """Draw accuracy over signed gap: smaller steps, regularisers, and random directions."""
    return _panels(study, _draw_controls, labels=(GAP, "accuracy (%)"))


def _draw_controls(axes: Axes, family: StudyFamily) -> None:
    curve = [row for row in family.rows if "quantile" not in row.facts]
    axes.plot(*_plane(curve), color=INK, marker="o", markersize=4, label="smaller steps")
    others = [row for row in family.rows if "quantile" in row.facts]
    for (method, _), look in looks_for((row.facts["method"], None) for row in others).items():
        points = _plane(row for row in others if row.facts["method"] == method)
        axes.plot(*points, **look.line, linewidth=0.9, markersize=5, label=method)


def _plane(rows: Iterable[StudyRow]) -> tuple[list[float], list[float]]:
    """Return signed gaps and accuracies, in percent."""
    points = [(row.estimates["signed_gap"].value, row.estimates["accuracy"].value) for row in rows]
    return [100 * gap for gap, _ in points], [100 * accuracy for _, accuracy in points]


def basis_figure(study: Study) -> Figure:
    """Draw D-TPT's signed gap over the signs that it wins, one curve for every basis."""
    return _panels(study, _draw_basis, labels=("first step's signs won (%)", GAP))


def _draw_basis(axes: Axes, family: StudyFamily) -> None:
    for name, (colour, marker) in BASIS_LOOKS.items():
        own = [row for row in family.rows if row.facts["basis"] == name]
        own.sort(key=lambda row: float(row.facts["signs_won"]))
        x = [100 * row.facts["signs_won"] for row in own]
        y = [100 * row.estimates["signed_gap"].value for row in own]
        label = name.replace(", rest", ",\nrest")  # the legend is narrow
        axes.plot(x, y, color=colour, marker=marker, markersize=5, label=label)
    untuned = [row for row in family.rows if "signs_won" not in row.facts]
    for row, dash in zip(untuned, (":", "--"), strict=True):
        height = 100 * row.estimates["signed_gap"].value
        axes.axhline(height, color=INK, linewidth=0.8, linestyle=dash, label=row.name)


def _power_note(family: StudyFamily) -> str:
    """Say which differences of this figure would have been found, from all comparisons."""
    texts = []
    for key, name in (("accuracy", "accuracy"), ("signed_gap", "gap")):
        sizes = [c.detectable for c in family.comparisons if c.metric == key]
        if sizes:
            texts.append(f"{100 * float(np.median(sizes)):.1f} points of {name}")
    return f"detectable (80 % power): {', '.join(texts)}" if texts else ""


def _panels(
    study: Study, draw: Callable[[Axes, StudyFamily], None], *, labels: tuple[str, str]
) -> Figure:
    """Return one panel per family, one below the other, with one legend."""
    figure = new_figure(WIDTH, HEIGHT * len(study.families), top=0.56)  # two lines of title
    column = figure.subplots(len(study.families), 1, squeeze=False)[:, 0]
    figure.subplots_adjust(hspace=0.55)
    for axes, family in zip(column, study.families, strict=True):
        draw(axes, family)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        title = filter(None, (f"{family.family}, {family.size}", _power_note(family)))
        axes.set_title("\n".join(title), loc="left", fontsize=9, color=INK)
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
