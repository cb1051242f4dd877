"""The colour operations of AugMix on planar pictures, equal to Pillow's `ImageOps`.

Pictures are (3, S, S) uint8; every operation returns a new one, or the same one if nothing changes.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image

Planes = npt.NDArray[np.uint8]  # (3, S, S)
Plane = npt.NDArray[np.uint8]  # (S, S)
Table = npt.NDArray[np.uint8]  # (256,): the new value of each old value


def posterize(planes: Planes, bits: int) -> Planes:
    """Keeps the highest `bits` bits of every value."""
    return planes & np.uint8(256 - (1 << (8 - bits)))


def solarize(planes: Planes, threshold: int) -> Planes:
    """Inverts values from `threshold` (at most 255) on."""
    inverted = (planes >= np.uint8(threshold)).view(np.uint8)  # 0 or 1
    return planes ^ np.negative(inverted)  # with 0 or 255


def autocontrast(planes: Planes) -> Planes:
    """Stretches each channel so that its darkest value becomes 0 and its brightest 255."""
    return _by_tables(planes, _stretching)


def equalize(planes: Planes) -> Planes:
    """Flattens the histogram of each channel."""
    return _by_tables(planes, _flattening)


def _stretching(plane: Plane) -> Table | None:
    low, high = int(plane.min()), int(plane.max())
    if high <= low or high - low == 255:
        return None
    scale = 255.0 / (high - low)
    table: Table = np.clip(np.arange(256) * scale + -low * scale, 0, 255).astype(np.uint8)
    return table


def _flattening(plane: Plane) -> Table | None:
    """Returns the cumulative histogram in Pillow's whole-number arithmetic."""
    size = (plane.shape[1], plane.shape[0])
    picture = Image.frombuffer("L", size, plane, "raw", "L", 0, 1)
    counts = np.array(picture.histogram())
    brightest = int(counts[np.flatnonzero(counts)[-1]])
    step = (plane.size - brightest) // 255
    if step == 0:
        return None
    before = np.cumsum(counts) - counts
    table: Table = np.minimum((step // 2 + before) // step, 255).astype(np.uint8)
    return table


def _by_tables(planes: Planes, make: Callable[[Plane], Table | None]) -> Planes:
    """Applies a table to each channel; None leaves the channel as it is."""
    tables = [make(plane) for plane in planes]
    if all(table is None for table in tables):
        return planes
    parts = [
        plane.tobytes() if table is None else plane.tobytes().translate(table.tobytes())
        for plane, table in zip(planes, tables, strict=True)
    ]
    return np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(planes.shape)
