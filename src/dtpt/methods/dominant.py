"""Dominant dimensions, and prediction without them (section 4.1, figure 3b).

The text-dominant dimension (TDD) is the index with the largest mean |value| over all classes' text
features, the image-dominant dimension (IDD) the same over images; the paper finds one of each in
CLIP, the same for all classes and all images. "Without" a dimension means: replace that column of
the class features by its mean over classes, so that it adds the same amount to every class's
logit. The features are not normalised again (the paper does not say).

Which dimension dominates depends on the basis. `+no-tdd:aligned` takes the direction of the mean
text feature instead of a coordinate and is the same in every basis.
"""

from dtpt.methods.base import Modifier, Tensor
from dtpt.methods.d_tpt import mean_direction


def dominant_dimension(features: Tensor) -> int:
    """Return the index of the largest mean absolute value over the rows of (N, D) features."""
    return int(features.abs().mean(dim=0).argmax())


def replace_by_mean(text: Tensor, dimension: int) -> Tensor:
    """Return a copy of (C, D) features with one column set to its mean over the classes."""
    replaced = text.clone()
    replaced[:, dimension] = text[:, dimension].mean()
    return replaced


def without_text_dominant(text: Tensor, image: Tensor) -> Tensor:
    """Return the text features without their own dominant dimension."""
    del image
    return replace_by_mean(text, dominant_dimension(text))


def without_mean_direction(text: Tensor, image: Tensor) -> Tensor:
    """Return the text features whose part along their mean is the same for every class."""
    del image
    direction = mean_direction(text).to(text)
    along = text @ direction  # (C,)
    return text - (along - along.mean())[:, None] * direction


def without_image_dominant(text: Tensor, image: Tensor) -> Tensor:
    """Return the text features without the dominant dimension of this image's feature (D,)."""
    return replace_by_mean(text, dominant_dimension(image.unsqueeze(0)))


NO_TDD = Modifier("no-tdd", "w/o TDD", features=without_text_dominant)
NO_TDD_ALIGNED = Modifier("no-tdd:aligned", "w/o mean direction", features=without_mean_direction)
NO_IDD = Modifier("no-idd", "w/o IDD", features=without_image_dominant)
