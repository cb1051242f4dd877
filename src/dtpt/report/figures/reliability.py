"""Reliability diagrams, confidence before and after tuning, risk against coverage."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dtpt.metrics import (
    CalibratedBand,
    ReliabilityBins,
    RiskCoverageCurve,
    calibrated_band,
    reliability_bins,
    risk_coverage_curve,
)
from dtpt.report.derived import shown_variants
from dtpt.report.facts import FamilyFacts, pooled_methods
from dtpt.report.figures import CaptionedFigure, captioned
from dtpt.report.figures.style import (
    BAR,
    BLUE,
    GREY,
    INK,
    ORANGE,
    LookKey,
    Style,
    add_legend,
    looks_for,
    new_figure,
    tidy,
)
from dtpt.report.load import CellRows, Condition, Variant, set_title
from dtpt.report.words import caption
from dtpt.runs.exports import safe_name

MOST_POOLED_PANELS = 8
MOST_PANELS = 6  # diagrams of one data set side by side
CURVE_POINTS = 200  # drawn per curve; more cannot be seen and only make files large
MARKS = 250  # drawn per panel, evenly spaced in the input; the caption gives the number of all

AxesPair = tuple[Axes, Axes]
FloatArray = npt.NDArray[np.float64]
Shift = tuple[str, FloatArray, FloatArray, npt.NDArray[np.bool_]]
"""Heading, confidence before and after tuning, whether the prediction after is right."""
Cells = Mapping[Variant, CellRows]
Facts = Mapping[str, Any]
"""Data set, size and topic: what the figures of one set share."""


def reliability_diagram(
    bins: ReliabilityBins, *, title: str = "", band: CalibratedBand | None = None
) -> tuple[Figure, AxesPair]:
    """Draw accuracy per confidence bin above a histogram of confidence.

    The figure belongs to no pyplot session: save it with `figure.savefig(path)`. The `band` of
    `dtpt.metrics.calibrated_band` shows where the accuracy of a perfectly calibrated model would
    lie; bars that end inside are explained by chance.

    Example:
        >>> figure, axes = reliability_diagram(reliability_bins([0.9, 0.6], [True, False]))
        >>> len(axes)
        2
    """
    figure = new_figure(4.2, 5.0)
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[3, 1], gridspec_kw={"hspace": 0.1}
    )
    _draw_pair(upper, lower, bins=bins, title=title, band=band)
    add_legend(upper, loc="upper left")
    add_legend(lower)
    return figure, (upper, lower)


def reliability_row(
    panels: Sequence[tuple[str, ReliabilityBins]], *, bands: Sequence[CalibratedBand] = ()
) -> tuple[Figure, list[AxesPair]]:
    """Draw the diagrams of several methods side by side on common axes, each under its heading."""
    figure = new_figure(max(2.05 * len(panels) + 0.3, 2.6), 3.6)
    grid = figure.subplots(
        2,
        len(panels),
        sharex=True,
        sharey="row",
        height_ratios=[3, 1],
        squeeze=False,
        gridspec_kw={"wspace": 0.1, "hspace": 0.12},
    )
    pairs = [(grid[0, column], grid[1, column]) for column in range(len(panels))]
    for column, ((heading, bins), (upper, lower)) in enumerate(zip(panels, pairs, strict=True)):
        band = bands[column] if bands else None
        _draw_pair(upper, lower, bins=bins, title=heading, band=band)
        upper.set_ylabel("" if column else "accuracy")
        lower.set_ylabel("" if column else "fraction")
    add_legend(pairs[0][0], loc="upper left")
    return figure, pairs


def _draw_pair(
    upper: Axes, lower: Axes, *, bins: ReliabilityBins, title: str, band: CalibratedBand | None
) -> None:
    _draw_accuracy(upper, bins)
    _draw_histogram(lower, bins)
    upper.set_title(title)
    for axes in (upper, lower):
        tidy(axes)
    if band is not None:
        _draw_band(upper, bins, band=band)


def _draw_accuracy(axes: Axes, bins: ReliabilityBins) -> None:
    used = bins.count > 0
    left, width = bins.edges[:-1][used], np.diff(bins.edges)[used]
    accuracy, gap = bins.accuracy[used], (bins.mean_confidence - bins.accuracy)[used]
    axes.bar(left, accuracy, width, **BAR, facecolor=BLUE, label="accuracy")
    hatched: Style = BAR | {
        "edgecolor": ORANGE,
        "hatch": "////",
        "linestyle": "--",
        "linewidth": 0.8,
    }
    axes.bar(left, gap, width, bottom=accuracy, **hatched, facecolor="none", label="gap")
    axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.0, label="perfect")
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])


def _draw_band(axes: Axes, bins: ReliabilityBins, *, band: CalibratedBand) -> None:
    """Mark the accuracies of a perfectly calibrated model by an upright bracket in each bin."""
    used = bins.count > 0
    centre = (bins.edges[:-1] + bins.edges[1:])[used] / 2
    low, high = band.low[used], band.high[used]
    style: Style = {
        "fmt": "none",
        "ecolor": INK,
        "elinewidth": 1.0,
        "capsize": 2.0,
        "label": "by chance",
    }
    axes.errorbar(centre, (low + high) / 2, yerr=(high - low) / 2, **style)


def _draw_histogram(axes: Axes, bins: ReliabilityBins) -> None:
    total = int(bins.count.sum())
    axes.bar(bins.edges[:-1], bins.count / total, np.diff(bins.edges), **BAR, color=GREY, alpha=0.6)
    mean_confidence = float(np.nansum(bins.count * np.nan_to_num(bins.mean_confidence)) / total)
    accuracy = float(np.nansum(bins.count * np.nan_to_num(bins.accuracy)) / total)
    axes.axvline(mean_confidence, color=ORANGE, linestyle="--", label="mean confidence")
    axes.axvline(accuracy, color=BLUE, linestyle="-", label="accuracy")
    axes.set(xlabel="confidence", ylabel=f"fraction of {total:,}")
    axes.yaxis.set_major_locator(MaxNLocator(2))


def confidence_shift(panels: Sequence[Shift]) -> tuple[Figure, list[Axes]]:
    """Draw confidence before (x) and after tuning (y), right and wrong predictions apart."""
    figure = new_figure(max(2.2 * len(panels) + 0.2, 2.7), 2.9, top=0.52)
    row = figure.subplots(
        1, len(panels), sharex=True, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.12}
    )[0]
    for axes, (heading, before, after, correct) in zip(row, panels, strict=True):
        chosen = np.unique(np.linspace(0, len(before) - 1, MARKS).astype(int))
        _scatter(axes, before=before[chosen], after=after[chosen], correct=correct[chosen])
        change = f"{100 * float((after - before).mean()):+.1f}".replace("-", "−")
        axes.set_title(f"{heading}\nmean change {change} points")
        tidy(axes, grid="both")
    row[0].set_ylabel("confidence after tuning")
    add_legend(row[0], loc="upper left")
    figure.supxlabel("confidence of the untuned prompt", fontsize=9, color=INK)
    return figure, list(row)


def _scatter(
    axes: Axes, *, before: FloatArray, after: FloatArray, correct: npt.NDArray[np.bool_]
) -> None:
    axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.0)
    style: Style = {"linestyle": "none", "markersize": 2.6, "markeredgewidth": 0.7}
    for mask, colour, mark, text in (
        (correct, BLUE, "o", "right"),
        (~correct, ORANGE, "x", "wrong"),
    ):
        look: Style = {"color": colour, "marker": mark, "markerfacecolor": "none", "label": text}
        axes.plot(before[mask], after[mask], **style, **look)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])


def risk_coverage_figure(
    curves: Sequence[tuple[LookKey, str, RiskCoverageCurve]],
) -> tuple[Figure, Axes]:
    """Draw error rate against coverage, one (look, legend text, curve) per method."""
    figure = new_figure(4.6, 3.4, top=0.14)
    axes = figure.subplots()
    looks = looks_for(key for key, _, _ in curves)
    for key, text, curve in curves:
        chosen = np.unique(np.linspace(0, len(curve.risk) - 1, CURVE_POINTS).astype(int))
        marks: Style = {"markersize": 4.5, "markevery": max(len(chosen) // 8, 1)}
        x, y = curve.coverage[chosen], curve.risk[chosen]
        axes.plot(x, y, **looks[key].line, **marks, linewidth=1.6, label=text)
    axes.set(xlim=(0, 1), xlabel="coverage (fraction of images answered)", ylabel="error rate")
    axes.set_ylim(bottom=0)
    tidy(axes, grid="both")
    add_legend(axes)
    return figure, axes


def pooled_reliability(
    condition: Condition, facts: FamilyFacts, *, key: str, variants: Sequence[Variant] = ()
) -> CaptionedFigure:
    """Return the reliability of methods on all images of a family, with the calibrated band.

    Each method is shown once, at most eight, unless `variants` are given.
    """
    chosen = tuple(variants) or facts.shown[:MOST_POOLED_PANELS]
    pooled = pooled_methods(condition, facts.family)
    panels, bands = [], []
    for variant in chosen:
        seed = pooled[variant].seeds[0]
        title = variant.title.partition(" (λ leave")[0].partition(" (leave")[0]
        panels.append((title, reliability_bins(seed.confidence, seed.correct)))
        bands.append(calibrated_band(seed.confidence))
    alone = [reliability_row([p], bands=[b])[0] for p, b in zip(panels, bands, strict=True)]
    return captioned(
        "pooled-reliability",
        reliability_row(panels, bands=bands)[0],
        key=key,
        alternative="; ".join(_pooled_words(facts, variant) for variant in chosen) + ".",
        panels=alone,
        family=facts.title.lower(),
        size=facts.size,
        which=", first seed" if facts.seeds > 1 else "",
    )


def _pooled_words(facts: FamilyFacts, variant: Variant) -> str:
    accuracy, gap, ece = (100 * facts.value(variant, m) for m in ("accuracy", "signed_gap", "ece"))
    return (
        f"{variant.title}: accuracy {accuracy:.1f} %, confidence {gap:+.1f} points away from it, "
        f"ECE {ece:.1f} %"
    )


def dataset_figures(condition: Condition, *, prefix: str) -> Iterator[CaptionedFigure]:
    """Yield reliability, risk and confidence of every data set; all but a family's first folded."""
    first = {condition.sets_of(family)[0] for family in condition.families}
    for name in condition.datasets:
        cells = {
            variant: condition.cells[name, variant, condition.seeds[0]]
            for variant in shown_variants(condition, name)[:MOST_PANELS]
        }
        if cells:
            title, key = set_title(name), prefix + safe_name(name)
            size = f"{condition.size_text([name])}, seed {condition.seeds[0]}"
            facts = {"dataset": title, "size": size, "topic": "" if name in first else title}
            several = len(condition.stored_variants([name])) > len(cells)
            yield _reliability(cells, facts, key=f"{key}-reliability", several=several)
            yield _risk(cells, facts, key=f"{key}-risk")
            tuned = {v: c for v, c in cells.items() if v.method != "zero-shot" and _has_untuned(c)}
            if tuned:
                yield _confidence(tuned, facts, key=f"{key}-confidence")


def _has_untuned(cell: CellRows) -> bool:
    return bool((cell.column("zero_shot_confidence") >= 0).all())


def _reliability(cells: Cells, facts: Facts, *, key: str, several: bool) -> CaptionedFigure:
    bins, words = [], []
    for variant, cell in cells.items():
        confidence, correct = cell.column("confidence"), cell.column("correct")
        bins.append((variant.title, reliability_bins(confidence, correct)))
        words.append(
            f"{variant.title}: accuracy {100 * correct.mean():.1f} %, mean confidence "
            f"{100 * confidence.mean():.1f} %, ECE {100 * cell.metric('ece'):.1f} %"
        )
    return captioned(
        "reliability",
        reliability_row(bins)[0],
        key=key,
        alternative="; ".join(words) + ".",
        panels=[] if facts["topic"] else [reliability_row([panel])[0] for panel in bins],
        choice=caption("reliability", "choice") if several else "",
        **facts,
    )


def _risk(cells: Cells, facts: Facts, *, key: str) -> CaptionedFigure:
    curves = [
        (v.look, v.title, risk_coverage_curve(c.column("confidence"), c.column("correct")))
        for v, c in cells.items()
    ]
    words = "; ".join(f"{text}: AURC {1000 * curve.aurc:.1f}" for _, text, curve in curves)
    figure, _ = risk_coverage_figure(curves)
    return captioned("risk", figure, key=key, alternative=f"{words} (×10³).", **facts)


def _confidence(cells: Cells, facts: Facts, *, key: str) -> CaptionedFigure:
    shifts, words = [], []
    for variant, cell in cells.items():
        before, after = cell.column("zero_shot_confidence"), cell.column("confidence")
        shifts.append((variant.title, before, after, cell.column("correct")))
        change = f"{100 * before.mean():.1f} % before, {100 * after.mean():.1f} % after"
        words.append(f"{variant.title}: mean confidence {change}")
    return captioned(
        "confidence",
        confidence_shift(shifts)[0],
        key=key,
        alternative="; ".join(words) + ".",
        panels=[] if facts["topic"] else [confidence_shift([panel])[0] for panel in shifts],
        marks=MARKS,
        **facts,
    )
