"""The reliability diagram: accuracy against confidence, with how many samples stand behind it.

Readable without colour: accuracy is a filled bar, the gap to perfect calibration a hatched one with
a dashed outline, and the histogram below shows which bars rest on few samples. The two colours are
the blue and orange that colour-blind readers tell apart.
"""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.metrics import ReliabilityBins

BLUE = "#0072B2"
ORANGE = "#D55E00"
GREY = "#555555"


def reliability_diagram(
    bins: ReliabilityBins, *, title: str = ""
) -> tuple[Figure, tuple[Axes, Axes]]:
    """Draw accuracy per confidence bin above a histogram of confidence.

    The figure belongs to no pyplot session: save it with `figure.savefig(path)`.

    Args:
        bins: what `dtpt.metrics.reliability_bins` returns.
        title: shown above the diagram; empty for none.

    Returns:
        The figure and its two axes, diagram and histogram.

    Example:
        >>> from dtpt.metrics import reliability_bins
        >>> figure, axes = reliability_diagram(reliability_bins([0.9, 0.6], [True, False]))
        >>> len(axes)
        2
    """
    figure = Figure(figsize=(4.2, 5.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    _draw_accuracy(upper, bins)
    _draw_histogram(lower, bins)
    if title:
        upper.set_title(title)
    return figure, (upper, lower)


def _draw_accuracy(axes: Axes, bins: ReliabilityBins) -> None:
    width = np.diff(bins.edges)
    left = bins.edges[:-1]
    used = bins.count > 0
    gap = bins.mean_confidence - bins.accuracy
    axes.bar(
        left[used],
        bins.accuracy[used],
        width[used],
        align="edge",
        facecolor=BLUE,
        edgecolor="black",
        linewidth=0.6,
        label="accuracy",
    )
    axes.bar(
        left[used],
        gap[used],
        width[used],
        bottom=bins.accuracy[used],
        align="edge",
        facecolor="none",
        edgecolor=ORANGE,
        hatch="////",
        linestyle="--",
        linewidth=0.8,
        label="gap to mean confidence",
    )
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1.2, label="perfect")
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.legend(loc="upper left", frameon=False, fontsize="small")


def _draw_histogram(axes: Axes, bins: ReliabilityBins) -> None:
    total = int(bins.count.sum())
    axes.bar(
        bins.edges[:-1],
        bins.count / total,
        np.diff(bins.edges),
        align="edge",
        color="#BBBBBB",
        edgecolor="black",
        linewidth=0.6,
    )
    mean_confidence = float(np.nansum(bins.count * np.nan_to_num(bins.mean_confidence)) / total)
    accuracy = float(np.nansum(bins.count * np.nan_to_num(bins.accuracy)) / total)
    axes.axvline(mean_confidence, color=ORANGE, linestyle="--", label="mean confidence")
    axes.axvline(accuracy, color=BLUE, linestyle="-", label="accuracy")
    axes.set(xlabel="confidence", ylabel=f"share of {total:,}")
    axes.legend(loc="best", frameon=False, fontsize="small")
