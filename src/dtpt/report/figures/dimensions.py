"""Single dimensions: feature values (figure 2) and what masking each does (figure 3a)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.analysis.feature_results import ModalityAnalysis, Sensitivity
from dtpt.report.figures.style import BLUE, INK, ORANGE, add_legend, new_figure, tidy


def dimension_profile(
    text: ModalityAnalysis, image: ModalityAnalysis, *, title: str = ""
) -> tuple[Figure, tuple[Axes, Axes]]:
    """Draw mean, 5-95 % band and dominant dimension of text (above) and image features (below).

    Args:
        text: Of the class features (its spike is the TDD).
        image: Of the image features (IDD).
        title: Shown above; empty for none.
    """
    figure = new_figure(6.4, 4.0, left=0.75)
    axes = figure.subplots(2, 1, sharex=True, gridspec_kw={"hspace": 0.15})
    _profile(axes[0], text, name="text", mark="TDD", colour=ORANGE)
    _profile(axes[1], image, name="image", mark="IDD", colour=BLUE)
    axes[1].set_xlabel("dimension")
    axes[0].set_title(title)
    return figure, (axes[0], axes[1])


def _profile(axes: Axes, found: ModalityAnalysis, *, name: str, mark: str, colour: str) -> None:
    profile, dominant = found.profile, found.dominant
    index = np.arange(len(profile.mean))
    axes.fill_between(
        index, profile.low, profile.high, color=colour, alpha=0.3, linewidth=0, label="5 to 95 %"
    )
    axes.plot(index, profile.mean, color=colour, linewidth=0.9, label="mean")
    axes.annotate(
        f"{mark} {dominant.index}: {dominant.mean:+.2f}".replace("-", "−"),
        (dominant.index, dominant.mean),
        xytext=(-8, 0) if dominant.index > len(index) / 2 else (8, 0),
        textcoords="offset points",
        ha="right" if dominant.index > len(index) / 2 else "left",
        va="center",
        fontsize=8,
        color=INK,
    )
    axes.plot(dominant.index, dominant.mean, marker="o", markersize=4, color=INK, linestyle="none")
    axes.set(xlim=(-1, len(index)), ylabel=f"{name} feature value")
    tidy(axes)
    add_legend(axes, loc="upper right" if dominant.index < len(index) / 2 else "upper left")


_WHAT = {
    "product": "without renormalisation",
    "text": "text side, renormalised",
    "image": "image side, renormalised",
}


def sensitivity_bars(
    found: Sensitivity, *, text: int | None = None, image: int | None = None, title: str = ""
) -> tuple[Figure, Axes]:
    """Draw the most sensitive dimensions as bars, dominant ones hatched and named.

    Args:
        found: Values in nats; its `top` is drawn, largest first.
        text: Index of the text-dominant dimension.
        image: Index of the image-dominant dimension.
        title: Shown above; empty for how the masking was done.
    """
    figure = new_figure(4.8, 2.9, left=0.75)
    axes = figure.subplots()
    marks = {image: ("IDD", "...."), text: ("TDD", "////")}
    for place, entry in enumerate(found.top):
        name, hatch = marks.get(entry.dimension, ("", ""))
        axes.bar(
            place,
            entry.value,
            facecolor=BLUE if not name else "none",
            edgecolor=INK if not name else ORANGE,
            hatch=hatch,
            linewidth=0.8,
        )
        if name:
            axes.annotate(
                name, (place, entry.value), ha="center", va="bottom", fontsize=8, color=INK
            )
    axes.set_xticks(range(len(found.top)), [str(entry.dimension) for entry in found.top])
    axes.set(xlabel="dimension set to zero", ylabel="KL to the full answer (nats)")
    axes.set_title(title or _WHAT[found.masked])
    axes.margins(y=0.12)
    tidy(axes)
    return figure, axes
