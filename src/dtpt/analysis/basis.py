"""What depends on the basis of the joint space, and what does not.

Multiply the outputs of both towers by one orthogonal matrix: every cosine stays, so zero-shot, TPT,
C-TPT and O-TPT answer as before. D-TPT does not, because a softmax over coordinates sees the basis.
So does the notion of a dominant dimension: in a basis whose first axis is the mean text feature,
that axis carries most of every text feature; in a random basis nothing stands out.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dtpt.clip.model import Clip
from dtpt.errors import MethodError


@dataclass(frozen=True)
class Basis:
    """A way of writing the joint space down.

    Attributes:
        name: "own", "random 0", "mean text" or "gap".
        rotation: (D, D) orthogonal; features in this basis are `features @ rotation`.
    """

    name: str
    rotation: Tensor


def first_axis_along(direction: Tensor) -> Tensor:
    """Return the reflection (D, D) after which the first coordinate is the part along a direction.

    Example:
        >>> turned = torch.tensor([[3.0, 4.0]]) @ first_axis_along(torch.tensor([3.0, 4.0]))
        >>> turned.abs().round(decimals=5).tolist()
        [[5.0, 0.0]]
    """
    unit = _unit(direction)
    axis = torch.zeros_like(unit)
    axis[0] = 1.0
    normal = axis - unit
    length = float(normal.norm())
    identity = torch.eye(len(unit), dtype=unit.dtype, device=unit.device)
    if length < 1e-9:  # the direction is the first axis already
        return identity
    normal = normal / length
    return identity - 2 * torch.outer(normal, normal)


def random_rotation(dimensions: int, *, generator: torch.Generator) -> Tensor:
    """Return a uniformly random orthogonal matrix (D, D), in float64."""
    drawn = torch.randn(dimensions, dimensions, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(drawn)
    signed: Tensor = q * r.diagonal().sign()  # which makes the distribution uniform
    return signed


RANDOM_SEEDS = (0, 1)


def basis_names(seeds: Sequence[int] = RANDOM_SEEDS) -> tuple[str, ...]:
    """Return the names of the bases that the analysis compares, the model's own first.

    Example:
        >>> basis_names()
        ('own', 'random 0', 'random 1', 'gap', 'mean text')
    """
    return ("own", *(f"random {seed}" for seed in seeds), "gap", "mean text")


def common_bases(
    text: Tensor, image_mean: Tensor, *, seeds: Sequence[int] = RANDOM_SEEDS
) -> list[Basis]:
    """Return the bases that the analysis compares, for (C, D) text features and a (D,) image mean.

    The model's own; random ones; the first axis along the mean text feature; and along the gap, the
    mean text feature minus the mean image feature. All in float64 on the CPU.
    """
    words, pictures = text.detach().cpu().double(), image_mean.detach().cpu().double()
    dimensions = words.shape[1]
    centre = words.mean(dim=0)
    rotations = [
        torch.eye(dimensions, dtype=torch.float64),
        *(
            random_rotation(dimensions, generator=torch.Generator().manual_seed(seed))
            for seed in seeds
        ),
        first_axis_along(centre - pictures),
        first_axis_along(centre),
    ]
    names = basis_names(seeds)
    return [Basis(name, rotation) for name, rotation in zip(names, rotations, strict=True)]


def rotated(model: Clip, rotation: Tensor) -> Clip:
    """Return a model whose text features are rotated; all other weights are shared.

    Image features are rotated by the caller (`features @ rotation`): they come from a cache.
    """
    tower = model.require_text()
    turned, text = copy.copy(model), copy.copy(tower)
    turned._modules = dict(model._modules)
    text._parameters = dict(tower._parameters)
    projection = tower.text_projection.detach()
    matrix = rotation.to(projection.dtype).to(projection.device)
    text.text_projection = nn.Parameter(projection @ matrix, requires_grad=False)
    turned.text = text
    return turned


def dominant_share(features: Tensor) -> float:
    """Return the share of (n, D) unit features' energy in their largest dimension."""
    return float(features.square().mean(dim=0).max())


def _unit(direction: Tensor) -> Tensor:
    length = float(direction.norm())
    if length < 1e-9:
        raise MethodError("A direction of length zero gives no axis.")
    return direction / length
