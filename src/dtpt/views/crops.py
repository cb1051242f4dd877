"""Random resized crops: torchvision's distribution and pixels, without torchvision."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image

from dtpt.views.recipe import ViewRecipe

_TRIES = 10


class Crop(NamedTuple):
    """A rectangle of the image in pixels, and whether it is mirrored after the resize."""

    left: int
    top: int
    width: int
    height: int
    flip: bool


def draw_crop(numbers: Sequence[float], size: tuple[int, int], *, recipe: ViewRecipe) -> Crop:
    """Draw a crop: uniform area, log-uniform aspect ratio, uniform position.

    A draw that does not fit into the image is repeated, up to ten times; then the largest centred
    rectangle with a permitted aspect ratio is taken.

    Args:
        numbers: 23 uniform numbers: position (2), flip (1), then area and aspect of each try.
        size: Width and height of the image in pixels.
        recipe: Ranges of area and aspect ratio, probability of the flip.

    Example:
        >>> draw_crop([0.5] * 23, (100, 100), recipe=ViewRecipe())
        Crop(left=14, top=14, width=73, height=73, flip=False)
    """
    width, height = size
    flip = numbers[2] < recipe.flip
    for attempt in range(_TRIES):
        area_number, aspect_number = numbers[3 + 2 * attempt], numbers[4 + 2 * attempt]
        area = width * height * _between(recipe.area, area_number)
        low, high = recipe.aspect
        aspect = math.exp(_between((math.log(low), math.log(high)), aspect_number))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left = int(numbers[0] * (width - across + 1))
            top = int(numbers[1] * (height - down + 1))
            return Crop(left, top, across, down, flip)
    return _centred(width, height, aspect=recipe.aspect)._replace(flip=flip)


def cut(image: Image.Image, crop: Crop, *, size: int) -> Image.Image:
    """Return the crop resized (bilinear, antialiased) to a square of `size` pixels, and flipped."""
    box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    # Cut first: a resize with a box would also read the pixels around it, unlike torchvision.
    resized = image.crop(box).resize((size, size), Image.Resampling.BILINEAR)
    return resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if crop.flip else resized


def _between(bounds: tuple[float, float], number: float) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * number


def _centred(width: int, height: int, *, aspect: tuple[float, float]) -> Crop:
    across, down = width, height
    if width / height < aspect[0]:
        down = round(width / aspect[0])
    elif width / height > aspect[1]:
        across = round(height * aspect[1])
    return Crop((width - across) // 2, (height - down) // 2, across, down, flip=False)
