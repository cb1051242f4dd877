"""What the views of an image are made of, as data with a fingerprint."""

import hashlib
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(gt=0, le=1)]
Aspect = Annotated[float, Field(gt=0, le=100)]


class ViewRecipe(BaseModel):
    """The original view and `count - 1` augmented ones.

    Attributes:
        count: Number of views, the original (view 0) included.
        augmix: Whether AugMix follows the crop; the peers use it on the fine-grained sets.
        area: Least and largest part of the picture's area that a crop covers.
        aspect: Least and largest width divided by height of a crop.
        flip: Probability of a left-right flip.
        version: Of the algorithm; it changes when the same seed would give other views.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[int, Field(ge=1, le=4096)] = 64
    augmix: bool = True
    area: tuple[Fraction, Fraction] = (0.08, 1.0)
    aspect: tuple[Aspect, Aspect] = (3 / 4, 4 / 3)
    flip: Annotated[float, Field(ge=0, le=1)] = 0.5
    version: Literal[1] = 1

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.area[0] > self.area[1] or self.aspect[0] > self.aspect[1]:
            raise ValueError("area and aspect must be (least, largest)")
        return self

    @property
    def fingerprint(self) -> str:
        """The sha256 (hex) of all fields: equal recipes make equal views.

        Example:
            >>> ViewRecipe().fingerprint == ViewRecipe(count=64).fingerprint
            True
        """
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()
