"""Figures of runs: reliability, confidence before and after tuning, risk, accuracy and ECE."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dtpt.analysis.scores import efficient
from dtpt.methods import PAPER_METHODS, lambda_text, method_title
from dtpt.metrics import (
    CalibratedBand,
    Predictions,
    ReliabilityBins,
    RiskCoverageCurve,
    calibrated_band,
    ece,
    pool,
    reliability_bins,
    risk_coverage_curve,
)
from dtpt.report.bars import same_method
from dtpt.report.derived import shown_variants
from dtpt.report.facts import FamilyFacts, Number, family_methods, family_positions
from dtpt.report.figures import CaptionedFigure, captioned
from dtpt.report.figures.streams import along_figure, along_words
from dtpt.report.figures.style import (
    BAR,
    BLUE,
    GREY,
    INK,
    LEGEND,
    ORANGE,
    LookKey,
    Style,
    add_legend,
    add_legend_beside,
    looks_for,
    new_figure,
    tidy,
)
from dtpt.report.load import Condition, Variant, set_title
from dtpt.report.words import caption
from dtpt.runs.results import safe_name

MOST_POOLED_PANELS = 8
MOST_PANELS = 6  # diagrams of one data set side by side
LEADING = 4  # of the first screen
LEAST_IMAGES = 100  # of a data set; with fewer, bins are noise
UNTUNED = Variant("zero-shot")
CURVE_POINTS = 200  # drawn per curve; more cannot be seen and only make files large
MARKS = 250  # drawn per panel, evenly spaced in the input; the caption gives the number of all
LEGEND_ROOM = 0.3  # inches below the axes
HALVES = ([0, 0.5, 1], ["0", "0.5", "1"])  # ticks

AxesPair = tuple[Axes, Axes]
FloatArray = npt.NDArray[np.float64]
Panel = tuple[str, ReliabilityBins, CalibratedBand | None]
"""Heading, bins, and where the accuracy of a perfectly calibrated model would lie."""
Shift = tuple[str, FloatArray, FloatArray, npt.NDArray[np.bool_]]
"""Heading, confidence before and after tuning, whether the prediction after is right."""
TradeOff = tuple[LookKey, Number, Number]
"""Method and λ, accuracy, ECE."""


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
    figure, (pair,) = reliability_row([(title, bins, band)], size=(3.9, 5.0))
    pair[1].set_ylabel(f"fraction of {int(bins.count.sum()):,}")
    return figure, pair


def reliability_row(
    panels: Sequence[Panel], *, size: tuple[float, float] = (2.05, 3.6), legend: bool = True
) -> tuple[Figure, list[AxesPair]]:
    """Draw the diagrams of several methods side by side on common axes, each under its heading."""
    room = LEGEND_ROOM if legend else -0.08
    figure = new_figure(max(size[0] * len(panels) + 0.3, 2.6), size[1] + room, bottom=0.52 + room)
    grid = figure.subplots(
        2,
        len(panels),
        sharex=True,
        sharey="row",
        height_ratios=[3, 1],
        squeeze=False,
        gridspec_kw={"wspace": 0.1, "hspace": 0.12},
    )
    pairs: list[AxesPair] = list(zip(*grid, strict=True))
    for (heading, bins, band), (upper, lower) in zip(panels, pairs, strict=True):
        _draw_accuracy(upper, bins)
        _draw_histogram(lower, bins)
        if band is not None:
            _draw_band(upper, bins, band=band)
        upper.set_title(heading)
        tidy(upper)
        tidy(lower)
    pairs[0][0].set_ylabel("accuracy")
    pairs[0][1].set_ylabel("fraction")
    if legend:  # below all bars
        handles, labels = pairs[0][0].get_legend_handles_labels()
        columns = len(handles) if len(panels) > 1 else 2
        figure.legend(handles, labels, loc="lower center", ncols=columns, **LEGEND)
    return figure, pairs


def _draw_accuracy(axes: Axes, bins: ReliabilityBins) -> None:
    used = bins.count > 0
    left, width = bins.edges[:-1][used], np.diff(bins.edges)[used]
    accuracy, gap = bins.accuracy[used], (bins.mean_confidence - bins.accuracy)[used]
    axes.bar(left, accuracy, width, **BAR, facecolor=BLUE, label="accuracy")
    hatched: Style = BAR | {"edgecolor": ORANGE, "linestyle": "--", "linewidth": 0.8}
    hatched |= {"facecolor": "none", "hatch": "////"}
    axes.bar(left, gap, width, bottom=accuracy, **hatched, label="gap")
    axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.0, label="perfect")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_xticks(*HALVES)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])


def _draw_band(axes: Axes, bins: ReliabilityBins, *, band: CalibratedBand) -> None:
    """Mark the accuracies of a perfectly calibrated model by an upright bracket in each bin."""
    used = bins.count > 0
    centre = (bins.edges[:-1] + bins.edges[1:])[used] / 2
    low, high = band.low[used], band.high[used]
    style: Style = {"fmt": "none", "ecolor": INK, "elinewidth": 1.0, "capsize": 2.0}
    axes.errorbar(centre, (low + high) / 2, yerr=(high - low) / 2, **style, label="by chance")


def _draw_histogram(axes: Axes, bins: ReliabilityBins) -> None:
    used, fraction = bins.count > 0, bins.count / bins.count.sum()
    axes.bar(bins.edges[:-1], fraction, np.diff(bins.edges), **BAR, color=GREY, alpha=0.6)
    confidence, accuracy = (
        float(fraction[used] @ values[used]) for values in (bins.mean_confidence, bins.accuracy)
    )
    axes.axvline(confidence, color=ORANGE, linestyle="--", label="mean confidence")
    axes.axvline(accuracy, color=BLUE, linestyle="-", label="accuracy")
    axes.set_xlabel("confidence")
    axes.yaxis.set_major_locator(MaxNLocator(2))


def confidence_shift(panels: Sequence[Shift]) -> tuple[Figure, list[Axes]]:
    """Draw confidence before (x) and after tuning (y), right and wrong predictions apart."""
    figure = new_figure(max(2.2 * len(panels) + 0.2, 2.7), 2.9, top=0.52)
    row = figure.subplots(
        1, len(panels), sharex=True, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.12}
    )[0]
    for axes, (heading, before, after, correct) in zip(row, panels, strict=True):
        axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.0)
        drawn = np.unique(np.linspace(0, len(before) - 1, MARKS).astype(int))
        for mask, colour, marker, label in (
            (correct[drawn], BLUE, "o", "right"),
            (~correct[drawn], ORANGE, "x", "wrong"),
        ):
            look: Style = {"color": colour, "marker": marker, "markerfacecolor": "none"}
            look |= {"linestyle": "none", "markersize": 2.6, "markeredgewidth": 0.7}
            axes.plot(before[drawn][mask], after[drawn][mask], **look, label=label)
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
        axes.set_xticks(*HALVES)
        axes.set_yticks(*HALVES)
        change = f"{100 * float((after - before).mean()):+z.1f}".replace("-", "−")
        axes.set_title(f"{heading}\nmean change {change} points")
        tidy(axes, grid="both")
    row[0].set_ylabel("confidence after tuning")
    add_legend(row[0], loc="upper left")
    figure.supxlabel("confidence of the untuned prompt", fontsize=9, color=INK)
    return figure, list(row)


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


def pareto_figure(points: Sequence[TradeOff], *, title: str = "") -> tuple[Figure, Axes]:
    """Draw accuracy (x, %) against ECE (y, %) with their intervals; lower right is better.

    The points of a method are joined in the order of λ and grow with it. A point that no other
    beats in both is filled and ringed, the others are hollow.
    """
    figure = new_figure(4.8, 3.7)
    axes = figure.subplots()
    values = {key: (number.value or 0.0, error.value or 0.0) for key, number, error in points}
    is_best = dict(zip(values, efficient(*zip(*values.values(), strict=True)), strict=True))
    for (method, _), look in looks_for((method, None) for method, _ in values).items():
        curve = sorted((p for p in points if p[0][0] == method), key=lambda p: p[0][1] or 0.0)
        x, y = ([100 * values[key][axis] for key, _, _ in curve] for axis in (0, 1))
        axes.plot(x, y, color=look.colour, linestyle=look.dash, linewidth=1.1)
        for index, (key, accuracy, error) in enumerate(curve):
            _draw_intervals(axes, accuracy=accuracy, error=error, colour=look.colour)
            fill, rim = (look.colour, INK) if is_best[key] else ("none", look.colour)
            mark: Style = look.marks | {"markerfacecolor": fill, "markeredgecolor": rim}
            mark["markersize"] = 5 + 5 * index / max(len(curve) - 1, 1)
            axes.plot(x[index], y[index], **mark, label="" if index else method_title(method))
            if len(curve) > 1 and index in (0, len(curve) - 1) and key[1] is not None:
                style: Style = {"xytext": (5, 5), "fontsize": 7, "color": INK}
                style["textcoords"] = "offset points"
                axes.annotate(f"λ={lambda_text(key[1])}", (x[index], y[index]), **style)
    axes.set(xlabel="accuracy (%) → better", ylabel="ECE (%) ↓ better", title=title)
    tidy(axes, grid="both")
    add_legend_beside(figure, axes)
    return figure, axes


def _draw_intervals(axes: Axes, *, accuracy: Number, error: Number, colour: str) -> None:
    """Draw a faint cross through a point; nothing for a value without an interval."""
    style: Style = {"color": colour, "linewidth": 0.7, "alpha": 0.45}
    if accuracy.low is not None and accuracy.high is not None:
        axes.hlines(100 * (error.value or 0), 100 * accuracy.low, 100 * accuracy.high, **style)
    if error.low is not None and error.high is not None:
        axes.vlines(100 * (accuracy.value or 0), 100 * error.low, 100 * error.high, **style)


def lead_reliability(
    condition: Condition, families: Sequence[FamilyFacts], *, key: str
) -> CaptionedFigure | None:
    """Return four methods on all images of all families, for the first screen."""
    methods = {facts.family: family_methods(condition, facts.family) for facts in families}
    shown = {}
    for variant in _leading(families):
        own = {facts.family: same_method(facts, variant) for facts in families}
        if all(own.values()):
            pairs = ((methods[family], v) for family, v in own.items() if v)
            pooled = pool({name: p for known, v in pairs for name, p in known[v].items()})
            shown[_short(variant.title)] = pooled.seeds[0]
    if not shown:
        return None
    images = sum(facts.images for facts in families)
    size = f"{images:,} images" + ", first seed" * bool(families[0].several)
    return _reliability(shown, key=key, kind="lead-reliability", panel=(2.3, 1.95), size=size)


def _leading(families: Sequence[FamilyFacts]) -> tuple[Variant, ...]:
    """Choose up to four: untuned, TPT, the last regulariser of the paper, the mean of views."""
    shown = families[0].shown if families else ()
    own = [v for v in shown if v.method in PAPER_METHODS and v.method not in ("zero-shot", "tpt")]
    first = [v for v in shown if v.method in ("zero-shot", "tpt") and not v.derived]
    views = [v for v in shown if v.is_mean_of_views and v.method != "zero-shot"]
    chosen = [*first, *own[-1:], *views[:1]]
    others = [v for v in shown if v not in chosen]
    return tuple([*chosen, *others][:LEADING])


def pooled_reliability(
    condition: Condition, facts: FamilyFacts, *, key: str, variants: Sequence[Variant] = ()
) -> CaptionedFigure:
    """Return the reliability of methods on all images of a family: of `variants`, else of each."""
    return _reliability(
        {_short(v.title): p for v, p in _pooled(condition, facts, variants=variants).items()},
        key=key,
        **_where(facts),
    )


def family_figures(
    condition: Condition, facts: FamilyFacts, *, key: str
) -> Iterator[CaptionedFigure]:
    """Yield reliability, risk, confidence, trade-off and streams on all images of a family."""
    where, methods = _where(facts), _pooled(condition, facts)
    yield pooled_reliability(condition, facts, key=f"{key}-reliability")
    yield _risk(methods, key=f"{key}-risk", **where)
    untuned = methods.pop(UNTUNED, None)
    if untuned is not None and methods:
        yield _confidence(methods, untuned, key=f"{key}-confidence", **where)
    # a chosen λ lies among the others
    values = {v: facts.values[v.label] for v in facts.variants if v.derived != "chosen"}
    points = [(v.look, n["accuracy"], n["ece"]) for v, n in values.items()]
    words = [f"{v.title}: ECE {100 * (n['ece'].value or 0):.1f} %" for v, n in values.items()]
    figure, _ = pareto_figure(points, title=caption("pareto", "title", **where))
    yield captioned("pareto", figure, key=f"{key}-pareto", words=words, **where)
    if positions := family_positions(condition, facts):
        where["size"] = facts.size  # of all seeds
        figure, words = along_figure(positions), along_words(positions)
        yield captioned("streams", figure, key=f"{key}-streams", words=words, **where)


def _pooled(
    condition: Condition, facts: FamilyFacts, *, variants: Sequence[Variant] = ()
) -> dict[Variant, Predictions]:
    methods = family_methods(condition, facts.family)
    chosen = tuple(variants) or facts.shown[:MOST_POOLED_PANELS]
    return {variant: pool(methods[variant]).seeds[0] for variant in chosen}


def _where(facts: FamilyFacts) -> dict[str, Any]:
    size = facts.size + (", first seed" if facts.several else "")
    return {"where": facts.title.lower(), "size": size}


def _short(title: str) -> str:
    """Leave out how λ or temperature were chosen."""
    return title.partition(" (λ leave")[0].partition(" (leave")[0].partition(" (fraction")[0]


def dataset_figures(condition: Condition, *, prefix: str) -> Iterator[CaptionedFigure]:
    """Yield the reliability of every data set that has images enough to show it."""
    for name in condition.datasets:
        variants = shown_variants(condition, name)[:MOST_PANELS]
        cells = {v: condition.cells[name, v, condition.seeds[0]] for v in variants}
        if not cells or min(cell.effective for cell in cells.values()) < LEAST_IMAGES:
            continue
        several = len(condition.stored_variants([name])) > len(cells)
        yield _reliability(
            {variant.title: cell.predictions for variant, cell in cells.items()},
            key=f"{prefix}{safe_name(name)}-reliability",
            choice=caption("reliability", "choice") if several else "",
            where=set_title(name),
            size=f"{condition.size_text([name])}, seed {condition.seeds[0]}",
            panel=None,
        )


def _reliability(
    methods: Mapping[str, Predictions],
    *,
    key: str,
    kind: str = "reliability",
    panel: tuple[float, float] | None = (2.6, 3.4),
    **facts: Any,
) -> CaptionedFigure:
    """Return the diagrams of methods by title; with a size of panels, as panels too."""
    panels: list[Panel] = []
    words = []
    for title, p in methods.items():
        bins = reliability_bins(p.confidence, p.correct)
        panels.append((title, bins, calibrated_band(p.confidence)))
        words.append(
            f"{title}: accuracy {100 * p.correct.mean():.1f} %, mean confidence "
            f"{100 * p.confidence.mean():.1f} %, ECE {100 * ece(p.confidence, p.correct):.1f} %"
        )
    parts = [reliability_row([one], size=panel, legend=False)[0] for one in panels] if panel else []
    figure = reliability_row(panels)[0]
    facts = {"choice": "", **facts}
    return captioned(kind, figure, key=key, words=words, panels=parts, **facts)


def _risk(methods: Mapping[Variant, Predictions], *, key: str, **facts: Any) -> CaptionedFigure:
    curves = [
        (v.look, v.title, risk_coverage_curve(p.confidence, p.correct)) for v, p in methods.items()
    ]
    words = [f"{title}: AURC {1000 * curve.aurc:.1f} ×10⁻³" for _, title, curve in curves]
    figure, _ = risk_coverage_figure(curves)
    return captioned("risk", figure, key=key, words=words, **facts)


def _confidence(
    methods: Mapping[Variant, Predictions], untuned: Predictions, *, key: str, **facts: Any
) -> CaptionedFigure:
    shifts, words, before = [], [], untuned.confidence
    for variant, p in methods.items():
        shifts.append((_short(variant.title), before, p.confidence, p.correct))
        change = f"{100 * before.mean():.1f} % before, {100 * p.confidence.mean():.1f} % after"
        words.append(f"{variant.title}: mean confidence {change}")
    figure, _ = confidence_shift(shifts)
    parts = [confidence_shift([one])[0] for one in shifts]
    return captioned(
        "confidence", figure, key=key, words=words, panels=parts, marks=str(MARKS), **facts
    )
