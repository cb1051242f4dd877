"""The views of one picture as a mosaic: how sure the model is of each, and which ones it keeps."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dtpt.errors import ReportError
from dtpt.report.figures.style import BLUE, INK, RULE, new_figure


def view_mosaic(
    views: npt.NDArray[np.uint8],
    entropies: Sequence[float],
    kept: Sequence[int],
    *,
    columns: int = 16,
    title: str = "",
) -> tuple[Figure, list[Axes]]:
    """Draw all views with their entropies; kept ones have a thick frame and a ✓.

    Args:
        views: (count, height, width, 3) pictures, 0 to 255; view 0 is the original.
        entropies: Of the answer to each view, nats.
        kept: Indices of the views that enter the loss.
        columns: Views per row.
        title: Shown above; empty for what was kept.

    Returns:
        The figure and one axes per view, in the order given.

    Raises:
        ReportError: The numbers do not fit together.
    """
    if views.ndim != 4 or len(entropies) != len(views):
        raise ReportError(
            f"{len(entropies)} entropies do not belong to views of shape {views.shape}."
        )
    if any(not 0 <= index < len(views) for index in kept):
        raise ReportError(f"The kept views {list(kept)} are not among {len(views)}.")
    columns = min(columns, len(views))
    rows = math.ceil(len(views) / columns)
    figure = new_figure(
        0.62 * columns + 0.2, 0.80 * rows + 0.6, left=0.1, right=0.1, bottom=0.25, top=0.5
    )
    grid = figure.subplots(
        rows, columns, squeeze=False, gridspec_kw={"wspace": 0.14, "hspace": 0.3}
    ).ravel()
    for index, axes in enumerate(grid):
        if index >= len(views):
            axes.set_axis_off()
            continue
        _tile(axes, views[index], entropies[index], is_kept=index in kept, is_original=index == 0)
    figure.suptitle(
        title or f"{len(kept)} of {len(views)} views kept, those with the lowest entropy (nats)",
        fontsize=9,
        color=INK,
    )
    return figure, list(grid[: len(views)])


def _tile(
    axes: Axes,
    view: npt.NDArray[np.uint8],
    entropy: float,
    *,
    is_kept: bool,
    is_original: bool,
) -> None:
    axes.imshow(view, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(color=BLUE if is_kept else RULE, linewidth=2.6 if is_kept else 0.5)
    text = f"{entropy:.2f}" + (" ✓" if is_kept else "")
    weight = "bold" if is_kept else "normal"
    axes.set_xlabel(text, fontsize=6.5, color=INK, labelpad=1.5, fontweight=weight)
    if is_original:
        axes.set_title("original", fontsize=6.5, color=INK, pad=2)
