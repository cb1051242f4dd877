"""The views of one image as a mosaic: the entropy of each, and which ones enter the tuning."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dtpt.data import Dataset
from dtpt.errors import ReportError
from dtpt.report.figures import CaptionedFigure, captioned
from dtpt.report.figures.style import BLUE, INK, Style, new_figure
from dtpt.report.load import set_title
from dtpt.tuning.settings import TuningSettings

if TYPE_CHECKING:
    from dtpt.clip.model import Clip

GAP = 0.07  # between views, as a fraction of their side
LABEL = 0.32  # room for the entropy under a view
COLUMNS = 16


def view_mosaic(
    views: npt.NDArray[np.uint8], entropies: Sequence[float], *, kept: Sequence[int]
) -> tuple[Figure, Axes]:
    """Draw all views (count, height, width, 3) with the entropies of their predictions, in nats.

    View 0 is the original; the kept ones have a thick frame and a bold number.
    """
    if views.ndim != 4 or len(entropies) != len(views):
        raise ReportError(f"{len(entropies)} entropies do not match views of shape {views.shape}.")
    if any(not 0 <= index < len(views) for index in kept):
        raise ReportError(f"The kept views {list(kept)} are not among {len(views)}.")
    columns = min(COLUMNS, len(views))
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
    which = f"{len(kept)} of {len(views)} views are kept, those with the lowest entropy (nats)"
    axes.set_title(f"view 0 is the original; {which}", fontsize=9, color=INK)
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
    text, weight = (f"{entropy:.2f} ✓", "bold") if is_kept else (f"{entropy:.2f}", "normal")
    style: Style = {
        "ha": "center",
        "va": "top",
        "fontsize": 6.5,
        "color": INK,
        "fontweight": weight,
    }
    axes.text(left + 0.5, top + 1.06, text, **style)


def mosaic_figure(model: "Clip", dataset: Dataset, *, views: int, seed: int) -> CaptionedFigure:
    """Encode the views of a data set's first image and draw them with their entropies."""
    import torch

    from dtpt.images import pixel_digest
    from dtpt.methods.tpt import entropy, select_confident
    from dtpt.views import ViewRecipe, make_views

    sample = dataset.samples[0]
    image = sample.image.open()
    pixels = make_views(
        image,
        recipe=ViewRecipe(count=views, augmix=dataset.augmix),
        seed=seed,
        image_id=pixel_digest(image),
        preprocessing=model.preprocessing,
    )
    with torch.inference_mode():
        features = model.encode_views(torch.from_numpy(pixels))
        texts = model.encode_text([f"a photo of a {name}." for name in dataset.classes])
        logits = model.logit_scale * features @ texts.T  # (N, C)
        entropies = entropy(logits).tolist()
        kept = select_confident(logits, TuningSettings().rho).tolist()
    truth = dataset.classes[sample.label]
    return captioned(
        "views",
        view_mosaic(_as_bytes(pixels, model), entropies, kept=kept)[0],
        key="views",
        alternative=f"{views} views of a {truth}; entropies from {min(entropies):.2f} to "
        f"{max(entropies):.2f} nats; kept are views {', '.join(map(str, sorted(kept)))}.",
        views=views,
        others=views - 1,
        truth=truth,
        dataset=set_title(dataset.name),
    )


def _as_bytes(pixels: npt.NDArray[np.float32], model: "Clip") -> npt.NDArray[np.uint8]:
    """Undo the normalisation: (N, 3, S, S) numbers become (N, S, S, 3) bytes."""
    mean = np.array(model.preprocessing.mean, dtype=np.float32).reshape(1, 3, 1, 1)
    std = np.array(model.preprocessing.std, dtype=np.float32).reshape(1, 3, 1, 1)
    values = np.clip(pixels * std + mean, 0, 1)
    shown: npt.NDArray[np.uint8] = (255 * values).round().astype(np.uint8).transpose(0, 2, 3, 1)
    return shown
