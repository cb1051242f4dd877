"""The views of an image: the original and its random crops, with AugMix or without."""

import numpy as np
import numpy.typing as npt
from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.views.affine import Scratch
from dtpt.views.augmix import draw_mixture, mixed
from dtpt.views.crops import cut, draw_crop
from dtpt.views.randomness import AUGMIX_NUMBERS, CROP_NUMBERS, view_numbers
from dtpt.views.recipe import ViewRecipe


def make_views(
    image: Image.Image,
    *,
    recipe: ViewRecipe,
    seed: int,
    image_id: str,
    preprocessing: Preprocess,
    out: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[np.float32]:
    """Returns the (count, 3, size, size) float32 views of one picture, normalised.

    View 0 is the original: the model's own preprocessing. View k depends on the picture, the
    recipe (but not its count) and (seed, image_id, k) only.

    Args:
        image: The decoded RGB picture, as `dtpt.images.open_image` returns it.
        recipe: How many views and which augmentations.
        seed: The run's seed.
        image_id: What the picture is called; a stable sample id or its pixel digest.
        preprocessing: The model's preprocessing; gives size, mean and standard deviation.
        out: An array of the result's shape to write into and return. One that is kept from image
            to image saves making 39 MB of fresh memory each time.
    """
    size = preprocessing.size
    image = image if image.mode == "RGB" else image.convert("RGB")
    shape = (recipe.count, 3, size, size)
    views = np.empty(shape, dtype=np.float32) if out is None else out
    if views.shape != shape or views.dtype != np.float32:
        raise ValueError(f"out must be float32 {shape}, is {views.dtype} {views.shape}")
    views[0] = preprocessing.pixels(image)
    scratch = Scratch(size)
    for view in range(1, recipe.count):
        numbers = view_numbers(seed, image_id, view).tolist()
        crop = cut(image, draw_crop(numbers[CROP_NUMBERS], image.size, recipe), size=size)
        if recipe.augmix:
            mixture = draw_mixture(numbers[AUGMIX_NUMBERS], size=size)
            mixed(crop, mixture, preprocessing=preprocessing, scratch=scratch, out=views[view])
        else:
            views[view] = preprocessing.normalise(np.asarray(crop))
    return views
