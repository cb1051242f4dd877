"""The reliability diagram: accuracy against confidence, with how many samples stand behind it.

Readable without colour: accuracy is a filled bar, the gap to perfect calibration a hatched one with
a dashed outline, and the histogram below shows which bars rest on few samples.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dtpt.metrics import CalibratedBand, ReliabilityBins
from dtpt.report.figures.style import BLUE, GREY, INK, ORANGE, add_legend, new_figure, tidy

AxesPair = tuple[Axes, Axes]


def reliability_diagram(
    bins: ReliabilityBins, *, title: str = "", band: CalibratedBand | None = None
) -> tuple[Figure, AxesPair]:
    """Draw accuracy per confidence bin above a histogram of confidence.

    The figure belongs to no pyplot session: save it with `figure.savefig(path)`.

    Args:
        bins: what `dtpt.metrics.reliability_bins` returns.
        title: shown above the diagram; empty for none.
        band: what `dtpt.metrics.calibrated_band` returns for the same bins: where the accuracy of a
            perfectly calibrated model would lie; bars that end inside are explained by chance.

    Returns:
        The figure and its two axes, diagram and histogram.

    Example:
        >>> from dtpt.metrics import reliability_bins
        >>> figure, axes = reliability_diagram(reliability_bins([0.9, 0.6], [True, False]))
        >>> len(axes)
        2
    """
    figure = new_figure(4.2, 5.0)
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[3, 1], gridspec_kw={"hspace": 0.1}
    )
    _draw_pair(upper, lower, bins=bins, title=title)
    if band is not None:
        _draw_band(upper, bins, band=band)
    add_legend(upper, loc="upper left")
    add_legend(lower)
    return figure, (upper, lower)


def reliability_row(
    panels: Sequence[tuple[str, ReliabilityBins]],
    *,
    title: str = "",
    bands: Sequence[CalibratedBand] = (),
) -> tuple[Figure, list[AxesPair]]:
    """Draw the diagrams of several methods side by side on common axes.

    Args:
        panels: (heading, bins) of each method.
        title: shown above all; empty for none.
        bands: for each method where a perfectly calibrated model would lie, or nothing.

    Returns:
        The figure and its (diagram, histogram) pairs, in the order given.
    """
    figure = new_figure(max(2.05 * len(panels) + 0.3, 2.6), 3.6, top=0.62 if title else 0.34)
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
        _draw_pair(upper, lower, bins=bins, title=heading)
        upper.set_ylabel("" if column else "accuracy")
        lower.set_ylabel("" if column else "share")
        if bands:
            _draw_band(upper, bins, band=bands[column])
    add_legend(pairs[0][0], loc="upper left")
    if title:
        figure.suptitle(title, fontsize=10, color=INK)
    return figure, pairs


def _draw_pair(upper: Axes, lower: Axes, *, bins: ReliabilityBins, title: str) -> None:
    _draw_accuracy(upper, bins)
    _draw_histogram(lower, bins)
    upper.set_title(title)
    for axes in (upper, lower):
        tidy(axes)


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
        edgecolor=INK,
        linewidth=0.5,
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
        label="gap",
    )
    axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.0, label="perfect")
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])


def _draw_band(axes: Axes, bins: ReliabilityBins, *, band: CalibratedBand) -> None:
    """Mark the accuracies of a perfectly calibrated model by an upright bracket in each bin."""
    used = bins.count > 0
    middle = (bins.edges[:-1] + bins.edges[1:])[used] / 2
    low, high = band.low[used], band.high[used]
    axes.errorbar(
        middle,
        (low + high) / 2,
        yerr=(high - low) / 2,
        fmt="none",
        ecolor=INK,
        elinewidth=1.0,
        capsize=2.0,
        label="by chance",
    )


def _draw_histogram(axes: Axes, bins: ReliabilityBins) -> None:
    total = int(bins.count.sum())
    axes.bar(
        bins.edges[:-1],
        bins.count / total,
        np.diff(bins.edges),
        align="edge",
        color=GREY,
        alpha=0.6,
        edgecolor=INK,
        linewidth=0.5,
    )
    mean_confidence = float(np.nansum(bins.count * np.nan_to_num(bins.mean_confidence)) / total)
    accuracy = float(np.nansum(bins.count * np.nan_to_num(bins.accuracy)) / total)
    axes.axvline(mean_confidence, color=ORANGE, linestyle="--", label="mean confidence")
    axes.axvline(accuracy, color=BLUE, linestyle="-", label="accuracy")
    axes.set(xlabel="confidence", ylabel=f"share of {total:,}")
    axes.yaxis.set_major_locator(MaxNLocator(2))
