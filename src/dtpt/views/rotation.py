"""Rotations of planar pictures, equal to Pillow's bilinear `rotate` bit for bit.

Only a few angles occur, so everything that depends on angle and size alone is computed once: which
pixel is read, and the weights of it and its three neighbours, rounded to 24 bits. The four
neighbours are packed into one word, so that each plane is gathered once.

Pillow computes in float64 and cuts off the fraction. Where the sum of whole numbers comes so near
to a whole value that rounding the weights could matter, one pixel in 16,000, it is computed again
as Pillow does. Four equal neighbours are always right, because their weights add up to one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dtpt.views.planes import Numbers, Planes, Scratch, Words

_BITS = 24
_DOUBT = 512  # in units of the weights; their rounding changes a sum by less than 1.5 · 255


def rotate(pictures: Sequence[Planes], degrees: int, *, scratch: Scratch) -> Planes:
    """Rotate pictures (3, S, S) counter-clockwise around the centre.

    Returns:
        (n, 3, S, S) uint8; what would be read outside a picture is black.

    Example:
        >>> picture = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
        >>> rotate([picture], 2, scratch=Scratch(3))[0, 0].tolist()
        [[0, 1, 2], [2, 4, 5], [5, 6, 7]]
    """
    size = pictures[0].shape[2]
    turn = _turn(size, degrees)
    result = np.empty((len(pictures), 3, size * size), dtype=np.uint8)
    for part in scratch.parts(len(pictures)):
        packed, corners, spare = (
            words[: part.stop - part.start].reshape(-1, 3, size * size) for words in scratch.words
        )
        _pack(pictures[part], packed=packed, spare=spare)
        np.take(packed, turn.start, axis=2, out=corners, mode="wrap")
        total = _weighted(corners, turn.factors, total=packed, spare=spare)
        np.right_shift(total, _BITS, out=spare)
        np.copyto(result[part], spare, casting="unsafe")
        _repair(corners, total, turn=turn, spare=spare, result=result[part])
    result *= turn.inside
    return result.reshape(-1, 3, size, size)


def _pack(pictures: Sequence[Planes], *, packed: Words, spare: Words) -> None:
    """Put each pixel and its right, lower and lower right neighbour into one word.

    Beyond the last column and row the neighbours are those of the next line or plane, or none;
    their weight is zero.
    """
    for words, picture in zip(packed, pictures, strict=True):
        np.copyto(words, picture.reshape(words.shape))
    flat, neighbours = packed.reshape(-1), spare.reshape(-1)
    for lag, bits in ((1, 8), (pictures[0].shape[2], 16)):
        shifted = np.left_shift(flat[lag:], bits, out=neighbours[:-lag])
        np.bitwise_or(flat[:-lag], shifted, out=flat[:-lag])


def _weighted(corners: Words, factors: Words, *, total: Words, spare: Words) -> Words:
    """Return the sums of the four neighbours times their weights, in `total`."""
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
    places = np.flatnonzero(near)
    four = corners.reshape(-1)[places].astype("<u4").view(np.uint8).reshape(-1, 4)
    a, b, c, d = four.T.astype(np.float64)
    pixel = places % corners.shape[2]
    across, down = turn.across[pixel], turn.down[pixel]
    upper = a + (b - a) * across
    lower = c + (d - c) * across
    result.reshape(-1)[places] = upper + (lower - upper) * down


@dataclass(frozen=True)
class _Turn:
    """What a rotation by one angle reads, for each pixel of the result: (S·S,) each.

    Attributes:
        start: Index of the upper left of the four neighbours.
        across: Fraction of the way to the right neighbours.
        down: Fraction of the way to the lower neighbours.
        factors: (4, S·S) of the packed word, and of it without its first one, two, three bytes.
        inside: 1, or 0 where the result is black.
    """

    start: npt.NDArray[np.intp]
    across: Numbers
    down: Numbers
    factors: Words
    inside: Planes


@lru_cache(maxsize=8)
def _turn(size: int, degrees: int) -> _Turn:
    """Compute what a rotation reads; the sums are Pillow's, in its order."""
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
    """Return the pixel before a position and the fraction of the way to the next one.

    Before the first and from the last pixel centre on both are the same pixel: the fraction is 0.
    """
    before = np.floor(position - 0.5)
    fraction = position - 0.5 - before
    fraction[(before < 0) | (before >= size - 1)] = 0
    return np.clip(before, 0, size - 1).astype(np.intp), fraction


def _factors(weights: npt.NDArray[np.int64]) -> Words:
    """Return the factors (modulo 2³²) that make a weighted sum of a packed word's four bytes.

    With p = a + 2⁸b + 2¹⁶c + 2²⁴d the sum p·u₀ + (p ≫ 8)·u₁ + (p ≫ 16)·u₂ + (p ≫ 24)·u₃ is
    a·w₀ + b·w₁ + c·w₂ + d·w₃ if u₀ = w₀ and uᵢ = wᵢ − 2⁸wᵢ₋₁: no byte has to be cut out.

    Args:
        weights: (4, ...) w₀ to w₃.
    """
    factors = weights.copy()
    factors[1:] -= weights[:-1] << 8
    return factors.astype(np.uint32)
