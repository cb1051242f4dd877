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
Plane = npt.NDArray[np.uint8]  # (S, S)
Positions = npt.NDArray[np.float64]  # in pixels, pixel centres at halves

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


class Scratch:
    """Memory for one channel, kept between calls: fresh pages cost more than the sums."""

    def __init__(self, size: int) -> None:
        self.start = np.empty((size, size), dtype=np.float32)
        self.stop = np.empty((size, size), dtype=np.float32)
        self.value = np.empty((size, size), dtype=np.float32)
        self.below = np.empty((size, size), dtype=np.uint8)


def shear_x(planes: Planes, level: float, scratch: Scratch) -> Planes:
    """Reads row y at x + level · y (pixel centres), which slants the picture.

    All pixels of a row share one whole and one fractional offset, and neighbouring rows share the
    whole one: each such band is one interpolation between two slices.
    """
    size = planes.shape[1]
    offsets, whole, reach = _offsets(level, size)
    padded = np.empty((size, size + 2 * reach), dtype=np.uint8)
    result, bands = np.empty_like(planes), _bands(whole)
    fraction = (offsets - whole).astype(np.float32)[:, None]  # (S, 1)
    for plane, target in zip(planes, result, strict=True):
        padded[:, reach : reach + size] = plane
        padded[:, :reach] = plane[:, :1]
        padded[:, reach + size :] = plane[:, -1:]
        for first, last, step in bands:
            left = reach + step
            scratch.start[first:last] = padded[first:last, left : left + size]
            scratch.stop[first:last] = padded[first:last, left + 1 : left + 1 + size]
        row, column = _interpolate(fraction, target, scratch)
        _repair(plane, level, target, (row, column))
    _blacken_outside(result, offsets, reach)
    return result


def shear_y(planes: Planes, level: float, scratch: Scratch) -> Planes:
    """Reads column x at y + level · x: `shear_x` with the axes exchanged."""
    size = planes.shape[1]
    offsets, whole, reach = _offsets(level, size)
    padded = np.empty((size + 2 * reach, size), dtype=np.uint8)
    result, bands = np.empty_like(planes), _bands(whole)
    fraction = (offsets - whole).astype(np.float32)  # (S,)
    for plane, target in zip(planes, result, strict=True):
        padded[reach : reach + size] = plane
        padded[:reach] = plane[:1]
        padded[reach + size :] = plane[-1:]
        for first, last, step in bands:
            top = reach + step
            scratch.start[:, first:last] = padded[top : top + size, first:last]
            scratch.stop[:, first:last] = padded[top + 1 : top + 1 + size, first:last]
        row, column = _interpolate(fraction, target, scratch)
        _repair(plane.T, level, target.T, (column, row))
    _blacken_outside(result.transpose(0, 2, 1), offsets, reach)
    return result


def rotate(planes: Planes, degrees: int) -> Planes:
    """Rotates counter-clockwise around the centre, by Pillow itself."""
    size = (planes.shape[2], planes.shape[1])
    bands = [Image.frombuffer("L", size, plane, "raw", "L", 0, 1) for plane in planes]
    turned = Image.merge("RGB", bands).rotate(degrees, resample=Image.Resampling.BILINEAR)
    data = b"".join(turned.tobytes("raw", channel) for channel in "RGB")
    return np.frombuffer(data, dtype=np.uint8).reshape(planes.shape)


def _offsets(level: float, size: int) -> tuple[Positions, npt.NDArray[np.intp], int]:
    """Returns the offset of each row in pixels, its whole part, and how far any row reaches."""
    offsets = level * (np.arange(size, dtype=np.float64) + 0.5)  # (S,)
    whole = np.floor(offsets).astype(np.intp)
    return offsets, whole, int(np.abs(whole).max()) + 1


def _bands(whole: npt.NDArray[np.intp]) -> list[tuple[int, int, int]]:
    """Returns first row, last row (exclusive) and whole offset of each run of equal offsets."""
    edges = [0, *(np.flatnonzero(np.diff(whole)) + 1).tolist(), len(whole)]
    return [(first, last, int(whole[first])) for first, last in pairwise(edges)]


def _inside(position: Positions, size: int) -> npt.NDArray[np.bool_]:
    return (position >= 0) & (position < size)


def _blacken_outside(result: Planes, offsets: Positions, reach: int) -> None:
    """Sets the pixels of each row that were read beyond the ends of the row to 0."""
    size = result.shape[2]
    columns = slice(0, reach) if offsets[-1] < 0 else slice(max(size - reach, 0), size)
    position = (np.arange(size)[columns] + 0.5)[None, :] + offsets[:, None]  # (S, reach)
    result[:, :, columns] *= _inside(position, size)


def _interpolate(
    fraction: npt.NDArray[np.float32], result: Plane, scratch: Scratch
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Writes the cut-off values between start and stop; returns where the cut is in doubt."""
    start, difference, value = scratch.start, scratch.stop, scratch.value
    np.subtract(scratch.stop, start, out=difference)
    np.multiply(difference, fraction + _DOUBT, out=value)
    np.add(value, start, out=value)
    np.copyto(result, value, casting="unsafe")
    np.multiply(difference, 2 * _DOUBT, out=difference)
    np.subtract(value, difference, out=value)
    np.copyto(scratch.below, value, casting="unsafe")
    doubtful = np.flatnonzero(np.not_equal(result, scratch.below, out=scratch.below.view(np.bool_)))
    return doubtful // result.shape[1], doubtful % result.shape[1]


def _repair(
    plane: Plane,
    level: float,
    result: Plane,
    where: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]],
) -> None:
    """Computes the pixels at (row, column) with Pillow's float64 steps, in its order."""
    row, column = where
    if not len(row):
        return
    position = (column + 0.5) + level * (row + 0.5) - 0.5
    before = np.floor(position)
    last = plane.shape[1] - 1
    low = np.clip(before, 0, last).astype(np.intp)
    high = np.clip(before + 1, 0, last).astype(np.intp)
    left = plane[row, low].astype(np.float64)
    right = plane[row, high].astype(np.float64)
    result[row, column] = left + (right - left) * (position - before)
