"""The colour operations of AugMix as tables of 256 values per channel, equal to Pillow's `ImageOps`.

As tables they cost nothing until pixels are needed: tables compose, and the histogram of a picture
behind a table follows from the histogram in front of it.
"""

import numpy as np
import numpy.typing as npt

Table = npt.NDArray[np.uint8]  # (3, 256): new value of each old value, per channel
Histogram = npt.NDArray[np.int64]  # (3, 256): number of pixels of each value, per channel

IDENTITY: Table = np.tile(np.arange(256, dtype=np.uint8), (3, 1))
IDENTITY.setflags(write=False)


def posterize(bits: int) -> Table:
    """Keeps the highest `bits` bits of every value."""
    return IDENTITY & np.uint8(256 - (1 << (8 - bits)))


def solarize(threshold: int) -> Table:
    """Inverts values from `threshold` on."""
    return np.where(IDENTITY < threshold, IDENTITY, 255 - IDENTITY).astype(np.uint8)


def autocontrast(histogram: Histogram) -> Table:
    """Stretches each channel so that its darkest value becomes 0 and its brightest 255."""
    table = IDENTITY.copy()
    for channel in range(3):
        present = np.flatnonzero(histogram[channel])
        low, high = int(present[0]), int(present[-1])
        if high > low:
            scale = 255.0 / (high - low)
            stretched = np.arange(256) * scale + -low * scale
            table[channel] = np.clip(np.trunc(stretched), 0, 255).astype(np.uint8)
    return table


def equalize(histogram: Histogram) -> Table:
    """Flattens the histogram of each channel, with Pillow's whole-number arithmetic."""
    table = IDENTITY.copy()
    for channel in range(3):
        counts = histogram[channel]
        present = counts[counts > 0]
        step = int(present.sum() - present[-1]) // 255
        if len(present) > 1 and step > 0:
            before = np.cumsum(counts) - counts
            # Pillow stores the quotient in a table of bytes, so what exceeds 255 is capped.
            table[channel] = np.minimum((step // 2 + before) // step, 255).astype(np.uint8)
    return table


def composed(first: Table, second: Table) -> Table:
    """Returns the table of `first`, then `second`."""
    return np.take_along_axis(second, first.astype(np.intp), axis=1)


def behind(histogram: Histogram, table: Table) -> Histogram:
    """Returns the histogram of a picture after `table` was applied to it."""
    result = np.zeros_like(histogram)
    for channel in range(3):
        np.add.at(result[channel], table[channel], histogram[channel])
    return result
