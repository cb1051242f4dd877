"""Dominant dimensions, and prediction without them (section 4.1, figure 3b).

The text-dominant dimension (TDD) is the index with the largest mean |value| over all classes' text
features, the image-dominant dimension (IDD) the same over images; the paper finds one of each in
CLIP, the same for all classes and all images. "Without" a dimension means: replace that column of
the class features by its mean over classes, so that it adds the same amount to every class's
logit. The features are not normalised again (the paper does not say; protocol.md, question 11).
"""

from torch import Tensor

from dtpt.methods.base import Modifier


def dominant_dimension(features: Tensor) -> int:
    """Index of the largest mean absolute value over the rows of (N, D) features."""
    return int(features.abs().mean(dim=0).argmax())


def replace_by_mean(text: Tensor, dimension: int) -> Tensor:
    """Copy of (C, D) features with one column set to its mean over the classes."""
    replaced = text.clone()
    replaced[:, dimension] = text[:, dimension].mean()
    return replaced


def without_text_dominant(text: Tensor, image: Tensor) -> Tensor:
    """Text features without their own dominant dimension."""
    del image
    return replace_by_mean(text, dominant_dimension(text))


def without_image_dominant(text: Tensor, image: Tensor) -> Tensor:
    """Text features without the dominant dimension of this image's feature (D,)."""
    return replace_by_mean(text, dominant_dimension(image.unsqueeze(0)))


NO_TDD = Modifier("no-tdd", features=without_text_dominant)
NO_IDD = Modifier("no-idd", features=without_image_dominant)
