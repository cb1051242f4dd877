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
from dtpt.report.figures import CaptionedFigure, captioned
from dtpt.report.figures.style import BLUE, INK, Style, new_figure
from dtpt.report.load import set_title

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
    columns = min(COLUMNS, len(views))
    width, height = columns * (1 + GAP), math.ceil(len(views) / columns) * (1 + LABEL)
    figure = new_figure(
        0.6 * width + 0.2, 0.6 * height + 0.5, left=0.1, right=0.1, bottom=0.08, top=0.42
    )
    axes = figure.subplots()
    style: Style = {"ha": "center", "va": "top", "fontsize": 6.5, "color": INK}
    for index, (view, entropy) in enumerate(zip(views, entropies, strict=True)):
        left, top = (index % columns) * (1 + GAP), (index // columns) * (1 + LABEL)
        axes.imshow(view, extent=(left, left + 1, top + 1, top), interpolation="nearest")
        text, weight = f"{entropy:.2f}", "normal"
        if index in kept:
            frame = Rectangle((left, top), 1, 1, fill=False, edgecolor=BLUE, linewidth=2.6)
            axes.add_patch(frame)
            text, weight = f"{text} ✓", "bold"
        axes.text(left + 0.5, top + 1.06, text, fontweight=weight, **style)
    axes.set(xlim=(-GAP, width), ylim=(height, -GAP), aspect="equal")
    axes.set_axis_off()
    which = f"{len(kept)} of {len(views)} views are kept, those with the lowest entropy (nats)"
    axes.set_title(f"view 0 is the original; {which}", fontsize=9, color=INK)
    return figure, axes


def mosaic_figure(model: "Clip", dataset: Dataset, *, views: int, seed: int) -> CaptionedFigure:
    """Encode the views of a data set's first image and draw them with their entropies."""
    import torch

    from dtpt.methods.tpt import entropy
    from dtpt.prediction.predictor import Predictor
    from dtpt.views import ViewRecipe

    sample = dataset.samples[0]
    recipe = ViewRecipe(count=views, augmix=dataset.augmix)
    predictor = Predictor(model, dataset.classes, recipe=recipe)
    rendered = predictor.render(sample.image.open(), methods=None, seed=seed)
    with torch.inference_mode():
        logits = predictor.view_logits(predictor.features(rendered))  # (N, C)
        entropies, kept = entropy(logits).tolist(), predictor.confident_views(logits)
    truth = dataset.classes[sample.label]
    return captioned(
        "views",
        view_mosaic(_as_bytes(rendered.pixels, model), entropies, kept=kept)[0],
        key="views",
        words=(
            f"{views} views of a {truth}",
            f"entropies from {min(entropies):.2f} to {max(entropies):.2f} nats",
            f"kept are views {', '.join(map(str, sorted(kept)))}",
        ),
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
