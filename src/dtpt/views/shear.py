"""Shears of planar pictures, equal to Pillow's bilinear transform bit for bit.

Pillow computes a + (b − a) · f in float64 and cuts off the fraction; a and b are neighbouring
pixels. In a shear all pixels of a row have the same f (to rounding), so with d = b − a the result
is a + ⌊d·f⌋. Here f is rounded to 24 bits and the product taken in whole numbers modulo 2³².

When is ⌊d·f⌋ not changed by the rounding? It jumps only where d·f is whole, that is where f = p/q
with q ≤ 255, because |d| ≤ 255. There are 19,821 such fractions in [0, 1]. A row whose f has none
of them nearby is right for every d; the others, one in 800, are computed again as Pillow does.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dtpt.views.planes import Numbers, Planes, Scratch, Words

_BITS = 24
_ROUNDING = 0.501 * 2.0**-_BITS  # of a fraction, and a little for float64's own rounding


def shear_x(pictures: Sequence[Planes], levels: Sequence[float], *, scratch: Scratch) -> Planes:
    """Read row y at x + level · y (pixel centres), which slants the picture.

    Args:
        pictures: n pictures (3, S, S).
        levels: One for each picture, in pixels per pixel, at most 1 in size.
        scratch: Overwritten.

    Returns:
        (n, 3, S, S) uint8; what would be read outside a picture is black.

    Example:
        >>> square = np.full((3, 2, 2), 100, dtype=np.uint8)
        >>> shear_x([square], [0.5], scratch=Scratch(2))[0, 0].tolist()
        [[100, 100], [100, 0]]
    """
    motion = _motion(levels, pictures[0].shape[2])
    between = _between(pictures, motion.fixed[:, None, :, None], axis=3, scratch=scratch)
    result = np.zeros_like(between)
    _put_in_place(pictures, between, motion=motion, result=result)
    return result


def shear_y(pictures: Sequence[Planes], levels: Sequence[float], *, scratch: Scratch) -> Planes:
    """Read column x at y + level · x: `shear_x` with the axes exchanged."""
    motion = _motion(levels, pictures[0].shape[2])
    between = _between(pictures, motion.fixed[:, None, None, :], axis=2, scratch=scratch)
    result = np.zeros_like(between)
    _put_in_place(
        [picture.swapaxes(1, 2) for picture in pictures],
        between.swapaxes(2, 3),
        motion=motion,
        result=result.swapaxes(2, 3),
    )
    return result


class _Motion(NamedTuple):
    """How far the rows of n pictures move, (n, S) each.

    Attributes:
        offset: In pixels.
        whole: The whole number below it.
        fraction: The rest.
        fixed: The rest in units of 2⁻²⁴.
    """

    offset: Numbers
    whole: Numbers
    fraction: Numbers
    fixed: Words


def _motion(levels: Sequence[float], size: int) -> _Motion:
    offset = np.asarray(levels)[:, None] * (np.arange(size) + 0.5)
    whole = np.floor(offset)
    fraction = offset - whole
    return _Motion(offset, whole, fraction, np.rint(fraction * 2**_BITS).astype(np.uint32))


def _between(pictures: Sequence[Planes], fixed: Words, *, axis: int, scratch: Scratch) -> Planes:
    """Return the value between each pixel and the next one, in the place of the first.

    Args:
        pictures: n pictures (3, S, S).
        fixed: The fractions, (n, 1, S, 1) or (n, 1, 1, S).
        axis: Where the next pixel is: 3 for the right one, 2 for the lower one.
        scratch: Overwritten.

    Returns:
        (n, 3, S, S) uint8.
    """
    size = pictures[0].shape[2]
    lag = 1 if axis == 3 else size
    result = np.empty((len(pictures), 3, size, size), dtype=np.uint8)
    for part in scratch.parts(len(pictures)):
        source, steps = (words[: part.stop - part.start] for words in scratch.words[:2])
        for words, picture in zip(source, pictures[part], strict=True):
            np.copyto(words, picture)
        flat = source.reshape(-1)
        np.subtract(flat[lag:], flat[:-lag], out=steps.reshape(-1)[: flat.size - lag])
        steps.swapaxes(axis, 3)[..., -1] = 0  # the last pixel has no neighbour
        np.multiply(steps, fixed[part], out=steps)
        np.right_shift(steps, _BITS, out=steps)
        np.copyto(result[part], steps, casting="unsafe")
    for values, picture in zip(result, pictures, strict=True):
        np.add(values, picture, out=values)  # modulo 256
    return result


def _put_in_place(
    pictures: Sequence[Planes], between: Planes, *, motion: _Motion, result: Planes
) -> None:
    """Move every row by its offset into `result`, and compute the doubtful rows again."""
    late = motion.fraction >= 0.5
    for number, (source, values, moved) in enumerate(zip(pictures, between, result, strict=True)):
        for rows, whole in _runs(motion.whole[number]):
            kept = source.shape[2] - abs(whole)
            write, read = max(-whole, 0), max(whole, 0)
            moved[:, rows, write : write + kept] = values[:, rows, read : read + kept]
            _settle_ends(source[:, rows], whole, late=late[number, rows], moved=moved[:, rows])
    for picture, row in np.argwhere(_is_doubtful(motion.fraction)).tolist():
        line = pictures[picture][:, row]  # (3, S)
        result[picture, :, row] = _as_pillow_does(line, float(motion.offset[picture, row]))


def _runs(numbers: Numbers) -> Iterator[tuple[slice, int]]:
    """Yield each run of equal numbers and the number."""
    edges = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    for first, last in pairwise(edges):
        yield slice(first, last), int(numbers[first])


def _settle_ends(source: Planes, whole: int, *, late: npt.NDArray[np.bool_], moved: Planes) -> None:
    """Set the pixel at the end of those rows (3, k, S) whose fraction is a half or more.

    Moving to the left, the centre of the last one then lies outside the picture, which is black.
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


def _is_doubtful(fraction: Numbers) -> npt.NDArray[np.bool_]:
    """Tell for which fractions rounding might step over a p/q."""
    known = _fractions()
    after = known[np.searchsorted(known, fraction - _ROUNDING)]
    doubtful: npt.NDArray[np.bool_] = after < fraction + _ROUNDING
    return doubtful


def _as_pillow_does(line: Planes, offset: float) -> Planes:
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
