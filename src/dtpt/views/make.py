"""The views of an image: the original and its random crops, with AugMix or without."""

import io
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.images import pixel_digest
from dtpt.views.augmix import CHAINS, draw_mixture, mix, run_chains
from dtpt.views.colour import planes_of
from dtpt.views.crops import cut, draw_crop
from dtpt.views.recipe import AUGMIX_NUMBERS, CROP_NUMBERS, ViewRecipe, view_numbers
from dtpt.views.warps import Scratch

Views = npt.NDArray[np.float32]
_BLOCK_BYTES = 1 << 23  # of the images that are made side by side
THUMBNAIL = 64  # side of a view on a contact sheet, in pixels
COLUMNS = 8
_BILINEAR = Image.Resampling.BILINEAR


def make_views(
    image: Image.Image,
    *,
    recipe: ViewRecipe,
    seed: int,
    preprocessing: Preprocess,
    image_id: str | None = None,
    first: int = 0,
    out: Views | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Views:
    """Return the (count - first, 3, size, size) float32 views of one image, normalised.

    View 0 is the original: the model's own preprocessing. View k depends on the image, the recipe
    (but not its count) and (seed, image_id, k) only.

    Args:
        image: The decoded RGB image, as `dtpt.images.open_image` returns it.
        recipe: How many views and which augmentations.
        seed: Of the run.
        preprocessing: Of the model.
        image_id: A stable id of the image; its pixel digest when not given.
        first: The view from which on they are made.
        out: An array of the result's shape to write into and return, instead of a new one.
        progress: Called with the number of views that are done and the count, every few views.

    Example:
        >>> image = Image.new("RGB", (40, 30), (200, 100, 50))
        >>> recipe, setting = ViewRecipe(count=3), Preprocess.openai(32)
        >>> make_views(image, recipe=recipe, seed=0, preprocessing=setting).shape
        (3, 3, 32, 32)
    """
    size, report = preprocessing.size, progress or (lambda *_: None)
    image_id = pixel_digest(image) if image_id is None else image_id
    image = image if image.mode == "RGB" else image.convert("RGB")
    shape = (recipe.count - first, 3, size, size)
    views = np.empty(shape, dtype=np.float32) if out is None else out
    if views.shape != shape or views.dtype != np.float32:
        raise ValueError(f"out must be float32 {shape}, is {views.dtype} {views.shape}")
    if first == 0:
        views[0] = preprocessing.pixels(image)
        report(1, recipe.count)
    scratch = Scratch(size)
    block = max(1, _BLOCK_BYTES // (12 * size * size))
    for start in range(max(1, first), recipe.count, block):
        stop = min(start + block, recipe.count)
        made = views[start - first : stop - first]
        numbers = [view_numbers(seed, image_id, view=view).tolist() for view in range(start, stop)]
        crops = [
            cut(image, draw_crop(row[CROP_NUMBERS], image.size, recipe=recipe), size=size)
            for row in numbers
        ]
        if recipe.augmix:
            drawn = [row[AUGMIX_NUMBERS] for row in numbers]
            _write_mixed(crops, drawn, setting=preprocessing, scratch=scratch, out=made)
        else:
            for view, crop in zip(made, crops, strict=True):
                view[:] = preprocessing.normalise(np.asarray(crop))
        report(stop, recipe.count)
    return views


def _write_mixed(
    crops: Sequence[Image.Image],
    numbers: Sequence[list[float]],
    *,
    setting: Preprocess,
    scratch: Scratch,
    out: Views,
) -> None:
    mixtures = [draw_mixture(row, size=setting.size) for row in numbers]
    sources = [planes_of(crop) for crop in crops]
    starts = [source for source in sources for _ in range(CHAINS)]
    chains = [chain for mixture in mixtures for chain in mixture.chains]
    chained = run_chains(starts, chains, scratch=scratch)
    mix(sources, chained, mixtures=mixtures, preprocessing=setting, scratch=scratch, out=out)


def as_images(views: Views, preprocessing: Preprocess) -> npt.NDArray[np.uint8]:
    """Undo the normalisation: (N, 3, S, S) views become (N, S, S, 3) bytes."""
    mean = np.array(preprocessing.mean, np.float32)[:, None, None]
    deviation = np.array(preprocessing.std, np.float32)[:, None, None]
    levels = np.clip((views * deviation + mean) * 255 + 0.5, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(0, 2, 3, 1))


def contact_sheet(views: Views, preprocessing: Preprocess, *, columns: int = COLUMNS) -> bytes:
    """Return a JPEG with the views (N, 3, S, S) in rows, each 64 pixels on a side.

    Example:
        >>> sheet = contact_sheet(np.zeros((9, 3, 32, 32), np.float32), Preprocess.openai(32))
        >>> Image.open(io.BytesIO(sheet)).size
        (512, 128)
    """
    rows = -(-len(views) // columns)
    sheet = Image.new("RGB", (columns * THUMBNAIL, rows * THUMBNAIL))
    for index, view in enumerate(views):
        (pixels,) = as_images(view[None], preprocessing)  # one by one, which needs little memory
        thumbnail = Image.fromarray(pixels).resize((THUMBNAIL, THUMBNAIL), _BILINEAR)
        sheet.paste(thumbnail, (index % columns * THUMBNAIL, index // columns * THUMBNAIL))
    written = io.BytesIO()
    sheet.save(written, "JPEG", quality=85)
    return written.getvalue()
