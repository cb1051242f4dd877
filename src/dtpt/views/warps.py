"""The geometric operations of AugMix on planar images, equal to Pillow's bit for bit.

Shears. Pillow computes a + (b − a) · f in float64 and cuts off the fraction; a and b are adjacent
pixels. In a shear all pixels of a row have the same f (to rounding), so with d = b − a the result
is a + ⌊d·f⌋. Here f is rounded to 24 bits and the product taken in whole numbers modulo 2³².
When is ⌊d·f⌋ not changed by the rounding? It jumps only where d·f is whole, that is where f = p/q
with q ≤ 255, because |d| ≤ 255. There are 19,821 such fractions in [0, 1]. A row whose f has none
of them nearby is right for every d; the others, one in 800, are computed again as Pillow does.

Rotations. Only a few angles occur, so everything that depends on angle and size alone is computed
once: which pixel is read, and the weights of it and its three neighbours, rounded to 24 bits. The
four neighbours are packed into one word, so that each plane is gathered once. Where the sum of
whole numbers comes so near to a whole value that rounding the weights could matter, one pixel in
16,000, it is computed again as Pillow does. Four equal neighbours are always right, because their
weights add up to one.

What would be read outside an image is black.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtpt.views.colour import Planes

Words = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_BITS = 24
_ROUNDING = 0.501 * 2.0**-_BITS  # of a shear's fraction, and a little for float64's own rounding
_DOUBT = 512  # in units of a rotation's weights; rounding changes a sum by less than 1.5 · 255
_CACHED_BYTES = 1 << 19  # of one array; measured at 64 and 224 pixels


class Scratch:
    """Memory that is kept between operations: fresh pages cost more than the sums.

    Several images are worked on at once: enough of them that small images do not cost more calls
    than sums, and so few that the numbers stay in the processor's cache.
    """

    def __init__(self, size: int) -> None:
        self.images = max(1, _CACHED_BYTES // (12 * size * size))
        shape = (self.images, 3, size, size)
        self.words = tuple(np.empty(shape, dtype=np.uint32) for _ in range(3))

    def parts(self, count: int) -> Iterator[slice]:
        """Split a number of images into parts that fit."""
        for start in range(0, count, self.images):
            yield slice(start, min(start + self.images, count))


def translate(planes: Planes, pixels: int, *, axis: int) -> Planes:
    """Move the content left (axis 2) or up (axis 1) by whole pixels; negative: right or down."""
    if pixels == 0:
        return planes
    moved = np.zeros_like(planes)
    source, target = planes.swapaxes(axis, 2), moved.swapaxes(axis, 2)
    kept = max(source.shape[2] - abs(pixels), 0)
    read, write = max(pixels, 0), max(-pixels, 0)
    target[..., write : write + kept] = source[..., read : read + kept]
    return moved


def shear(
    images: Sequence[Planes], levels: Sequence[float], *, axis: int, scratch: Scratch
) -> Planes:
    """Read row y at x + level · y (axis 3), or column x at y + level · x (axis 2).

    `images` are n of (3, S, S), `levels` one number of pixels per pixel for each, at most 1 in
    size; the result is (n, 3, S, S). `axis` is the one of (n, 3, S, S) along which pixels move.
    """
    motion = _motion(levels, images[0].shape[2])
    fixed = motion.fixed[:, None, :, None].swapaxes(axis, 3)  # (n, 1, S, 1) or (n, 1, 1, S)
    between = _between(images, fixed, axis=axis, scratch=scratch)
    result = np.zeros_like(between)
    _move_rows(
        [image.swapaxes(axis - 1, 2) for image in images],
        between.swapaxes(axis, 3),
        motion=motion,
        result=result.swapaxes(axis, 3),
    )
    return result


class _Motion(NamedTuple):
    """How far the rows of n images move, (n, S) each."""

    offset: Numbers  # in pixels
    whole: Numbers  # the whole number below it
    fraction: Numbers  # the rest
    fixed: Words  # the rest in units of 2⁻²⁴


def _motion(levels: Sequence[float], size: int) -> _Motion:
    offset = np.asarray(levels)[:, None] * (np.arange(size) + 0.5)
    whole = np.floor(offset)
    fraction = offset - whole
    return _Motion(offset, whole, fraction, np.rint(fraction * 2**_BITS).astype(np.uint32))


def _between(images: Sequence[Planes], fixed: Words, *, axis: int, scratch: Scratch) -> Planes:
    """Return (n, 3, S, S): the value between each pixel and the next, at the index of the first."""
    size = images[0].shape[2]
    lag = 1 if axis == 3 else size  # the next pixel is the right one or the lower one
    result = np.empty((len(images), 3, size, size), dtype=np.uint8)
    for part in scratch.parts(len(images)):
        source, steps = (words[: part.stop - part.start] for words in scratch.words[:2])
        for words, image in zip(source, images[part], strict=True):
            np.copyto(words, image)
        flat = source.reshape(-1)
        np.subtract(flat[lag:], flat[:-lag], out=steps.reshape(-1)[: flat.size - lag])
        steps.swapaxes(axis, 3)[..., -1] = 0  # the last pixel has no neighbour
        np.multiply(steps, fixed[part], out=steps)
        np.right_shift(steps, _BITS, out=steps)
        np.copyto(result[part], steps, casting="unsafe")
    for values, image in zip(result, images, strict=True):
        np.add(values, image, out=values)  # modulo 256
    return result


def _move_rows(
    images: Sequence[Planes], between: Planes, *, motion: _Motion, result: Planes
) -> None:
    """Move every row by its offset into `result`, and compute the doubtful rows again."""
    late = motion.fraction >= 0.5
    for number, (source, values, moved) in enumerate(zip(images, between, result, strict=True)):
        for rows, whole in _runs(motion.whole[number]):
            kept = source.shape[2] - abs(whole)
            write, read = max(-whole, 0), max(whole, 0)
            moved[:, rows, write : write + kept] = values[:, rows, read : read + kept]
            _set_ends(source[:, rows], whole, late=late[number, rows], moved=moved[:, rows])
    for index, row in np.argwhere(_is_doubtful(motion.fraction)).tolist():
        line = images[index][:, row]  # (3, S)
        result[index, :, row] = _pillow_row(line, float(motion.offset[index, row]))


def _runs(numbers: Numbers) -> Iterator[tuple[slice, int]]:
    """Yield each run of equal numbers and the number."""
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    for first, last in pairwise(edges):
        yield slice(first, last), int(numbers[first])


def _set_ends(source: Planes, whole: int, *, late: Flags, moved: Planes) -> None:
    """Set the pixel at the end of those rows (3, k, S) whose fraction is a half or more.

    Moving to the left, the centre of the last one then lies outside the image, which is black.
    Moving to the right, one more lies inside, before the centre of the first pixel.
    """
    if whole >= 0:
        moved[:, :, source.shape[2] - 1 - whole] *= ~late
    else:
        moved[:, :, -whole - 1] = source[:, :, 0] * late


@lru_cache(maxsize=1)
def _fractions() -> Numbers:
    """Return all p/q in [0, 1] with q ≤ 255, sorted, and 2 behind them."""
    return np.unique(np.concatenate([*(np.arange(q + 1) / q for q in range(1, 256)), [2.0]]))


def _is_doubtful(fraction: Numbers) -> Flags:
    """Return for which fractions rounding might step over a p/q."""
    fractions = _fractions()
    after = fractions[np.searchsorted(fractions, fraction - _ROUNDING)]
    doubtful: Flags = after < fraction + _ROUNDING
    return doubtful


def _pillow_row(line: Planes, offset: float) -> Planes:
    """Compute a whole row (3, S) in float64, in Pillow's order of operations."""
    last = line.shape[1] - 1
    position = (np.arange(last + 1) + 0.5) + offset
    inside = (position >= 0) & (position < last + 1)
    before = np.floor(position - 0.5)
    fraction = position - 0.5 - before
    left = line[:, np.clip(before, 0, last).astype(np.intp)].astype(np.float64)
    right = line[:, np.clip(before + 1, 0, last).astype(np.intp)].astype(np.float64)
    values: Planes = np.where(inside, left + (right - left) * fraction, 0).astype(np.uint8)
    return values


def rotate(images: Sequence[Planes], degrees: int, *, scratch: Scratch) -> Planes:
    """Rotate n images (3, S, S) counter-clockwise around the centre: (n, 3, S, S) uint8."""
    size = images[0].shape[2]
    turn = _turn(size, degrees)
    result = np.empty((len(images), 3, size * size), dtype=np.uint8)
    for part in scratch.parts(len(images)):
        packed, corners, spare = (
            words[: part.stop - part.start].reshape(-1, 3, size * size) for words in scratch.words
        )
        _pack(images[part], packed=packed, spare=spare)
        np.take(packed, turn.start, axis=2, out=corners, mode="wrap")
        total = _weighted(corners, turn.factors, total=packed, spare=spare)
        np.right_shift(total, _BITS, out=spare)
        np.copyto(result[part], spare, casting="unsafe")
        _repair(corners, total, turn=turn, spare=spare, result=result[part])
    result *= turn.inside
    return result.reshape(-1, 3, size, size)


def _pack(images: Sequence[Planes], *, packed: Words, spare: Words) -> None:
    """Put each pixel and its right, lower and lower right neighbour into one word."""
    # Beyond the last column and row they are those of the next line or plane; their weight is 0.
    for words, image in zip(packed, images, strict=True):
        np.copyto(words, image.reshape(words.shape))
    flat, neighbours = packed.reshape(-1), spare.reshape(-1)
    for lag, bits in ((1, 8), (images[0].shape[2], 16)):
        shifted = np.left_shift(flat[lag:], bits, out=neighbours[:-lag])
        np.bitwise_or(flat[:-lag], shifted, out=flat[:-lag])


def _weighted(corners: Words, factors: Words, *, total: Words, spare: Words) -> Words:
    """Write the sums of the four neighbours times their weights into `total`."""
    np.multiply(corners, factors[0], out=total)
    for number in (1, 2, 3):
        np.right_shift(corners, 8 * number, out=spare)
        np.multiply(spare, factors[number], out=spare)
        np.add(total, spare, out=total)
    return total


def _repair(corners: Words, total: Words, *, turn: "_Turn", spare: Words, result: Planes) -> None:
    """Compute the pixels whose cut is in doubt in float64, in Pillow's order of operations."""
    np.left_shift(total, 32 - _BITS, out=total)  # the fraction alone
    np.add(total, _DOUBT << (32 - _BITS), out=total)
    near = total < np.uint32(2 * _DOUBT << (32 - _BITS))
    if np.count_nonzero(near) > near.size // 64:  # flat areas, which need no repair
        np.bitwise_and(corners, 255, out=spare)
        np.multiply(spare, 0x01010101, out=spare)  # four equal neighbours
        near &= corners != spare
    indices = np.flatnonzero(near)
    four = corners.reshape(-1)[indices].astype("<u4").view(np.uint8).reshape(-1, 4)
    a, b, c, d = four.T.astype(np.float64)
    pixel = indices % corners.shape[2]
    across, down = turn.across[pixel], turn.down[pixel]
    upper = a + (b - a) * across
    lower = c + (d - c) * across
    result.reshape(-1)[indices] = upper + (lower - upper) * down


@dataclass(frozen=True)
class _Turn:
    """What a rotation by one angle reads, for each pixel of the result: (S·S,) each."""

    start: npt.NDArray[np.intp]  # index of the upper left of the four neighbours
    across: Numbers  # fraction of the way to the right neighbours
    down: Numbers  # fraction of the way to the lower neighbours
    factors: Words  # (4, S·S) of the packed word, and of it without its first 1, 2, 3 bytes
    inside: Planes  # 1, or 0 where the result is black


@lru_cache(maxsize=8)
def _turn(size: int, degrees: int) -> _Turn:
    # The sums are Pillow's, in its order.
    angle = -math.radians(degrees)
    cosine, sine = round(math.cos(angle), 15), round(math.sin(angle), 15)
    centre = size / 2
    x = (np.arange(size) + 0.5)[None, :]
    y = (np.arange(size) + 0.5)[:, None]
    column = cosine * x + sine * y + ((cosine * -centre + sine * -centre + 0.0) + centre)
    row = -sine * x + cosine * y + ((-sine * -centre + cosine * -centre + 0.0) + centre)
    inside = (column >= 0) & (column < size) & (row >= 0) & (row < size)
    left, across = _neighbour(column, size)
    top, down = _neighbour(row, size)
    parts = [across * (1 - down), (1 - across) * down, across * down]
    rounded = [np.rint(part * 2**_BITS).astype(np.int64) for part in parts]
    weights = np.stack([2**_BITS - sum(rounded), *rounded])  # (4, S, S)
    return _Turn(
        start=(top * size + left).reshape(-1),
        across=across.reshape(-1),
        down=down.reshape(-1),
        factors=_factors(weights).reshape(4, -1),
        inside=inside.reshape(-1).astype(np.uint8),
    )


def _neighbour(position: Numbers, size: int) -> tuple[npt.NDArray[np.intp], Numbers]:
    """Return the pixel before a position and the fraction of the way to the next one."""
    before = np.floor(position - 0.5)
    fraction = position - 0.5 - before
    fraction[(before < 0) | (before >= size - 1)] = 0  # beyond the outer pixel centres
    return np.clip(before, 0, size - 1).astype(np.intp), fraction


def _factors(weights: npt.NDArray[np.int64]) -> Words:
    """Return the factors (modulo 2³²) that make a weighted sum of a packed word's four bytes.

    With p = a + 2⁸b + 2¹⁶c + 2²⁴d the sum p·u₀ + (p ≫ 8)·u₁ + (p ≫ 16)·u₂ + (p ≫ 24)·u₃ is
    a·w₀ + b·w₁ + c·w₂ + d·w₃ if u₀ = w₀ and uᵢ = wᵢ − 2⁸wᵢ₋₁: no byte has to be cut out.
    """
    factors = weights.copy()
    factors[1:] -= weights[:-1] << 8
    return factors.astype(np.uint32)
