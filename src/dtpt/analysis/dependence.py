"""How much of a method's first step depends on the image, and how far regularisers agree.

The first AdamW step from an empty state is -lr · g / (|g| + ε) per coordinate: only the signs of
g = g_entropy + λ g_R count. g_R is the same for every image of a class list; once it wins the
signs, every image gets the same context, and a *static* context, tuned once by the regulariser
alone, does the same at no cost per image.

For the same reason two regularisers whose gradients at the initial context point the same way take
the same first step, up to their λ. On the sphere, the distance to the centroid (C-TPT), the norm of
a row of the Gram matrix (O-TPT) and the part along the mean (aligned D-TPT) all change fastest
along the great circle away from the mean text feature; only how much each class counts differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from dtpt.errors import MethodError, MetricError

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.methods import ResolvedMethod
    from dtpt.tuning import Tuner

ALMOST_ALL = 0.95


@dataclass(frozen=True)
class ImageDependence:
    """How much of a method's first step depends on the image at all; all numbers are fractions."""

    label: str  # name and λ: `d-tpt@100000`
    same_sign_all: float  # of coordinates that step in the same direction for every image
    same_sign_most: float  # the same for at least 95 % of the images
    regulariser_agreement: float | None  # of (image, coordinate) pairs with the regulariser's sign
    static: str | None = None  # label of its static variant; None without regulariser
    same_prediction: float | None = None  # of images on which both predict the same class


class SignTally:
    """Counts, image by image, in which direction every coordinate of the context steps.

    `regulariser` is its gradient (n, W); None for plain TPT.
    """

    def __init__(self, regulariser: "Tensor | None", lambda_: float = 0.0) -> None:
        self._regulariser, self._lambda = regulariser, lambda_
        self._images = self._agreeing = 0
        self._up: Any = 0  # (n, W) after the first image
        self._down: Any = 0

    def add(self, entropy: "Tensor") -> None:
        """Count the step for one image with its entropy gradient (n, W)."""
        gradient = entropy
        if self._regulariser is not None and self._lambda:
            gradient = entropy + self._lambda * self._regulariser
        signs = gradient.sign()
        self._images += 1
        self._up = self._up + (signs > 0).long()
        self._down = self._down + (signs < 0).long()
        if self._regulariser is not None:
            self._agreeing += int((signs == self._regulariser.sign()).sum())

    def result(self, label: str) -> ImageDependence:
        if self._images == 0:
            raise MetricError("There are no images whose steps could be compared.")
        majority = self._up.maximum(self._down).cpu().double() / self._images
        agreement = self._agreeing / (self._images * majority.numel())
        return ImageDependence(
            label,
            same_sign_all=float((majority == 1).double().mean()),
            same_sign_most=float((majority >= ALMOST_ALL).double().mean()),
            regulariser_agreement=None if self._regulariser is None else agreement,
        )


@dataclass(frozen=True)
class GradientPair:
    """How the first steps of two regularisers agree."""

    first: str  # method
    second: str
    cosine: float  # between their gradients
    same_signs: float  # fraction of coordinates that both would move the same way


def gradient_agreement(tuner: "Tuner", methods: "Sequence[ResolvedMethod]") -> list[GradientPair]:
    """Compare the regularisers of every pair of methods at the initial context."""
    if len(methods) < 2:
        raise MethodError("Give at least two methods with a regulariser to compare.")
    gradients = {
        method.method.name: tuner.regulariser_gradient(method.method).detach().cpu().double()
        for method in methods
    }
    pairs = []
    for (first, one), (second, other) in combinations(gradients.items(), 2):
        lengths = float(one.norm() * other.norm())
        cosine = float(one.flatten() @ other.flatten()) / lengths if lengths > 0 else 0.0
        same_signs = float((one.sign() == other.sign()).double().mean())
        pairs.append(GradientPair(first, second, cosine, same_signs))
    return pairs
