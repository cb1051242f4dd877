"""Accuracy against ECE over λ: which settings no other setting beats in both."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis.pareto import efficient
from dtpt.methods import lambda_text, method_title
from dtpt.report.figures.style import INK, add_legend_beside, looks_for, new_figure, tidy


@dataclass(frozen=True)
class TradeOff:
    """A method and λ with its accuracy and ECE, and whether no other beats it in both."""

    method: str
    lambda_: float | None
    accuracy: float
    ece: float
    efficient: bool


def trade_offs(
    values: Sequence[tuple[tuple[str, float | None], float, float]],
) -> list[TradeOff]:
    """Mark the settings that no other beats in both.

    Args:
        values: ((method, λ), accuracy, ECE), fractions.

    Example:
        >>> found = trade_offs([(("tpt", None), 0.6, 0.2), (("d-tpt", 1e5), 0.6, 0.1)])
        >>> [point.efficient for point in found]
        [False, True]
    """
    flags = efficient([accuracy for _, accuracy, _ in values], [ece for _, _, ece in values])
    return [
        TradeOff(*variant, accuracy, ece, flag)
        for (variant, accuracy, ece), flag in zip(values, flags, strict=True)
    ]


def pareto_figure(points: Sequence[TradeOff], *, title: str = "") -> tuple[Figure, Axes]:
    """Draw accuracy (x, %) against ECE (y, %); lower right is better.

    The points of a method are joined in the order of λ and grow with it. A point that no other
    beats is filled and ringed, the others are hollow.

    Args:
        points: What `trade_offs` returns.
        title: Shown above; empty for none.
    """
    figure = new_figure(4.8, 3.7)
    axes = figure.subplots()
    looks = looks_for((point.method, None) for point in points)
    for method in dict.fromkeys(point.method for point in points):
        mine = sorted((p for p in points if p.method == method), key=lambda p: p.lambda_ or 0.0)
        x, y = [100 * p.accuracy for p in mine], [100 * p.ece for p in mine]
        look = looks[method, None]
        axes.plot(x, y, color=look.colour, linestyle=look.dash, linewidth=1.1)
        for place, point in enumerate(mine):
            size = 5 + 5 * place / max(len(mine) - 1, 1)
            axes.plot(
                x[place],
                y[place],
                marker=look.marker,
                markersize=size,
                linestyle="none",
                color=look.colour,
                markerfacecolor=look.colour if point.efficient else "none",
                markeredgecolor=INK if point.efficient else look.colour,
                label=method_title(method) if place == 0 else None,
            )
        _name_ends(axes, mine, x=x, y=y)
    axes.set(xlabel="accuracy (%) → better", ylabel="ECE (%) ↓ better")
    axes.set_title(title)
    tidy(axes, grid="both")
    add_legend_beside(figure, axes)
    return figure, axes


def _name_ends(
    axes: Axes, points: Sequence[TradeOff], *, x: Sequence[float], y: Sequence[float]
) -> None:
    """Write λ beside the first and the last point of a curve."""
    if len(points) < 2:
        return
    for place in (0, -1):
        weight = points[place].lambda_
        if weight is not None:
            axes.annotate(
                f"λ={lambda_text(weight)}",
                (x[place], y[place]),
                xytext=(5, 5),
                textcoords="offset points",
                fontsize=7,
                color=INK,
            )
