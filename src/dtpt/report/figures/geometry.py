"""Figures of `dtpt analyze`: single dimensions, dispersion, movement of the text features."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis import Analysis, DatasetAnalysis
from dtpt.analysis.features import ModalityAnalysis, Sensitivity
from dtpt.analysis.geometry import MethodGeometry
from dtpt.analysis.scores import DispersionScatter
from dtpt.methods import method_title, parse_label
from dtpt.report.figures import CaptionedFigure, captioned
from dtpt.report.figures.style import (
    BLUE,
    GREY,
    INK,
    LEGEND,
    ORANGE,
    RULE,
    LookKey,
    Style,
    add_legend,
    add_legend_beside,
    looks_for,
    new_figure,
    tidy,
)
from dtpt.report.load import set_title

_MASKED = {
    "product": "without renormalisation",
    "text": "text side, renormalised",
    "image": "image side, renormalised",
}
_PARTS = (("tangent", BLUE, "////"), ("normal", ORANGE, "...."), ("binormal", GREY, ""))


def dimension_profile(
    text: ModalityAnalysis, image: ModalityAnalysis
) -> tuple[Figure, tuple[Axes, Axes]]:
    """Draw mean, 5-95 % band and dominant dimension of text (TDD) and image features (IDD)."""
    figure = new_figure(6.4, 4.0, left=0.75)
    axes = figure.subplots(2, 1, sharex=True, gridspec_kw={"hspace": 0.15})
    _profile(axes[0], text, name="text", mark="TDD", colour=ORANGE)
    _profile(axes[1], image, name="image", mark="IDD", colour=BLUE)
    axes[1].set_xlabel("dimension")
    return figure, (axes[0], axes[1])


def _profile(axes: Axes, side: ModalityAnalysis, *, name: str, mark: str, colour: str) -> None:
    profile, dominant = side.profile, side.dominant
    index = np.arange(len(profile.mean))
    axes.fill_between(
        index, profile.low, profile.high, color=colour, alpha=0.3, linewidth=0, label="5 to 95 %"
    )
    axes.plot(index, profile.mean, color=colour, linewidth=0.9, label="mean")
    is_right = dominant.index > len(index) / 2
    text = f"{mark} {dominant.index}: {dominant.mean:+z.2f}".replace("-", "−")
    at, (align, shift) = (dominant.index, dominant.mean), ("left", 8)
    if is_right:
        align, shift = "right", -8
    style: Style = {"ha": align, "va": "center", "fontsize": 8, "color": INK}
    axes.annotate(text, at, xytext=(shift, 0), textcoords="offset points", **style)
    axes.plot(*at, marker="o", markersize=4, color=INK, linestyle="none")
    axes.set(xlim=(-1, len(index)), ylabel=f"{name} feature value")
    tidy(axes)
    add_legend(axes, loc="upper left" if is_right else "upper right")


def sensitivity_bars(
    found: Sensitivity, *, text: int | None = None, image: int | None = None
) -> tuple[Figure, Axes]:
    """Draw the most sensitive dimensions as bars, dominant ones (TDD, IDD) hatched and named."""
    figure = new_figure(4.8, 2.9, left=0.75)
    axes = figure.subplots()
    marks = {image: ("IDD", "...."), text: ("TDD", "////")}
    for index, (dimension, value) in enumerate(found.top):
        name, hatch = marks.get(dimension, ("", ""))
        face, edge = ("none", ORANGE) if name else (BLUE, INK)
        bar: Style = {"facecolor": face, "edgecolor": edge, "hatch": hatch, "linewidth": 0.8}
        axes.bar(index, value, **bar)
        if name:
            style: Style = {"ha": "center", "va": "bottom", "fontsize": 8, "color": INK}
            axes.annotate(name, (index, value), **style)
    axes.set_xticks(range(len(found.top)), [str(dimension) for dimension, _ in found.top])
    axes.set(xlabel="dimension set to zero", ylabel="KL to the full answer (nats)")
    axes.set_title(_MASKED[found.masked])
    axes.margins(y=0.12)
    tidy(axes)
    return figure, axes


def dispersion_figure(scatter: DispersionScatter) -> tuple[Figure, Axes]:
    """Draw ATFD (x) against ECE (y, %), one point per data set, template and method."""
    figure = new_figure(4.8, 3.5)
    axes = figure.subplots()
    named = [(parse_label(point.label).name, point) for point in scatter.points]
    for (method, _), look in looks_for((name, None) for name, _ in named).items():
        x = [point.atfd for name, point in named if name == method]
        y = [100 * point.ece for name, point in named if name == method]
        marks: Style = {"markersize": 5.5, "markerfacecolor": "none", "markeredgewidth": 1.3}
        axes.plot(x, y, **look.marks, **marks, label=method_title(method))
    axes.set(xlabel="average text feature dispersion (ATFD)", ylabel="ECE (%)")
    values = (scatter.pearson, scatter.spearman, scatter.pearson_within)
    titles = zip(("Pearson", "Spearman", "within sets"), values, strict=True)
    words = (f"{title} {value:+z.2f}" for title, value in titles if value is not None)
    axes.set_title(", ".join(words).replace("-", "−"))
    tidy(axes, grid="both")
    add_legend_beside(figure, axes)
    return figure, axes


def movement_split(methods: Sequence[MethodGeometry]) -> tuple[Figure, Axes]:
    """Draw, per method that moves anything, the parts of the squared movement as stacked bars."""
    moving = _moving(methods)
    figure = new_figure(5.4, 0.42 * max(len(moving), 1) + 1.3, left=1.45, top=0.5)
    axes = figure.subplots()
    rows = np.arange(len(moving))
    left = np.zeros(len(moving))
    for name, colour, hatch in _PARTS:
        parts = np.array([getattr(m.every_class, f"{name}_fraction") for m in moving])
        style: Style = {"facecolor": colour, "alpha": 0.75, "hatch": hatch, "edgecolor": INK}
        axes.barh(rows, 100 * parts, 0.62, 100 * left, **style, linewidth=0.5, label=name)
        left = left + parts
    axes.set_yticks(rows, [method_title(m.label) for m in moving])
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="part of the squared movement (%)")
    tidy(axes, grid="x")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, **LEGEND)
    return figure, axes


def _moving(methods: Sequence[MethodGeometry]) -> list[MethodGeometry]:
    return [method for method in methods if method.every_class.squared_length > 0]


def movement_drawing(methods: Sequence[MethodGeometry]) -> tuple[Figure, Axes]:
    """Draw the arc between text and image features and where each method moves the text.

    The movement (tangent along the arc, normal along the radius) is enlarged by one common factor.
    """
    figure = new_figure(4.8, 4.0, left=0.2)
    axes = figure.subplots()
    angle = float(np.mean([method.angle for method in methods]))
    start = math.pi / 2 + angle / 2  # where the text lies on the arc
    arc = np.linspace(start + 0.35, start - angle - 0.35, 100)
    axes.plot(np.cos(arc), np.sin(arc), color=RULE, linewidth=1.2)
    for name, at, marker in (("text", start, "o"), ("image", start - angle, "s")):
        x, y = math.cos(at), math.sin(at)
        axes.plot([0, x], [0, y], color=RULE, linewidth=0.8)
        axes.plot(x, y, marker=marker, color=INK, markersize=6, linestyle="none")
        style: Style = {"textcoords": "offset points", "ha": "center", "color": INK}
        axes.annotate(name, (x, y), xytext=(0, 9), **style)
    factor = _enlargement(methods)
    _draw_movements(axes, _moving(methods), start=start, factor=factor)
    axes.plot(0, 0, marker="+", color=INK, markersize=8, linestyle="none")
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.set_xlabel(f"mean angle {math.degrees(angle):.0f}°, movement enlarged {factor:.3g} times")
    tidy(axes, grid="none")
    axes.spines[:].set_visible(False)
    axes.margins(0.12)
    add_legend(axes, loc="lower right")
    return figure, axes


def _draw_movements(
    axes: Axes, methods: Sequence[MethodGeometry], *, start: float, factor: float
) -> None:
    """Draw where each method moves the text feature, which lies at the angle `start`."""
    text = np.array([math.cos(start), math.sin(start)])
    along = np.array([math.sin(start), -math.cos(start)])  # unit tangent toward the image
    looks = looks_for(_look_key(method.label) for method in methods)
    for method in methods:
        movement = method.every_class
        end = text + factor * (movement.tangent * along + movement.normal * text)
        style = looks[_look_key(method.label)].line | {"markevery": [1], "markersize": 6}
        axes.plot(*zip(text, end, strict=True), **style, label=method_title(method.label))


def _look_key(label: str) -> LookKey:
    parsed = parse_label(label)
    return (label, None) if parsed.lambda_ is None else (parsed.name, parsed.lambda_)


def _enlargement(methods: Sequence[MethodGeometry]) -> float:
    """Choose a factor of one digit that makes the longest drawn movement about a third of R."""
    lengths = (math.hypot(m.every_class.tangent, m.every_class.normal) for m in methods)
    longest = max(lengths, default=0.0)
    if longest == 0:
        return 1.0
    wanted = 0.35 / longest
    power = 10.0 ** math.floor(math.log10(wanted))
    return max(1.0, round(wanted / power) * power)


def analysis_figures(analysis: Analysis) -> Iterator[CaptionedFigure]:
    """Yield the figures of an analysis file; those of further data sets are folded."""
    scatter = analysis.dispersion
    if scatter.points:
        words = [f"{len(scatter.points)} points", f"Pearson correlation {scatter.pearson}"]
        figure, _ = dispersion_figure(scatter)
        yield captioned("dispersion", figure, key="analysis-dispersion", words=words)
    for index, entry in enumerate(analysis.datasets):
        yield from _of_set(entry, f"analysis-{index}", is_folded=index > 0)


def _of_set(entry: DatasetAnalysis, key: str, *, is_folded: bool) -> Iterator[CaptionedFigure]:
    name = set_title(entry.dataset)
    made = partial(captioned, dataset=name, topic=name if is_folded else "")
    dominant = {"text": entry.text.dominant, "image": entry.image.dominant}
    words = [f"{k}-dominant dimension {d.index}, mean {d.mean:.3f}" for k, d in dominant.items()]
    figure, _ = dimension_profile(entry.text, entry.image)
    yield made("profile", figure, key=f"{key}-profile", words=words)
    for chart in entry.sensitivity:
        words = [f"dimension {dimension}: {value:.3g} nats" for dimension, value in chart.top]
        bars, _ = sensitivity_bars(chart, **{k: d.index for k, d in dominant.items()})
        yield made("sensitivity", bars, key=f"{key}-sensitivity-{chart.masked}", words=words)
    if moving := _moving(entry.geometry):
        words = [_movement_words(method) for method in moving]
        split, _ = movement_split(entry.geometry)
        yield made("movement", split, key=f"{key}-movement", words=words)
        drawing, _ = movement_drawing(entry.geometry)
        yield made("drawing", drawing, key=f"{key}-drawing", words=words)


def _movement_words(method: MethodGeometry) -> str:
    fractions = ((name, getattr(method.every_class, f"{name}_fraction")) for name, *_ in _PARTS)
    words = ", ".join(f"{name} {100 * value:.1f} %" for name, value in fractions)
    return f"{method_title(method.label)}: {words}"
