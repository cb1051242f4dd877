"""Which views an image gets: the recipe, and the random numbers of each view.

Each view has its own short list of uniform numbers, drawn from a generator that is seeded by a hash
of (seed, image id, view index). Nothing else enters: a view is the same in whatever order, worker,
shard or resumed run it is made. Only NumPy's bit generator and its uniform numbers are used, which
NumPy keeps stable over versions; its other distributions it does not.
"""

import hashlib
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(gt=0, le=1)]
Aspect = Annotated[float, Field(gt=0, le=100)]

# Crop and AugMix use fixed slices of a view's list, so that one does not shift the other.
NUMBERS_PER_VIEW = 64
CROP_NUMBERS = slice(0, 23)
AUGMIX_NUMBERS = slice(23, 57)


class ViewRecipe(BaseModel):
    """The original view and `count - 1` augmented ones.

    Example:
        >>> ViewRecipe(count=16).augmix
        True
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[int, Field(ge=1, le=4096)] = 64  # with the original, which is view 0
    augmix: bool = True  # after the crop; the peers use it on the fine-grained sets
    area: tuple[Fraction, Fraction] = (0.08, 1.0)  # of a crop, as a fraction of the image's
    aspect: tuple[Aspect, Aspect] = (3 / 4, 4 / 3)  # width divided by height of a crop
    flip: Annotated[float, Field(ge=0, le=1)] = 0.5  # probability
    version: Literal[1] = 1  # changes when the same seed would give other views

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.area[0] > self.area[1] or self.aspect[0] > self.aspect[1]:
            raise ValueError("area and aspect must be (least, largest)")
        return self

    @property
    def fingerprint(self) -> str:
        """The sha256 (hex) of all fields: equal recipes make equal views."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def view_numbers(seed: int, image_id: str, *, view: int) -> npt.NDArray[np.float64]:
    """Return the uniform numbers in [0, 1) of one view of one image.

    Example:
        >>> view_numbers(0, "image", view=1)[:2].tolist()
        [0.14078488861449545, 0.19407243489509762]
    """
    digest = hashlib.sha256(f"{seed}\0{view}\0{image_id}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
    return generator.random(NUMBERS_PER_VIEW)
