"""The views of one picture as a mosaic: how sure the model is of each, and which ones it keeps."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dtpt.errors import ReportError
from dtpt.report.figures.style import BLUE, INK, new_figure

GAP = 0.07  # between views, as a share of their side
LABEL = 0.32  # room for the entropy under a view


def view_mosaic(
    views: npt.NDArray[np.uint8],
    entropies: Sequence[float],
    *,
    kept: Sequence[int],
    columns: int = 16,
    title: str = "",
) -> tuple[Figure, Axes]:
    """Draw all views with their entropies; kept ones have a thick frame and a bold number.

    Args:
        views: (count, height, width, 3) pictures, 0 to 255; view 0 is the original.
        entropies: Of the answer to each view, nats.
        kept: Indices of the views that enter the loss.
        columns: Views per row.
        title: Shown above; empty for what was kept.

    Returns:
        The figure and its axes, on which image i is view i.

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
    width, height = columns * (1 + GAP), rows * (1 + LABEL)
    figure = new_figure(
        0.6 * width + 0.2, 0.6 * height + 0.5, left=0.1, right=0.1, bottom=0.08, top=0.42
    )
    axes = figure.subplots()
    for index, view in enumerate(views):
        corner = ((index % columns) * (1 + GAP), (index // columns) * (1 + LABEL))
        _tile(axes, view, corner=corner, entropy=entropies[index], is_kept=index in kept)
    axes.set(xlim=(-GAP, width), ylim=(height, -GAP), aspect="equal")
    axes.set_axis_off()
    axes.set_title(
        title
        or f"view 0 is the original; {len(kept)} of {len(views)} views are kept, those with the "
        "lowest entropy (nats)",
        fontsize=9,
        color=INK,
    )
    return figure, axes


def _tile(
    axes: Axes,
    view: npt.NDArray[np.uint8],
    *,
    corner: tuple[float, float],
    entropy: float,
    is_kept: bool,
) -> None:
    left, top = corner
    axes.imshow(view, extent=(left, left + 1, top + 1, top), interpolation="nearest")
    if is_kept:
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=BLUE, linewidth=2.6))
    axes.text(
        left + 0.5,
        top + 1.06,
        f"{entropy:.2f}" + (" ✓" if is_kept else ""),
        ha="center",
        va="top",
        fontsize=6.5,
        color=INK,
        fontweight="bold" if is_kept else "normal",
    )
