"""What tuning does: the movement of text features (figure 5), and how much depends on the image.

For a text feature t, an image feature v and the tuned feature t' (all unit vectors) the movement
δ = t' - t is split along an orthonormal frame, as figure 5's caption defines it:

* normal n = t: the radial axis. Staying on the sphere makes it δ·n = -‖δ‖²/2, never positive;
* tangent u = (v - (v·t) t) / ‖·‖: the geodesic from the text feature toward the image feature;
* binormal: what is left, orthogonal to both. Only it leaves the cosine with the image unchanged.

The first AdamW step from an empty state is -lr · g / (|g| + ε) per coordinate: only the signs of
g = g_entropy + λ g_R count. g_R is the same for every image of a class list; once it wins the
signs, every image gets the same context, and a *static* context, tuned once by the regulariser
alone, does the same at no cost per image.

No torch is imported here: tensors bring their own operations.
"""

from dataclasses import astuple, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from dtpt.analysis.features import Floats
from dtpt.methods.c_tpt import dispersion

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_NORM = 1e-12
ALMOST_ALL = 0.95


@dataclass(frozen=True)
class GeometryState:
    """Where the text features lie relative to an image, averaged over images."""

    atfd: float  # average text feature dispersion
    logit_range: float  # largest minus smallest logit (logits are cosines times the logit scale)
    logit_mean: float  # over classes
    cosine: float  # of the image and all classes: logit_mean without the scale
    top_cosine: float  # of the image and the class that zero-shot predicts
    label_cosine: float  # of the image and its true class


@dataclass(frozen=True)
class Movement:
    """The movement t → t' of text features, averaged over images.

    The fractions add up to 1, or are all 0 when nothing moves; a movement in a random direction of
    the sphere would have a tangent fraction of 1/(D - 1).
    """

    squared_length: float  # mean ‖t' - t‖²
    tangent_fraction: float  # of the squared movement
    normal_fraction: float
    binormal_fraction: float
    tangent: float  # mean signed length; positive is toward the image
    normal: float  # mean signed length; negative is toward the centre, as on any chord
    binormal: float  # mean length


@dataclass(frozen=True)
class MethodGeometry:
    """What tuning does to the text features (figures 1 and 5)."""

    label: str  # name and λ: `d-tpt@1e5`
    angle: float  # mean angle (radians) between text features and the image before tuning
    before: GeometryState  # with the initial context; the same for every method
    after: GeometryState
    every_class: Movement
    top_class: Movement  # of the class that zero-shot predicts
    other_classes: Movement | None  # None when there is one class only


def split_movement(before: "Tensor", after: "Tensor", image: "Tensor") -> "Tensor":
    """Split the movement of (C, D) text features relative to an image feature (D,).

    Returns (3, C): signed tangent and normal lengths, binormal length. Where the image feature is
    parallel to a text feature there is no tangent direction; all sideways movement is binormal.
    """
    start, end, target = (x.cpu().double() for x in (before, after, image))  # MPS has no float64
    normal = start / start.norm(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)  # (C, D)
    toward = target - (normal @ target)[:, None] * normal  # (C, D)
    lengths = toward.norm(dim=1, keepdim=True)
    tangent = toward / lengths.clamp_min(SMALLEST_NORM) * (lengths > SMALLEST_NORM)
    moved = end - start
    parts = moved.new_empty(3, len(moved))
    parts[0], parts[1] = (moved * tangent).sum(dim=1), (moved * normal).sum(dim=1)
    parts[2] = (moved - parts[1][:, None] * normal - parts[0][:, None] * tangent).norm(dim=1)
    return parts


def geometry_state(
    text: "Tensor", image: "Tensor", *, top: int, label: int, logit_scale: float
) -> GeometryState:
    """Measure (C, D) text features relative to one image feature (D,), all unit vectors."""
    words = text.cpu().double()
    cosines = words @ image.cpu().double()  # (C,)
    return GeometryState(
        atfd=float(dispersion(words)),
        logit_range=logit_scale * float(cosines.max() - cosines.min()),
        logit_mean=logit_scale * float(cosines.mean()),
        cosine=float(cosines.mean()),
        top_cosine=float(cosines[top]),
        label_cosine=float(cosines[label]),
    )


def geometry_sums(
    initial: "Tensor", tuned: "Tensor", *, image: "Tensor", label: int, logit_scale: float
) -> Floats:
    """Return what is added up over images (D,) of class `label`, for `mean_geometry`.

    That is: the mean angle, both states, and the movement of all, the top and the other classes.
    """
    cosines = initial @ image  # (C,)
    top = int(cosines.argmax())
    states = (
        astuple(geometry_state(text, image, top=top, label=label, logit_scale=logit_scale))
        for text in (initial, tuned)
    )
    parts = split_movement(initial, tuned, image)  # (3, C)
    is_top = cosines.new_zeros(len(cosines)).bool().cpu()
    is_top[top] = True
    moved = (
        (some.shape[1], *some.sum(dim=1).tolist(), *(some**2).sum(dim=1).tolist())
        for some in (parts, parts[:, is_top], parts[:, ~is_top])
    )
    angle = float(cosines.cpu().double().clamp(-1, 1).arccos().mean())
    return np.array([angle, *chain(*states), *chain(*moved)])


def mean_geometry(label: str, sums: Floats, *, images: int) -> MethodGeometry:
    """Turn the sums over some images into means."""
    angle, states, moved = sums[0] / images, sums[1:13] / images, sums[13:].reshape(3, 7)
    before, after = (GeometryState(*row) for row in states.reshape(2, 6).tolist())
    every, top, others = map(_movement, moved)
    others_or_none = others if moved[2, 0] else None
    return MethodGeometry(label, float(angle), before, after, every, top, others_or_none)


def _movement(sums: Floats) -> Movement:
    count, lengths, squares = max(float(sums[0]), 1.0), sums[1:4], sums[4:]
    total = float(squares.sum())
    fractions = squares / total if total > 0 else squares * 0
    return Movement(total / count, *fractions.tolist(), *(lengths / count).tolist())


@dataclass(frozen=True)
class ImageDependence:
    """How much of a method's first step depends on the image at all; all numbers are fractions."""

    label: str  # name and λ: `d-tpt@1e5`
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
        majority = self._up.maximum(self._down).cpu().double() / self._images
        agreement = self._agreeing / (self._images * majority.numel())
        return ImageDependence(
            label,
            same_sign_all=float((majority == 1).double().mean()),
            same_sign_most=float((majority >= ALMOST_ALL).double().mean()),
            regulariser_agreement=None if self._regulariser is None else agreement,
        )
