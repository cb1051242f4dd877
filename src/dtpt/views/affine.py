"""The small movements of AugMix on planar pictures, equal to Pillow's bilinear transforms.

Pictures are (3, S, S) uint8. Pillow computes in float64 and cuts off the fraction; here the bulk is
computed in float32, and the few pixels whose value comes so near to a whole number that float32 could
fall on the wrong side of it are computed again exactly as Pillow does. What Pillow would have read
outside the picture is black.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Planes = npt.NDArray[np.uint8]  # (3, S, S)
Flags = npt.NDArray[np.bool_]  # (3, S, S)

# A pixel is doubtful when moving the fraction by this much changes its value. Between values that
# differ by d the float32 error is at most 8e-6 + d · 1.2e-7, well below d times this.
_DOUBT = np.float32(4e-5)


def translate_x(planes: Planes, pixels: int) -> Planes:
    """Moves the content left by `pixels` (right when negative)."""
    result = np.zeros_like(planes)
    size = planes.shape[2]
    if abs(pixels) < size:
        source = slice(max(pixels, 0), size + min(pixels, 0))
        target = slice(max(-pixels, 0), size + min(-pixels, 0))
        result[:, :, target] = planes[:, :, source]
    return result


def translate_y(planes: Planes, pixels: int) -> Planes:
    """Moves the content up by `pixels` (down when negative)."""
    return translate_x(planes.transpose(0, 2, 1), pixels).transpose(0, 2, 1)


def shear_x(planes: Planes, level: float) -> Planes:
    """Reads row y at x + level · y (pixel centres), which slants the picture.

    All pixels of a row share one whole and one fractional offset, and neighbouring rows share the
    whole one: each such band is one interpolation between two slices.
    """
    size = planes.shape[1]
    offsets = level * (np.arange(size) + 0.5)  # (S,) in pixels
    whole = np.floor(offsets).astype(np.intp)
    reach = int(np.abs(whole).max()) + 1
    padded = np.empty((3, size, size + 2 * reach), dtype=np.float32)
    padded[:, :, reach : reach + size] = planes
    padded[:, :, :reach] = padded[:, :, reach : reach + 1]
    padded[:, :, reach + size :] = padded[:, :, reach + size - 1 : reach + size]
    result, doubtful = np.empty_like(planes), np.empty(planes.shape, dtype=np.bool_)
    fraction = (offsets - whole).astype(np.float32)[:, None]  # (S, 1)
    edges = [0, *(np.flatnonzero(np.diff(whole)) + 1).tolist(), size]
    for first, last in zip(edges[:-1], edges[1:], strict=True):
        start = reach + int(whole[first])
        left = padded[:, first:last, start : start + size]
        right = padded[:, first:last, start + 1 : start + 1 + size]
        band = (slice(None), slice(first, last))
        _interpolate(left, right, fraction[first:last], result[band], doubtful[band])
    _repair_shear(planes, level, result, doubtful)
    _blacken_outside(result, offsets, reach)
    return result


def shear_y(planes: Planes, level: float) -> Planes:
    """Reads column x at y + level · x: `shear_x` with the axes exchanged."""
    return _swapped(shear_x(_swapped(planes), level))


def rotate(planes: Planes, degrees: int) -> Planes:
    """Rotates counter-clockwise around the centre."""
    grid = _rotation_grid(degrees, planes.shape[1])
    size = planes.shape[1]
    result = np.zeros_like(planes)
    flat = planes.reshape(3, size * size)
    for channel in range(3):
        corners = [flat[channel][index].astype(np.float64) for index in grid.corners]
        upper = corners[0] + (corners[1] - corners[0]) * grid.across
        lower = corners[2] + (corners[3] - corners[2]) * grid.across
        result[channel].reshape(-1)[grid.inside] = upper + (lower - upper) * grid.down
    return result


def _swapped(planes: Planes) -> Planes:
    return np.ascontiguousarray(planes.transpose(0, 2, 1))  # (3, S, S), rows and columns exchanged


def _inside(position: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.bool_]:
    return (position >= 0) & (position < size)


def _blacken_outside(result: Planes, offsets: npt.NDArray[np.float64], reach: int) -> None:
    """Sets the pixels of each row that were read beyond the ends of the row to 0."""
    size = result.shape[2]
    columns = slice(0, reach) if offsets[-1] < 0 else slice(max(size - reach, 0), size)
    position = (np.arange(size)[columns] + 0.5)[None, :] + offsets[:, None]  # (S, reach)
    result[:, :, columns] *= _inside(position, size)


def _interpolate(
    left: npt.NDArray[np.float32],
    right: npt.NDArray[np.float32],
    fraction: npt.NDArray[np.float32],
    result: Planes,
    doubtful: Flags,
) -> None:
    """Writes the cut-off values between `left` and `right`, and where the cut is in doubt."""
    difference = right - left
    value = difference * (fraction + _DOUBT)
    value += left
    np.copyto(result, value, casting="unsafe")
    difference *= 2 * _DOUBT
    value -= difference
    np.not_equal(result, value.astype(np.uint8), out=doubtful)


def _repair_shear(planes: Planes, level: float, result: Planes, doubtful: Flags) -> None:
    """Computes the doubtful pixels with Pillow's float64 steps, one by one in its order."""
    channel, row, column = np.unravel_index(np.flatnonzero(doubtful), doubtful.shape)
    position = (column + 0.5) + level * (row + 0.5) - 0.5
    before = np.floor(position)
    last = planes.shape[2] - 1
    low = np.clip(before, 0, last).astype(np.intp)
    high = np.clip(before + 1, 0, last).astype(np.intp)
    left = planes[channel, row, low].astype(np.float64)
    right = planes[channel, row, high].astype(np.float64)
    result[channel, row, column] = left + (right - left) * (position - before)


class _Grid(NamedTuple):
    """Where a rotation reads: four neighbours and the place between them, per inner pixel."""

    inside: npt.NDArray[np.intp]
    corners: list[npt.NDArray[np.intp]]
    across: npt.NDArray[np.float64]
    down: npt.NDArray[np.float64]


@lru_cache(maxsize=32)
def _rotation_grid(degrees: int, size: int) -> _Grid:
    radians = -math.radians(degrees % 360)
    cosine, sine = round(math.cos(radians), 15), round(math.sin(radians), 15)
    centre = size / 2
    offset_x = cosine * -centre + sine * -centre + centre
    offset_y = -sine * -centre + cosine * -centre + centre
    ys, xs = np.meshgrid(np.arange(size) + 0.5, np.arange(size) + 0.5, indexing="ij")
    position_x = cosine * xs + sine * ys + offset_x
    position_y = -sine * xs + cosine * ys + offset_y
    inside = np.flatnonzero(_inside(position_x, size) & _inside(position_y, size))
    x, y = position_x.reshape(-1)[inside] - 0.5, position_y.reshape(-1)[inside] - 0.5
    left, top = np.floor(x), np.floor(y)
    columns = [np.clip(left + step, 0, size - 1).astype(np.intp) for step in (0, 1)]
    rows = [np.clip(top + step, 0, size - 1).astype(np.intp) for step in (0, 1)]
    corners = [row * size + column for row in rows for column in columns]
    return _Grid(inside, corners, x - left, y - top)
