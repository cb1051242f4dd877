"""The style of all figures: colours, dashes, markers, hatches, axes.

The colours are of middle lightness, to be visible on white paper and on a dark screen; neighbours
differ in lightness too. A page replaces `INK` and `RULE` by its own colours.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from dtpt.methods import method_look, parse_label

Style = dict[str, Any]
"""Arguments of matplotlib."""

INK = "#1b1f24"
RULE = "#c6cbd2"
PAPER = "#ffffff"
BLUE = "#2c7fb8"
ORANGE = "#d9612b"
PURPLE = "#a5609b"
GOLD = "#c2951a"
GREY = "#85898f"
LEGEND_WIDTH = 1.45  # inches
LEGEND: Style = {"frameon": False, "fontsize": 8, "labelcolor": INK}
BAR: Style = {"align": "edge", "edgecolor": INK, "linewidth": 0.5}

LookKey = tuple[str, float | None]
"""A method and its λ."""
Corner = Literal["best", "upper left", "upper right", "lower right"]


@dataclass(frozen=True)
class Series:
    colour: str
    marker: str
    dash: str | tuple[int, tuple[float, ...]]
    hatch: str

    @property
    def line(self) -> Style:
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker}

    @property
    def marks(self) -> Style:
        return {"color": self.colour, "linestyle": "none", "marker": self.marker}


# for methods that bring no colour of their own
_FURTHER = (
    Series("#5a6fb0", "p", (0, (7, 2, 1, 2)), "++"),
    Series("#7d5ba6", "H", (0, (3, 3)), "o"),
    Series("#a0662f", "2", (0, (2, 2)), "--"),
    Series("#3f8f4f", "3", (0, (8, 2)), "|"),
    Series("#b5483f", "4", (0, (4, 1, 1, 1, 1, 1)), "*"),
    Series("#4f7f8f", "+", (0, (1, 2)), "O"),
)
# for the second and further variants of one method in one figure
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
_SHADES = (0.45, -0.4, 0.7, -0.65, 0.25, -0.2)  # towards white above 0, towards black below


def looks_for(variants: Iterable[LookKey]) -> dict[LookKey, Series]:
    """Return a look for every (method, λ), no two alike as long as there are enough.

    Methods differ in colour, marker, dash and hatch. Variants of one method (other λ, other
    modifiers) keep its dash and hatch and differ in the shade of its colour and in the marker.
    """
    wanted = list(dict.fromkeys(variants))
    groups: dict[str, list[LookKey]] = {}
    for variant in wanted:
        groups.setdefault(parse_label(variant[0]).base, []).append(variant)
    further = itertools.cycle(_FURTHER)
    bases = {base: _base_look(base) or next(further) for base in groups}
    taken = {look.marker for look in bases.values()}
    free = [marker for marker in _MARKERS if marker not in taken]
    spare = itertools.cycle(free or _MARKERS)  # many methods take all of them
    looks = {}
    for base, members in groups.items():
        first, *others = sorted(members, key=lambda v: (v[0], v[1] or 0.0))
        looks[first] = bases[base]
        for other, shade in zip(others, itertools.cycle(_SHADES), strict=False):
            colour = _shaded(bases[base].colour, shade)
            looks[other] = replace(bases[base], colour=colour, marker=next(spare))
    return {variant: looks[variant] for variant in wanted}


def _base_look(base: str) -> Series | None:
    look = method_look(base)
    return Series(look.colour, look.marker or "o", look.dash, look.hatch) if look.colour else None


def _shaded(colour: str, shade: float) -> str:
    """Mix a colour with white (shade above 0) or black (below 0)."""
    target = 1.0 if shade > 0 else 0.0
    red, green, blue = (part + abs(shade) * (target - part) for part in to_rgb(colour))
    return to_hex((red, green, blue))


def new_figure(
    width: float,
    height: float,
    *,
    left: float = 0.62,
    right: float = 0.12,
    bottom: float = 0.52,
    top: float = 0.34,
) -> Figure:
    """Return an empty figure that belongs to no pyplot session; sizes and margins in inches.

    Margins are given instead of measured: automatic layout doubles the time of every figure.
    """
    figure = Figure(figsize=(width, height), facecolor="none")
    upper, lower = 1 - top / height, bottom / height
    figure.subplots_adjust(left=left / width, right=1 - right / width, bottom=lower, top=upper)
    return figure


def tidy(axes: Axes, *, grid: str = "y") -> None:
    """Take away what carries no information; draw faint rules along one or both axes."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=INK, linewidth=0.8)
    axes.tick_params(colors=INK, labelsize=8, width=0.8, length=3)
    axes.title.set(color=INK, fontsize=10)
    axes.set_axisbelow(True)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        axis.label.set(color=INK, fontsize=9)
        if grid in (name, "both"):
            axis.grid(True, color=RULE, linewidth=0.6)


def add_legend(axes: Axes, *, loc: Corner = "best") -> None:
    axes.legend(loc=loc, handlelength=2.4, **LEGEND)


def add_legend_beside(figure: Figure, axes: Axes) -> None:
    """Widen the figure and put the legend there, where it covers no point."""
    width, height = figure.get_size_inches()
    margins, ratio = figure.subplotpars, width / (width + LEGEND_WIDTH)
    figure.set_size_inches(width + LEGEND_WIDTH, height)
    figure.subplots_adjust(left=margins.left * ratio, right=margins.right * ratio)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.4, **LEGEND)
