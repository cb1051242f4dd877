"""Planar images, and the colour operations of AugMix on them, equal to Pillow's `ImageOps`.

An image is three planes, (3, S, S) uint8. Every operation returns a new image, or the same one if
nothing changes.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

Planes = npt.NDArray[np.uint8]  # (3, S, S), or (n, 3, S, S) for several images
Plane = npt.NDArray[np.uint8]  # (S, S); or a table of 256 values

_FEW_PIXELS = 1 << 14
_IDENTITY = bytes(range(256))  # a table that changes no value


def planes_of(image: Image.Image) -> Planes:
    """Return the (3, S, S) planes of an RGB image."""
    data = b"".join([image.tobytes("raw", channel) for channel in "RGB"])
    return np.frombuffer(data, dtype=np.uint8).reshape(3, image.height, image.width)


def posterize(planes: Planes, bits: int) -> Planes:
    """Keep the highest `bits` bits of every value."""
    return planes & np.uint8(256 - (1 << (8 - bits)))


def solarize(planes: Planes, threshold: int) -> Planes:
    """Invert values from `threshold` (at most 255) on."""
    mask = (planes >= np.uint8(threshold)).view(np.uint8)  # 0 or 1
    np.negative(mask, out=mask)  # 0 or 255
    return np.bitwise_xor(planes, mask, out=mask)


def autocontrast(planes: Planes) -> Planes:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255."""
    lows, highs = planes.min(axis=(1, 2)).tolist(), planes.max(axis=(1, 2)).tolist()
    return _look_up(planes, [_stretch_table(*ends) for ends in zip(lows, highs, strict=True)])


def equalize(images: Sequence[Planes]) -> list[Planes]:
    """Flatten the histogram of each channel of each image."""
    counts = np.stack([_histogram(plane) for planes in images for plane in planes])  # (3n, 256)
    tables = _equalize_tables(counts)
    return [
        _look_up(planes, tables[3 * index : 3 * index + 3]) for index, planes in enumerate(images)
    ]


@lru_cache(maxsize=4096)
def _stretch_table(low: int, high: int) -> bytes:
    if high <= low:
        return _IDENTITY
    scale = 255.0 / (high - low)
    values: Plane = np.clip(np.arange(256) * scale + -low * scale, 0, 255).astype(np.uint8)
    return values.tobytes()


def _histogram(plane: Plane) -> npt.NDArray[np.int64]:
    if plane.size < _FEW_PIXELS:  # Pillow counts faster, but its list is slow to convert
        return np.bincount(plane.reshape(-1), minlength=256)
    size = (plane.shape[1], plane.shape[0])
    return np.array(Image.frombuffer("L", size, plane, "raw", "L", 0, 1).histogram())


def _equalize_tables(counts: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the tables for histograms (k, 256): cumulative counts in whole-number arithmetic."""
    before = np.cumsum(counts, axis=1)
    pixels = before[:, -1:]  # of each plane
    before = before - counts
    # The darker ones: all but those of the brightest value, behind which `before` counts all.
    darker = np.where(before < pixels, before, 0).max(axis=1, keepdims=True)
    step = darker // 255  # (k, 1)
    values = np.minimum((step // 2 + before) // np.maximum(step, 1), 255).astype(np.uint8)
    changes = (step[:, 0] > 0).tolist()
    rows = zip(values, changes, strict=True)
    return [row.tobytes() if change else _IDENTITY for row, change in rows]


def _look_up(planes: Planes, tables: Sequence[bytes]) -> Planes:
    """Apply a table to each channel."""
    if all(table == _IDENTITY for table in tables):
        return planes
    parts = [plane.tobytes().translate(table) for plane, table in zip(planes, tables, strict=True)]
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(planes.shape)
