"""How tuning changes confidence: the untuned prompt's against the method's, picture by picture."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.report.figures.style import BLUE, INK, ORANGE, add_legend, new_figure, tidy

POINTS = 250  # drawn per panel, evenly spaced in the input; the caption gives the number of all
FloatArray = npt.NDArray[np.float64]


def confidence_shift(
    panels: Sequence[tuple[str, FloatArray, FloatArray, npt.NDArray[np.bool_]]], *, title: str = ""
) -> tuple[Figure, list[Axes]]:
    """Draw confidence before (x) and after tuning (y), right and wrong answers apart.

    Points above the diagonal became more confident. Right answers are dots, wrong ones crosses.

    Args:
        panels: (heading, confidence before, confidence after, whether the answer after is right).
        title: Shown above all; empty for none.
    """
    figure = new_figure(max(2.2 * len(panels) + 0.2, 2.7), 2.9, top=0.75 if title else 0.52)
    row = figure.subplots(
        1, len(panels), sharex=True, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.12}
    )[0]
    for axes, (heading, before, after, correct) in zip(row, panels, strict=True):
        chosen = np.unique(np.linspace(0, len(before) - 1, POINTS).astype(int))
        _scatter(axes, before=before[chosen], after=after[chosen], correct=correct[chosen])
        change = f"{100 * float((after - before).mean()):+.1f}".replace("-", "−")
        axes.set_title(f"{heading}\nmean change {change} points")
        tidy(axes, grid="both")
    row[0].set_ylabel("confidence after tuning")
    add_legend(row[0], loc="upper left")
    figure.supxlabel("confidence of the untuned prompt", fontsize=9, color=INK)
    if title:
        figure.suptitle(title, fontsize=10, color=INK)
    return figure, list(row)


def _scatter(
    axes: Axes, *, before: FloatArray, after: FloatArray, correct: npt.NDArray[np.bool_]
) -> None:
    axes.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1.0)
    for wanted, colour, marker, text in (
        (True, BLUE, "o", "right"),
        (False, ORANGE, "x", "wrong"),
    ):
        mask = correct == wanted
        axes.plot(
            before[mask],
            after[mask],
            linestyle="none",
            marker=marker,
            markersize=2.6,
            markerfacecolor="none",
            markeredgewidth=0.7,
            color=colour,
            label=text,
        )
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
