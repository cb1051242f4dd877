"""Accuracy and calibration along streams: what methods with state gain and lose by position."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis.positions import SO_FAR, Facts
from dtpt.methods import method_title
from dtpt.report.figures.style import (
    GREY,
    INK,
    LEGEND,
    Series,
    Style,
    looks_for,
    new_figure,
    tidy,
)

GAP = "confidence − accuracy (%)"
QUANTITIES = {"gain": "accuracy − zero-shot's (%)", "gap": GAP, "ece": "ECE (%)"}
PER_LINE = 3  # methods in a line of the legend


def along_figure(positions: Sequence[Facts]) -> Figure:
    """Draw accuracy, gap and ECE along streams: a row for each, a column for each kind of order.

    Lines with marks are of each tenth of the streams, dashed ones of all images up to its end; grey
    is zero-shot on the same images.
    """
    families = list(dict.fromkeys(facts["family"] for facts in positions))
    orders = list(dict.fromkeys(facts["order"] for facts in positions))
    rows = [(family, quantity) for family in families for quantity in QUANTITIES]
    looks = looks_for((facts["method"], None) for facts in positions)
    lines = -(-(len(looks) + 2) // PER_LINE)
    bottom = 0.55 + 0.2 * lines  # for the legend
    size = max(2.7 * len(orders) + 0.6, 5.0), 2.0 * len(rows) + bottom
    figure = new_figure(*size, left=0.72, bottom=bottom)
    grid = figure.subplots(len(rows), len(orders), sharex=True, sharey="row", squeeze=False)
    figure.subplots_adjust(hspace=0.14, wspace=0.1)
    for (family, quantity), line in zip(rows, grid, strict=True):
        for order, axes in zip(orders, line, strict=True):
            own = [f for f in positions if (f["family"], f["order"]) == (family, order)]
            for facts in own:
                _draw_along(axes, facts, quantity=quantity, look=looks[facts["method"], None])
            if own:
                _draw_untuned(axes, own[0], quantity=quantity)
            title = f"{family}, {order}" if quantity == next(iter(QUANTITIES)) else ""
            axes.set_title(title, loc="left", fontsize=9, color=INK)
            tidy(axes, grid="both")
        line[0].set_ylabel(QUANTITIES[quantity])
    for axes in grid[-1]:
        axes.set_xlabel("position in the stream (%)")
    grid[0, 0].plot([], [], color=INK, linestyle="--", label="from the start")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=PER_LINE, **LEGEND)
    return figure


def _draw_along(axes: Axes, facts: Facts, *, quantity: str, look: Series) -> None:
    x, values = _positions(facts[quantity])
    _, low = _positions(facts[quantity], "low")
    _, high = _positions(facts[quantity], "high")
    axes.fill_between(x, low, high, color=look.colour, alpha=0.12, linewidth=0)
    style: Style = {"color": look.colour, "linewidth": 1.1}
    axes.plot(x, values, marker=look.marker, markersize=3, label=facts["method"], **style)
    axes.plot(*_positions(facts[f"{quantity}{SO_FAR}"]), linestyle="--", **style)


def _draw_untuned(axes: Axes, facts: Facts, *, quantity: str) -> None:
    if quantity == "gain":
        axes.axhline(0, color=GREY, linewidth=1.1, label="zero-shot")
        return
    for suffix, dash in (("", "-"), (SO_FAR, "--")):
        x, values = _positions(facts[f"zero_shot_{quantity}{suffix}"])
        axes.plot(x, values, color=GREY, linewidth=1.1, linestyle=dash)


def _positions(windows: Sequence[Facts], key: str = "value") -> tuple[list[float], list[float]]:
    """Return ends of windows and what is known there, in percent."""
    x = [100 * (k + 1) / len(windows) for k in range(len(windows))]
    return x, [math.nan if each[key] is None else 100 * each[key] for each in windows]


def along_words(positions: Sequence[Facts]) -> list[str]:
    """Return the gap at both ends of the streams, in words."""
    texts = []
    for facts in positions:
        known = [
            f"{100 * each['value']:+.1f}" for each in facts["gap"] if each["value"] is not None
        ]
        title = method_title(facts["method"])
        texts.append(f"{title}: gap {known[0]} % in the first tenth, {known[-1]} % in the last")
    return texts
