"""Planar pictures, and the memory in which several of them are worked on at once.

A picture is three planes, (3, S, S) uint8. Operations that compute do so on a few pictures at a
time: enough of them that a small picture does not cost more calls than sums, and so few that the
numbers stay in the processor's cache.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from PIL import Image

Planes = npt.NDArray[np.uint8]  # (3, S, S), or (n, 3, S, S) for several pictures
Words = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.float64]

_CACHED_BYTES = 1 << 19  # of one array; measured at 64 and 224 pixels


class Scratch:
    """Memory that is kept between operations: fresh pages cost more than the sums.

    Attributes:
        pictures: How many pictures are worked on at once.
        words: Three arrays (pictures, 3, S, S) uint32, overwritten by whoever uses them.
    """

    def __init__(self, size: int) -> None:
        self.pictures = max(1, _CACHED_BYTES // (12 * size * size))
        shape = (self.pictures, 3, size, size)
        self.words = tuple(np.empty(shape, dtype=np.uint32) for _ in range(3))

    def parts(self, count: int) -> Iterator[slice]:
        """Cut a number of pictures into parts that fit.

        Example:
            >>> list(Scratch(64).parts(12))
            [slice(0, 10, None), slice(10, 12, None)]
        """
        for start in range(0, count, self.pictures):
            yield slice(start, min(start + self.pictures, count))


def planes_of(image: Image.Image) -> Planes:
    """Return the (3, S, S) planes of an RGB picture.

    Example:
        >>> planes_of(Image.new("RGB", (1, 1), (7, 8, 9))).tolist()
        [[[7]], [[8]], [[9]]]
    """
    data = b"".join([image.tobytes("raw", channel) for channel in "RGB"])
    return np.frombuffer(data, dtype=np.uint8).reshape(3, image.height, image.width)
