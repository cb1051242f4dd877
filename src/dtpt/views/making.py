"""The views of an image: the original and its random crops, with AugMix or without."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.views.augmix import CHAINS, Mixture, draw_mixture
from dtpt.views.chains import run_chains
from dtpt.views.crops import cut, draw_crop
from dtpt.views.mixing import mix
from dtpt.views.planes import Scratch, planes_of
from dtpt.views.randomness import AUGMIX_NUMBERS, CROP_NUMBERS, view_numbers
from dtpt.views.recipe import ViewRecipe

Views = npt.NDArray[np.float32]
_BLOCK_BYTES = 1 << 23  # of the pictures that are made side by side


def make_views(
    image: Image.Image,
    *,
    recipe: ViewRecipe,
    seed: int,
    image_id: str,
    preprocessing: Preprocess,
    out: Views | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Views:
    """Return the (count, 3, size, size) float32 views of one picture, normalised.

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
        progress: Called with the number of views that are done and the count, after the original
            and then every few views.

    Example:
        >>> picture = Image.new("RGB", (40, 30), (200, 100, 50))
        >>> recipe, setting = ViewRecipe(count=3), Preprocess.openai(32)
        >>> make_views(picture, recipe=recipe, seed=0, image_id="a", preprocessing=setting).shape
        (3, 3, 32, 32)
    """
    size = preprocessing.size
    image = image if image.mode == "RGB" else image.convert("RGB")
    shape = (recipe.count, 3, size, size)
    views = np.empty(shape, dtype=np.float32) if out is None else out
    if views.shape != shape or views.dtype != np.float32:
        raise ValueError(f"out must be float32 {shape}, is {views.dtype} {views.shape}")
    views[0] = preprocessing.pixels(image)
    tell = progress or _tell_nobody
    tell(1, recipe.count)
    scratch = Scratch(size)
    block = max(1, _BLOCK_BYTES // (12 * size * size))
    for start in range(1, recipe.count, block):
        stop = min(start + block, recipe.count)
        numbers = [view_numbers(seed, image_id, view=view).tolist() for view in range(start, stop)]
        crops = [
            cut(image, draw_crop(own[CROP_NUMBERS], image.size, recipe=recipe), size=size)
            for own in numbers
        ]
        if recipe.augmix:
            mixtures = [draw_mixture(own[AUGMIX_NUMBERS], size=size) for own in numbers]
            _write_mixed(
                crops, mixtures, preprocessing=preprocessing, scratch=scratch, out=views[start:stop]
            )
        else:
            for view, crop in zip(views[start:stop], crops, strict=True):
                view[:] = preprocessing.normalise(np.asarray(crop))
        tell(stop, recipe.count)
    return views


def _tell_nobody(_done: int, _total: int) -> None:
    """Stand in where no progress is asked for."""


def _write_mixed(
    crops: Sequence[Image.Image],
    mixtures: Sequence[Mixture],
    *,
    preprocessing: Preprocess,
    scratch: Scratch,
    out: Views,
) -> None:
    """Write the mixtures of some crops into `out`, (n, 3, S, S)."""
    sources = [planes_of(crop) for crop in crops]
    starts = [source for source in sources for _ in range(CHAINS)]
    chains = [chain for mixture in mixtures for chain in mixture.chains]
    chained = run_chains(starts, chains, scratch=scratch)
    mix(sources, chained, mixtures=mixtures, preprocessing=preprocessing, scratch=scratch, out=out)
