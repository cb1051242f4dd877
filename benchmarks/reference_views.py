"""Views made as in the peers' code: a reference for tests and benchmarks, not used for results.

Every view is cropped, every chain of AugMix runs through Pillow, and the crop and each of the three
chains are converted to a tensor and normalised before they are mixed: four conversions per view.
Given the same draws its views are those of `make_views`, to float32 rounding.
"""

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from dtpt.clip.preprocess import Preprocess
from dtpt.views.augmix import Mixture, Operation, draw_mixture
from dtpt.views.crops import cut, draw_crop
from dtpt.views.recipe import AUGMIX_NUMBERS, CROP_NUMBERS, ViewRecipe, view_numbers

_BILINEAR = Image.Resampling.BILINEAR


def reference_views(
    image: Image.Image,
    *,
    recipe: ViewRecipe,
    seed: int,
    image_id: str,
    preprocessing: Preprocess,
) -> Tensor:
    """Return (count, 3, size, size): the views of `make_views`, made as the peers do."""
    views = [as_tensor(preprocessing.cropped(image), preprocessing)]
    for view in range(1, recipe.count):
        numbers = view_numbers(seed, image_id, view=view).tolist()
        box = draw_crop(numbers[CROP_NUMBERS], image.size, recipe=recipe)
        crop = cut(image, box, size=preprocessing.size)
        if recipe.augmix:
            mixture = draw_mixture(numbers[AUGMIX_NUMBERS], size=preprocessing.size)
            views.append(reference_augmix(crop, mixture, preprocessing=preprocessing))
        else:
            views.append(as_tensor(crop, preprocessing))
    return torch.stack(views)


def reference_augmix(crop: Image.Image, mixture: Mixture, *, preprocessing: Preprocess) -> Tensor:
    """Return the mixture of normalised tensors, (3, S, S) float32."""
    original = as_tensor(crop, preprocessing)
    mix = torch.zeros_like(original)
    for chain, weight in zip(mixture.chains, mixture.weights, strict=True):
        chained = crop.copy()
        for operation in chain:
            chained = apply(chained, operation)
        mix += weight * as_tensor(chained, preprocessing)
    return mixture.keep * original + (1 - mixture.keep) * mix


def apply(image: Image.Image, operation: Operation) -> Image.Image:
    """Run one operation through Pillow."""
    name, amount = operation
    whole = int(amount)
    if name == "autocontrast":
        return ImageOps.autocontrast(image)
    if name == "equalize":
        return ImageOps.equalize(image)
    if name == "posterize":
        return ImageOps.posterize(image, whole)
    if name == "solarize":
        return ImageOps.solarize(image, whole)
    if name == "rotate":
        return image.rotate(whole, resample=_BILINEAR)
    matrix = {
        "shear_x": (1, amount, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, amount, 1, 0),
        "translate_x": (1, 0, whole, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, whole),
    }[name]
    return image.transform(image.size, Image.Transform.AFFINE, matrix, _BILINEAR)


def as_tensor(image: Image.Image, preprocessing: Preprocess) -> Tensor:
    """Return (3, S, S) float32: to [0, 1], minus the mean, divided by the deviation."""
    pixels = torch.from_numpy(np.array(image, copy=True))  # (S, S, 3) uint8
    scaled = pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)
    mean = torch.tensor(preprocessing.mean).view(3, 1, 1)
    deviation = torch.tensor(preprocessing.std).view(3, 1, 1)
    return scaled.clone().sub_(mean).div_(deviation)  # the copy is torchvision's
