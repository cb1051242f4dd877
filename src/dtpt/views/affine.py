"""The small movements of AugMix on planar pictures, equal to Pillow's bilinear transforms.

Pictures are (3, S, S) uint8. Pillow computes in float64 and cuts off the fraction; here the bulk is
computed in float32, and the few pixels whose value comes so near to a whole number that float32
could fall on the wrong side of it are computed again exactly as Pillow does. What would be read
outside the picture is black.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
from PIL import Image

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
    offsets = level * (np.arange(size, dtype=np.float64) + 0.5)  # (S,) in pixels
    whole = np.floor(offsets).astype(np.intp)
    reach = int(np.abs(whole).max()) + 1
    padded = np.empty((3, size, size + 2 * reach), dtype=np.float32)
    padded[:, :, reach : reach + size] = planes
    padded[:, :, :reach] = padded[:, :, reach : reach + 1]
    padded[:, :, reach + size :] = padded[:, :, reach + size - 1 : reach + size]
    result, doubtful = np.empty_like(planes), np.empty(planes.shape, dtype=np.bool_)
    fraction = (offsets - whole).astype(np.float32)[:, None]  # (S, 1)
    edges = [0, *(np.flatnonzero(np.diff(whole)) + 1).tolist(), size]
    for first, last in pairwise(edges):
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
    """Rotates counter-clockwise around the centre, by Pillow itself."""
    size = (planes.shape[2], planes.shape[1])
    bands = [Image.frombuffer("L", size, plane, "raw", "L", 0, 1) for plane in planes]
    turned = Image.merge("RGB", bands).rotate(degrees, resample=Image.Resampling.BILINEAR)
    data = b"".join(turned.tobytes("raw", channel) for channel in "RGB")
    return np.frombuffer(data, dtype=np.uint8).reshape(planes.shape)


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
