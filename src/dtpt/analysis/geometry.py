"""What tuning does to the text features on the sphere (section 4.4, figure 5).

For a text feature t, an image feature v and the tuned feature t' (all unit vectors) the movement
δ = t' - t is split along an orthonormal frame, as figure 5's caption defines it:

* normal n = t: the radial axis. Staying on the sphere makes it δ·n = -‖δ‖²/2, never positive;
* tangent u = (v - (v·t) t) / ‖·‖: the geodesic from the text feature toward the image feature;
* binormal: what is left, orthogonal to both. Only it leaves the cosine with the image unchanged.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dtpt.analysis.results import GeometryState, Movement
from dtpt.errors import MetricError
from dtpt.methods.c_tpt import dispersion

_SMALLEST_NORM = 1e-12


@dataclass(frozen=True)
class MovementParts:
    """The parts of the movement of C text features, each (C,).

    Attributes:
        tangent: Signed length, positive toward the image.
        normal: Signed length along the text feature.
        binormal: Length of the rest.
    """

    tangent: Tensor
    normal: Tensor
    binormal: Tensor


def split_movement(before: Tensor, after: Tensor, image: Tensor) -> MovementParts:
    """Split the movement of (C, D) text features relative to an image feature (D,).

    Where the image feature is parallel to the text feature there is no tangent direction; its part
    is 0 and all sideways movement is binormal.
    """
    if before.shape != after.shape or before.ndim != 2 or image.shape != before.shape[1:]:
        shapes = f"{tuple(before.shape)}, {tuple(after.shape)} and {tuple(image.shape)}"
        raise MetricError(f"Features of shapes {shapes} do not fit.")
    start, end, target = (x.cpu().double() for x in (before, after, image))  # MPS has no float64
    normal = torch.nn.functional.normalize(start, dim=1)  # (C, D)
    toward = target - (normal @ target)[:, None] * normal  # (C, D)
    lengths = toward.norm(dim=1, keepdim=True)
    tangent = torch.where(lengths > _SMALLEST_NORM, toward / lengths.clamp_min(_SMALLEST_NORM), 0.0)
    moved = end - start
    along_normal = (moved * normal).sum(dim=1)  # (C,)
    along_tangent = (moved * tangent).sum(dim=1)
    rest = moved - along_normal[:, None] * normal - along_tangent[:, None] * tangent
    return MovementParts(along_tangent, along_normal, rest.norm(dim=1))


def geometry_state(
    text: Tensor, image: Tensor, *, top: int, label: int, logit_scale: float
) -> GeometryState:
    """Measure (C, D) text features relative to one image feature (D,).

    Args:
        text: Unit features of the classes.
        image: Unit feature of the image.
        top: The class that zero-shot predicts.
        label: The true class.
        logit_scale: τ.
    """
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


@dataclass
class MeanState:
    """The mean of states over images."""

    count: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, state: GeometryState) -> None:
        """Count the state of one image."""
        self.count += 1
        for name, value in vars(state).items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def mean(self) -> GeometryState:
        """Return the mean over all images so far."""
        if self.count == 0:
            raise MetricError("There are no images whose geometry could be averaged.")
        return GeometryState(**{name: value / self.count for name, value in self.sums.items()})


class MeanMovement:
    """The mean movement over images, of all classes or of some."""

    def __init__(self) -> None:
        self.count = 0
        self._lengths = torch.zeros(3, dtype=torch.float64)
        self._squares = torch.zeros(3, dtype=torch.float64)

    def add(self, parts: MovementParts, chosen: Tensor | None = None) -> None:
        """Count the movement for one image; `chosen` (C,) booleans pick classes."""
        table = torch.stack([parts.tangent, parts.normal, parts.binormal]).cpu()  # (3, C)
        if chosen is not None:
            table = table[:, chosen]
        self.count += table.shape[1]
        self._lengths += table.sum(dim=1)
        self._squares += (table**2).sum(dim=1)

    def mean(self) -> Movement | None:
        """Return mean lengths and the shares of the squared movement; None without classes."""
        if self.count == 0:
            return None
        total = float(self._squares.sum())
        shares = (self._squares / total if total > 0 else self._squares * 0).tolist()
        lengths = (self._lengths / self.count).tolist()
        return Movement(
            squared_length=total / self.count,
            tangent_share=shares[0],
            normal_share=shares[1],
            binormal_share=shares[2],
            tangent=lengths[0],
            normal=lengths[1],
            binormal=lengths[2],
        )


def mean_movement(parts: MovementParts) -> Movement:
    """Average the movement of the classes for one image."""
    totals = MeanMovement()
    totals.add(parts)
    movement = totals.mean()
    if movement is None:
        raise MetricError("There are no classes whose movement could be averaged.")
    return movement
