"""Text features on the sphere: what tuning does to them (figure 5), and the modality gap.

For a text feature t, an image feature v and the tuned feature t' (all unit vectors) the movement
δ = t' - t is split along an orthonormal frame, as figure 5's caption defines it:

* normal n = t: the radial axis. Staying on the sphere makes it δ·n = -‖δ‖²/2, never positive;
* tangent u = (v - (v·t) t) / ‖·‖: the geodesic from the text feature toward the image feature;
* binormal: what is left, orthogonal to both. Only it leaves the cosine with the image unchanged.

No torch is imported here: tensors bring their own operations.
"""

from dataclasses import astuple, dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dtpt.analysis.dominant import Floats
from dtpt.errors import MetricError
from dtpt.methods.c_tpt import dispersion

if TYPE_CHECKING:
    from torch import Tensor

SUMS = 1 + 2 * 6 + 3 * 7  # length of `geometry_sums`
SMALLEST_NORM = 1e-12
GAP_PARTS = 10  # dimensions that are named


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

    label: str  # name and λ: `d-tpt@100000`
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
    if before.shape != after.shape or before.ndim != 2 or image.shape != before.shape[1:]:
        shapes = f"{tuple(before.shape)}, {tuple(after.shape)} and {tuple(image.shape)}"
        raise MetricError(f"Features of shapes {shapes} do not fit.")
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
class GapPart:
    """What one dimension adds to the gap between the centroids."""

    dimension: int
    difference: float  # text centroid minus image centroid
    fraction: float  # of the squared distance between the centroids


@dataclass(frozen=True)
class ModalityGap:
    """How far text and image features are apart."""

    distance: float  # between the centroids (means of unit vectors, not normalised again)
    cosine: float  # between the centroids
    matched_cosine: float  # mean over images and the text of their true class
    all_pairs_cosine: float  # mean over every image and every class
    parts: tuple[GapPart, ...]  # the dimensions with the largest fractions, largest first


def modality_gap(text: Floats, image: Floats, *, matched_cosine: float) -> ModalityGap:
    """Measure the gap from the (D,) centroids of text and image features."""
    difference = text - image
    squared = float(difference @ difference)
    fractions = difference**2 / squared if squared > 0 else np.zeros_like(difference)
    product = float(text @ image)  # the mean cosine over all pairs of unit vectors
    norms = float(np.linalg.norm(text) * np.linalg.norm(image))
    largest = np.argsort(-fractions, kind="stable")[:GAP_PARTS].tolist()
    return ModalityGap(
        distance=squared**0.5,
        cosine=product / norms if norms > 0 else 0.0,
        matched_cosine=matched_cosine,
        all_pairs_cosine=product,
        parts=tuple(GapPart(i, float(difference[i]), float(fractions[i])) for i in largest),
    )
