"""What is measured with: a picture, class names and view features, made without any file."""

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("cat", "polka-dotted", "annual crop land", "american pit bull terrier", "tiger lily")


def photograph(width: int = 500, height: int = 375) -> Image.Image:
    """Return a picture with structure at every scale and a full range of colours.

    Example:
        >>> photograph(128, 128).size
        (128, 128)
    """
    random = np.random.default_rng(0)
    picture = np.zeros((height, width, 3))
    for cells in (3, 8, 24, 80, 250):
        noise = random.integers(0, 256, (cells * 3 // 4 + 1, cells, 3), dtype=np.uint8)
        layer = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        picture += (np.asarray(layer) - 127.5) / cells**0.5
    return Image.fromarray(np.clip(picture + 127.5, 0, 255).astype(np.uint8))


def class_names(count: int) -> list[str]:
    """Return class names of natural length, of one to six tokens.

    Example:
        >>> class_names(2)
        ['cat', 'polka-dotted']
    """
    return [NAMES[number % len(NAMES)] for number in range(count)]


def view_features(count: int, dimensions: int) -> "Tensor":
    """Return unit vectors (count, dimensions) in random directions."""
    import torch

    generator = torch.Generator().manual_seed(1)
    features = torch.randn(count, dimensions, generator=generator)
    return torch.nn.functional.normalize(features, dim=-1)
