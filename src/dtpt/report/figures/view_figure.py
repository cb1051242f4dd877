"""The views of one picture as the model sees them: which it is sure of, which it keeps."""

from typing import TYPE_CHECKING

import numpy as np

from dtpt.data import Dataset
from dtpt.report.figures.captioned import CaptionedFigure
from dtpt.report.figures.mosaic import view_mosaic
from dtpt.report.set_titles import set_title

if TYPE_CHECKING:
    from dtpt.clip.model import Clip


def mosaic_figure(
    model: "Clip", dataset: Dataset, *, views: int = 64, seed: int = 0, rho: float = 0.1
) -> CaptionedFigure:
    """Encode the views of a data set's first picture and draw them with their entropies.

    Args:
        model: A CLIP.
        dataset: Gives picture and classes.
        views: Views of the picture, the original included.
        seed: Of the views.
        rho: Share of the views that is kept.
    """
    import torch

    from dtpt.images import pixel_digest
    from dtpt.methods.tpt import entropy, select_confident
    from dtpt.views import ViewRecipe, make_views

    sample = dataset.samples[0]
    recipe = ViewRecipe(count=views, augmix=dataset.augmix)
    picture = sample.image.open()
    pixels = make_views(
        picture,
        recipe=recipe,
        seed=seed,
        image_id=pixel_digest(picture),
        preprocessing=model.preprocessing,
    )
    with torch.inference_mode():
        features = model.encode_views(torch.from_numpy(pixels))
        texts = model.encode_text([f"a photo of a {name}." for name in dataset.classes])
        logits = model.logit_scale * features @ texts.T  # (N, C)
        entropies = entropy(logits).tolist()
        kept = select_confident(logits, rho).tolist()
    shown = _as_pictures(pixels, model)
    truth = dataset.classes[sample.label]
    return CaptionedFigure(
        key="views",
        title=f"The {views} views of one picture, a {truth}",
        caption=(
            f"One picture of {set_title(dataset.name)} as the original and {views - 1} random "
            "views. Under each the entropy of the untuned answer (nats); the framed ones have the "
            "lowest and alone enter the tuning."
        ),
        alternative=(
            f"{views} views of a {truth}; entropies from {min(entropies):.2f} to "
            f"{max(entropies):.2f} nats; kept are views {', '.join(map(str, sorted(kept)))}."
        ),
        draw=lambda: view_mosaic(shown, entropies, kept=kept)[0],
    )


def _as_pictures(pixels: np.ndarray, model: "Clip") -> np.ndarray:
    """Undo the normalisation: (N, 3, S, S) numbers become (N, S, S, 3) bytes."""
    mean = np.array(model.preprocessing.mean, dtype=np.float32).reshape(1, 3, 1, 1)
    std = np.array(model.preprocessing.std, dtype=np.float32).reshape(1, 3, 1, 1)
    values = np.clip(pixels * std + mean, 0, 1)
    shown: np.ndarray = (255 * values).round().astype(np.uint8).transpose(0, 2, 3, 1)
    return shown
