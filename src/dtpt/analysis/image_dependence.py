"""How much of a method's update depends on the image at all?

The first AdamW step from an empty state is -lr · g / (|g| + ε) per coordinate: only the signs of
g = g_entropy + λ g_regulariser count. g_regulariser is the same for every image of a class list;
once it wins the signs, every image gets the same context, and a *static* context, tuned once by the
regulariser alone, does the same at no cost per image.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dtpt.analysis.results import ImageDependence, MethodScore, StaticComparison
from dtpt.errors import MetricError

ALMOST_ALL = 0.95
ADAM_EPSILON = 1e-8
FULL_STEP = 0.99


@dataclass(frozen=True)
class SignShares:
    """Shares over images and coordinates; the attributes are those of `ImageDependence`."""

    images: int
    coordinates: int
    same_sign_all: float
    same_sign_most: float
    mean_majority: float
    regulariser_agreement: float | None
    entropy_agreement: float
    full_steps: float


class SignTally:
    """Counts, image by image, in which direction every coordinate of the context steps.

    Args:
        regulariser: (n, W) gradient of the regulariser; None for plain TPT.
        lambda_: Its weight.
    """

    def __init__(self, regulariser: Tensor | None, lambda_: float = 0.0) -> None:
        self._regulariser = regulariser
        self._lambda = lambda_
        self.images = 0
        self._up: Tensor | None = None
        self._down: Tensor | None = None
        self._as_regulariser = self._as_entropy = self._full = 0

    def add(self, entropy: Tensor) -> None:
        """Count the step for one image with its entropy gradient (n, W)."""
        gradient = entropy
        if self._regulariser is not None and self._lambda:
            gradient = entropy + self._lambda * self._regulariser
        signs = gradient.sign()
        if self._up is None or self._down is None:
            self._up = torch.zeros_like(signs, dtype=torch.int64)
            self._down = torch.zeros_like(signs, dtype=torch.int64)
        self.images += 1
        self._up += signs > 0
        self._down += signs < 0
        self._as_entropy += int((signs == entropy.sign()).sum())
        if self._regulariser is not None:
            self._as_regulariser += int((signs == self._regulariser.sign()).sum())
        size = gradient.abs()
        self._full += int((size / (size + ADAM_EPSILON) > FULL_STEP).sum())

    def shares(self) -> SignShares:
        """Return what was counted as shares."""
        if self._up is None or self._down is None:
            raise MetricError("There are no images whose steps could be compared.")
        majority = torch.maximum(self._up, self._down).cpu().double() / self.images
        pairs = self.images * majority.numel()
        known = self._regulariser is not None
        return SignShares(
            images=self.images,
            coordinates=majority.numel(),
            same_sign_all=float((majority == 1).double().mean()),
            same_sign_most=float((majority >= ALMOST_ALL).double().mean()),
            mean_majority=float(majority.mean()),
            regulariser_agreement=self._as_regulariser / pairs if known else None,
            entropy_agreement=self._as_entropy / pairs,
            full_steps=self._full / pairs,
        )


def sign_shares(entropy: Tensor, regulariser: Tensor | None, *, lambda_: float = 0.0) -> SignShares:
    """Compare the first steps for images with entropy gradients (images, n, W)."""
    tally = SignTally(regulariser, lambda_)
    for gradient in entropy:
        tally.add(gradient)
    return tally.shares()


@dataclass(frozen=True)
class Predictions:
    """What one method predicted, image by image, each (n,)."""

    classes: npt.NDArray[np.int64]
    confidence: npt.NDArray[np.float64]


def compare_with_static(
    method: Predictions, static: Predictions, *, static_score: MethodScore
) -> StaticComparison:
    """Put a method beside its static variant on the same images in the same order."""
    if method.classes.shape != static.classes.shape or method.classes.size == 0:
        raise MetricError("A method and its static variant must be compared on the same images.")
    return StaticComparison(
        score=static_score,
        same_prediction=float(np.mean(method.classes == static.classes)),
        confidence_difference=float(np.mean(np.abs(method.confidence - static.confidence))),
    )


def image_dependence(
    shares: SignShares, score: MethodScore, static: StaticComparison | None
) -> ImageDependence:
    """Join shares, score and static variant of one method and λ."""
    return ImageDependence(
        label=score.label,
        method=score.method,
        lambda_=score.lambda_,
        **vars(shares),
        score=score,
        static=static,
    )
