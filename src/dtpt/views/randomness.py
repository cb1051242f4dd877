"""Where the random numbers of a view come from.

Each view has its own short list of uniform numbers, drawn from a generator that is seeded by a hash
of (seed, image id, view index). Nothing else enters: a view is the same in whatever order, worker,
shard or resumed run it is made. Only NumPy's bit generator and its uniform numbers are used, which
NumPy keeps stable over versions; its other distributions it does not.
"""

import hashlib

import numpy as np
import numpy.typing as npt

NUMBERS_PER_VIEW = 64
"""How many uniform numbers a view gets; crop and AugMix use fixed places in the list."""

CROP_NUMBERS = slice(0, 23)
AUGMIX_NUMBERS = slice(23, 57)


def view_numbers(seed: int, image_id: str, *, view: int) -> npt.NDArray[np.float64]:
    """Return the uniform numbers in [0, 1) of one view of one image.

    Example:
        >>> view_numbers(0, "image", view=1)[:2].tolist()
        [0.14078488861449545, 0.19407243489509762]
    """
    digest = hashlib.sha256(f"{seed}\0{view}\0{image_id}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    return generator.random(NUMBERS_PER_VIEW)
