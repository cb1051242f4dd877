"""How tuning moves the text features: the split of figure 5 as bars, and as a drawing."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis.results import MethodGeometry
from dtpt.methods import method_title
from dtpt.report.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    RULE,
    add_legend,
    looks_for,
    new_figure,
    tidy,
)

_PARTS = (
    ("tangent", "tangent", BLUE, "////"),
    ("normal", "normal", ORANGE, "...."),
    ("binormal", "binormal", GREY, ""),
)


def movement_split(methods: Sequence[MethodGeometry], *, title: str = "") -> tuple[Figure, Axes]:
    """Draw, per method, the shares of the squared movement of all classes as stacked bars.

    Methods that move nothing (zero-shot) are left out.
    """
    moving = [method for method in methods if method.every_class.squared_length > 0]
    figure = new_figure(
        5.4, 0.42 * max(len(moving), 1) + 1.3, left=1.45, top=0.75 if title else 0.5
    )
    axes = figure.subplots()
    places = np.arange(len(moving))
    left = np.zeros(len(moving))
    for name, text, colour, hatch in _PARTS:
        shares = np.array([getattr(m.every_class, f"{name}_share") for m in moving])
        axes.barh(
            places,
            100 * shares,
            left=100 * left,
            height=0.62,
            facecolor=colour,
            alpha=0.75,
            hatch=hatch,
            edgecolor=INK,
            linewidth=0.5,
            label=text,
        )
        left = left + shares
    axes.set_yticks(places, [method_title(m.method, m.lambda_) for m in moving])
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="share of the squared movement (%)")
    axes.set_title(title)
    tidy(axes, grid="x")
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.06 if title else 1.0),
        ncols=3,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
    return figure, axes


def movement_drawing(methods: Sequence[MethodGeometry], *, title: str = "") -> tuple[Figure, Axes]:
    """Draw the arc between text and image features and where each method moves the text.

    Angles are the measured means; the movement (tangent along the arc, normal along the radius) is
    enlarged by one common factor, which the axis label states, because it is small.
    """
    figure = new_figure(4.8, 4.0, left=0.2)
    axes = figure.subplots()
    angle = float(np.mean([method.angle for method in methods]))
    text = math.pi / 2 + angle / 2
    arc = np.linspace(text + 0.35, text - angle - 0.35, 100)
    axes.plot(np.cos(arc), np.sin(arc), color=RULE, linewidth=1.2)
    _draw_feature(axes, text, name="text", marker="o")
    _draw_feature(axes, text - angle, name="image", marker="s")
    factor = _enlargement(methods)
    _draw_movements(axes, methods, text=text, factor=factor)
    axes.plot(0, 0, marker="+", color=INK, markersize=8, linestyle="none")
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.set_xlabel(f"mean angle {math.degrees(angle):.0f}°, movement enlarged {factor:.3g} times")
    axes.set_title(title)
    tidy(axes, grid="none")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.margins(0.12)
    add_legend(axes, loc="lower right")
    return figure, axes


def _draw_feature(axes: Axes, angle: float, *, name: str, marker: str) -> None:
    """Draw the radius to a point of the unit circle, and its name."""
    x, y = math.cos(angle), math.sin(angle)
    axes.plot([0, x], [0, y], color=RULE, linewidth=0.8)
    axes.plot(x, y, marker=marker, color=INK, markersize=6, linestyle="none")
    axes.annotate(name, (x, y), xytext=(0, 9), textcoords="offset points", ha="center", color=INK)


def _draw_movements(
    axes: Axes, methods: Sequence[MethodGeometry], *, text: float, factor: float
) -> None:
    """Draw where each method moves the text feature, which lies at the angle `text`."""
    start = np.array([math.cos(text), math.sin(text)])
    along = np.array([math.sin(text), -math.cos(text)])  # unit tangent toward the image
    looks = looks_for((method.method, method.lambda_) for method in methods)
    for method in methods:
        movement = method.every_class
        if movement.squared_length == 0:
            continue
        end = start + factor * (movement.tangent * along + movement.normal * start)
        look = looks[method.method, method.lambda_]
        axes.plot(
            [start[0], end[0]],
            [start[1], end[1]],
            color=look.colour,
            linestyle=look.dash,
            marker=look.marker,
            markevery=[1],
            markersize=6,
            label=method_title(method.method, method.lambda_),
        )


def _enlargement(methods: Sequence[MethodGeometry]) -> float:
    """Choose a factor of one digit that makes the longest drawn movement about a third of R."""
    longest = max(
        (math.hypot(m.every_class.tangent, m.every_class.normal) for m in methods), default=0.0
    )
    if longest == 0:
        return 1.0
    wanted = 0.35 / longest
    power = 10.0 ** math.floor(math.log10(wanted))
    return max(1.0, round(wanted / power) * power)
