"""The colour operations of AugMix on planar pictures, equal to Pillow's `ImageOps`.

Pictures are (3, S, S) uint8; every operation returns a new one, or the same one if nothing changes.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from dtpt.views.planes import Planes

Plane = npt.NDArray[np.uint8]  # (S, S); or a table of 256 values

_FEW_PIXELS = 1 << 14
_SAME = bytes(range(256))  # a table that changes no value


def posterize(planes: Planes, bits: int) -> Planes:
    """Keep the highest `bits` bits of every value.

    Example:
        >>> posterize(np.array([255, 17], dtype=np.uint8), 4).tolist()
        [240, 16]
    """
    return planes & np.uint8(256 - (1 << (8 - bits)))


def solarize(planes: Planes, threshold: int) -> Planes:
    """Invert values from `threshold` (at most 255) on.

    Example:
        >>> solarize(np.array([255, 240, 17], dtype=np.uint8), 240).tolist()
        [0, 15, 17]
    """
    mask = (planes >= np.uint8(threshold)).view(np.uint8)  # 0 or 1
    np.negative(mask, out=mask)  # 0 or 255
    return np.bitwise_xor(planes, mask, out=mask)


def autocontrast(planes: Planes) -> Planes:
    """Stretch each channel so that its darkest value becomes 0 and its brightest 255.

    Example:
        >>> autocontrast(np.array([[[10, 20, 30]]] * 3, dtype=np.uint8))[0].tolist()
        [[0, 127, 255]]
    """
    lows, highs = planes.min(axis=(1, 2)).tolist(), planes.max(axis=(1, 2)).tolist()
    return _looked_up(planes, [_stretching(*ends) for ends in zip(lows, highs, strict=True)])


def equalize(pictures: Sequence[Planes]) -> list[Planes]:
    """Flatten the histogram of each channel of each picture."""
    counts = np.stack([_histogram(plane) for planes in pictures for plane in planes])  # (3n, 256)
    tables = _flattening(counts)
    return [
        _looked_up(planes, tables[3 * place : 3 * place + 3])
        for place, planes in enumerate(pictures)
    ]


@lru_cache(maxsize=4096)
def _stretching(low: int, high: int) -> bytes:
    """Return the table that takes low to 0 and high to 255."""
    if high <= low:
        return _SAME
    scale = 255.0 / (high - low)
    values: Plane = np.clip(np.arange(256) * scale + -low * scale, 0, 255).astype(np.uint8)
    return values.tobytes()


def _histogram(plane: Plane) -> npt.NDArray[np.int64]:
    """Count the values of a plane: Pillow counts fast, but its list is slow to convert."""
    if plane.size < _FEW_PIXELS:
        return np.bincount(plane.reshape(-1), minlength=256)
    size = (plane.shape[1], plane.shape[0])
    return np.array(Image.frombuffer("L", size, plane, "raw", "L", 0, 1).histogram())


def _flattening(counts: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the tables for histograms (k, 256): cumulative counts in whole-number arithmetic."""
    before = np.cumsum(counts, axis=1)
    pixels = before[:, -1:]  # of each plane
    before = before - counts
    # The darker ones: all but those of the brightest value, behind which `before` counts all.
    darker = np.where(before < pixels, before, 0).max(axis=1, keepdims=True)
    step = darker // 255  # (k, 1)
    values = np.minimum((step // 2 + before) // np.maximum(step, 1), 255).astype(np.uint8)
    changes = (step[:, 0] > 0).tolist()
    return [row.tobytes() if change else _SAME for row, change in zip(values, changes, strict=True)]


def _looked_up(planes: Planes, tables: Sequence[bytes]) -> Planes:
    """Apply a table to each channel."""
    if all(table == _SAME for table in tables):
        return planes
    parts = [plane.tobytes().translate(table) for plane, table in zip(planes, tables, strict=True)]
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(planes.shape)
