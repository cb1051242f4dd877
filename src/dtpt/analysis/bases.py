"""Other bases of the joint space: which there are, and what a regulariser does in each.

Multiply the outputs of both towers by one orthogonal matrix Q: every cosine stays. Text features t
become t Q and views v become v Q, so that logits stay as well: a method in the basis Q is the same
method with the regulariser R(t Q) in the model's own basis. A basis is therefore a loss; image
features are computed once, and all bases share one backward pass of the entropy. A shift of the
features (TPS) is itself a set of coordinates, so its signed first step would depend on a rotation
with any loss; it stays in the model's own basis, and only what the regulariser sees is turned.

The bases answer one question each. With the sign of the dominant coordinate flipped, every |t| and
every cosine stays, and DEM pushes the other way. Random rotations are the null distribution of the
own basis. An axis along the mean text feature makes a dominant dimension; with the other axes
rotated it is still there, spread evenly over all axes it is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dtpt.analysis.study import Facts
from dtpt.errors import MethodError
from dtpt.methods import Method, resolve_method
from dtpt.methods.d_tpt import dimensional_entropy, mean_direction
from dtpt.methods.dominant import dominant_dimension

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.tuning import Tuner

OWN, MEAN_TEXT, FLIPPED = "own", "mean text", ", flipped"
NAMED = (
    OWN,
    f"{OWN}{FLIPPED}",
    MEAN_TEXT,
    f"{MEAN_TEXT}{FLIPPED}",
    f"{MEAN_TEXT}, rest rotated",
    f"{MEAN_TEXT}, spread",
    "gap",
)
REST_SEED = 1_000_000  # of the rotation of the rest; random bases count from 0


def first_axis_along(direction: "Tensor") -> "Tensor":
    """Return the reflection (D, D) after which the first coordinate is the part along a direction.

    Example:
        >>> import torch
        >>> turned = torch.tensor([[3.0, 4.0]]) @ first_axis_along(torch.tensor([3.0, 4.0]))
        >>> turned.abs().round(decimals=5).tolist()
        [[5.0, 0.0]]
    """
    length = float(direction.norm())
    if length < 1e-9:
        raise MethodError("A direction of length zero gives no axis.")
    unit = direction / length
    identity = unit.new_zeros(len(unit), len(unit)).fill_diagonal_(1.0)
    normal = identity[0] - unit
    length = float(normal.norm())
    if length < 1e-9:  # the direction is the first axis already
        return identity
    normal = normal / length
    return identity - 2 * normal.outer(normal)


def random_rotation(dimensions: int, *, seed: int) -> "Tensor":
    """Return a uniformly random orthogonal matrix (D, D), in float64."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(dimensions, dimensions, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(drawn)
    rotation: Tensor = q * r.diagonal().sign()  # which makes the distribution uniform
    return rotation


def flipped(rotation: "Tensor", text: "Tensor") -> "Tensor":
    """Return a basis with the sign of the dominant coordinate of (C, D) text features reversed."""
    turned = rotation.clone()
    turned[:, dominant_dimension(text @ rotation)] *= -1
    return turned


def common_bases(
    text: "Tensor", image_mean: "Tensor", *, rotations: int = 0
) -> "dict[str, Tensor]":
    """Return the rotations (D, D) of all bases, for (C, D) text features and a (D,) image mean.

    The gap is the mean text feature minus the mean image feature. Features in a basis are
    `features @ rotation`, all in float64 on the CPU.
    """
    words, image = text.detach().cpu().double(), image_mean.detach().cpu().double()
    centre, dimensions = words.mean(dim=0), words.shape[1]
    own = words.new_zeros(dimensions, dimensions).fill_diagonal_(1.0)
    along, rest = first_axis_along(centre), own.clone()
    rest[1:, 1:] = random_rotation(dimensions - 1, seed=REST_SEED)
    spread = first_axis_along(words.new_zeros(dimensions).fill_(1.0))  # first axis ↔ all alike
    named = (
        *(own, flipped(own, words), along, flipped(along, words)),
        *(along @ rest, along @ spread, first_axis_along(centre - image)),
    )
    random = {f"random {k}": random_rotation(dimensions, seed=k) for k in range(rotations)}
    return dict(zip(NAMED, named, strict=True)) | random


def in_basis(method: Method, rotation: "Tensor", *, name: str) -> Method:
    """Return a method whose regulariser sees text features (C, D) in another basis.

    Raises:
        MethodError: It has no regulariser.
    """
    plain, anchored = method.regulariser, method.anchored
    if not method.is_regularised:
        raise MethodError(f"{method.name}: name a method with a regulariser.")
    return replace(
        method,
        name=f"{method.name} ({name})",
        regulariser=None if plain is None else lambda text: plain(text @ rotation.to(text)),
        anchored=None
        if anchored is None
        else lambda text, start: anchored(text @ rotation.to(text), start @ rotation.to(text)),
    )


def describe_basis(tuner: "Tuner", loss: Method, *, rotation: "Tensor") -> Facts:
    """Return what DEM does to the initial text features in one basis, without an image.

    `cosine` is that of its descent direction on the sphere with "away from the mean text feature",
    averaged over classes; `prompt_cosine` the same for the movement of the features after one step
    of the prompt by the loss alone.
    """
    import torch

    text = tuner.initial_text_features.detach().cpu().double()  # (C, D)
    turned = (text @ rotation).requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(dimensional_entropy(turned), turned)
    turned = turned.detach()
    descent = on_sphere(-gradient, turned)
    away = on_sphere(-mean_direction(turned).expand_as(turned), turned)
    moved = tuner.static(resolve_method(replace(loss, static=True))).text.cpu().double() @ rotation
    index = dominant_dimension(turned)
    values = turned[:, index]  # (C,)
    return {
        "dominant_fraction": float(values.square().mean()),
        "dominant_mean": float(values.mean()),
        "size_under_descent": "grows"
        if float(values.sign() @ descent[:, index]) > 0
        else "shrinks",
        "cosine": float(torch.cosine_similarity(descent, away, dim=1).mean()),
        "prompt_cosine": float(
            torch.cosine_similarity(on_sphere(moved - turned, turned), away, dim=1).mean()
        ),
        "gradient_norm": float(tuner.regulariser_gradient(loss).norm()),
    }


def on_sphere(directions: "Tensor", points: "Tensor") -> "Tensor":
    """Return the part of (C, D) directions that is tangential to the sphere at unit vectors."""
    radial = (directions * points).sum(dim=1, keepdim=True)
    return directions - radial * points


def gradient_changes(
    tuner: "Tuner", methods: Sequence[Method], rotations: "Mapping[str, Tensor]"
) -> Iterator[Facts]:
    """Yield how far each method's gradient is from that in the own basis, relative to its norm."""
    for method in methods:
        own = tuner.regulariser_gradient(method)
        changes, signs = [], []
        for name, rotation in rotations.items():
            if name != OWN:
                turned = tuner.regulariser_gradient(in_basis(method, rotation, name=name))
                changes.append(float((turned - own).norm() / own.norm().clamp_min(1e-30)))
                signs.append(float((turned.sign() == own.sign()).double().mean()))
        yield {
            "method": method.name,
            "largest_change": max(changes),
            "fewest_same_signs": min(signs),
        }
