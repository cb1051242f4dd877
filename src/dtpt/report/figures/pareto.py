"""Accuracy against ECE over λ: which settings no other setting beats in both."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis.scores import efficient
from dtpt.data import family_title
from dtpt.methods import lambda_text, method_title
from dtpt.report.facts import MEAN, MeanFacts
from dtpt.report.figures import CaptionedFigure, captioned
from dtpt.report.figures.style import (
    INK,
    LookKey,
    Style,
    add_legend_beside,
    looks_for,
    new_figure,
    tidy,
)
from dtpt.report.words import caption


@dataclass(frozen=True)
class TradeOff:
    """A method and λ with its accuracy and ECE, and whether no other beats it in both."""

    method: str
    lambda_: float | None
    accuracy: float
    ece: float
    efficient: bool


def trade_offs(values: Sequence[tuple[LookKey, float, float]]) -> list[TradeOff]:
    """Mark the settings, ((method, λ), accuracy, ECE), that no other beats in both."""
    flags = efficient([accuracy for _, accuracy, _ in values], [ece for _, _, ece in values])
    return [
        TradeOff(*key, accuracy, ece, flag)
        for (key, accuracy, ece), flag in zip(values, flags, strict=True)
    ]


def pareto_figure(points: Sequence[TradeOff], *, title: str = "") -> tuple[Figure, Axes]:
    """Draw accuracy (x, %) against ECE (y, %); lower right is better.

    The points of a method are joined in the order of λ and grow with it. A point that no other
    beats is filled and ringed, the others are hollow.
    """
    figure = new_figure(4.8, 3.7)
    axes = figure.subplots()
    looks = looks_for((point.method, None) for point in points)
    for method in dict.fromkeys(point.method for point in points):
        own = sorted((p for p in points if p.method == method), key=lambda p: p.lambda_ or 0.0)
        x, y = [100 * p.accuracy for p in own], [100 * p.ece for p in own]
        look = looks[method, None]
        axes.plot(x, y, color=look.colour, linestyle=look.dash, linewidth=1.1)
        for index, point in enumerate(own):
            size = 5 + 5 * index / max(len(own) - 1, 1)
            fill, rim = (look.colour, INK) if point.efficient else ("none", look.colour)
            mark: Style = {"markersize": size, "markerfacecolor": fill, "markeredgecolor": rim}
            label = method_title(method) if index == 0 else None
            axes.plot(x[index], y[index], **look.marks, **mark, label=label)
        _name_ends(axes, own, x=x, y=y)
    axes.set(xlabel="accuracy (%) → better", ylabel="ECE (%) ↓ better")
    axes.set_title(title)
    tidy(axes, grid="both")
    add_legend_beside(figure, axes)
    return figure, axes


def _name_ends(
    axes: Axes, points: Sequence[TradeOff], *, x: Sequence[float], y: Sequence[float]
) -> None:
    """Write λ beside the first and the last point of a curve."""
    for index in (0, -1) if len(points) > 1 else ():
        lambda_, at = points[index].lambda_, (x[index], y[index])
        if lambda_ is not None:
            style: Style = {"xytext": (5, 5), "fontsize": 7, "color": INK}
            text = f"λ={lambda_text(lambda_)}"
            axes.annotate(text, at, textcoords="offset points", **style)


def pareto_overview(means: MeanFacts, *, prefix: str) -> list[CaptionedFigure]:
    """Return accuracy against ECE of all methods of a family; nothing for fewer than two."""
    values, words = [], []
    for variant in means.variants:
        accuracy, ece = (means.numbers[variant, m, MEAN].value for m in ("accuracy", "ece"))
        # a chosen λ lies among the others
        if variant.derived != "chosen" and accuracy is not None and ece is not None:
            values.append((variant.look, accuracy, ece))
            words.append(f"{variant.title} {100 * accuracy:.1f} % and {100 * ece:.1f} %")
    if len(values) < 2:
        return []
    family = family_title(means.family).lower()
    title = caption("pareto", "title", family=family)
    return [
        captioned(
            "pareto",
            pareto_figure(trade_offs(values), title=title)[0],
            key=f"{prefix}pareto-{means.family}",
            alternative=f"Accuracy and ECE: {'; '.join(words)}.",
            family=family,
            size=means.condition.size_text(means.sets),
        )
    ]
