"""Do the published regularisers differ at all? Their first steps, from the text tower alone.

The first AdamW step follows the signs of the gradient, and a regulariser's gradient at the initial
context is one fixed vector per class list. Two regularisers whose gradients point the same way take
the same step, up to how strong they are; comparing them needs no picture.

The geometry behind it: on the sphere, the distance to the centroid (C-TPT), the norm of a row of
the Gram matrix (O-TPT) and the part along the mean (aligned D-TPT) all change fastest along the
great circle away from the mean text feature; only the weights of the classes differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from torch import Tensor

from dtpt.errors import MethodError
from dtpt.methods import ResolvedMethod
from dtpt.tuning import Tuner


@dataclass(frozen=True)
class GradientPair:
    """How two regularisers' first steps agree.

    Attributes:
        first: name of a method.
        second: name of another.
        cosine: between their gradients.
        same_signs: share of coordinates that both would move the same way.
    """

    first: str
    second: str
    cosine: float
    same_signs: float


@dataclass(frozen=True)
class GradientAgreement:
    """The regularisers of one model and class list.

    Attributes:
        model: name of the model.
        class_list: name of the class list.
        classes: number of classes.
        coordinates: numbers in the context.
        norms: length of each regulariser's gradient, by method.
        pairs: every pair of methods once.
    """

    model: str
    class_list: str
    classes: int
    coordinates: int
    norms: dict[str, float]
    pairs: tuple[GradientPair, ...]


def gradient_agreement(
    tuner: Tuner, methods: Sequence[ResolvedMethod], *, model: str, class_list: str
) -> GradientAgreement:
    """Compare the regularisers of some methods at the initial context.

    Raises:
        MethodError: a method has no regulariser, or fewer than two are given.
    """
    if len(methods) < 2:
        raise MethodError("Give at least two methods with a regulariser to compare.")
    gradients = {m.method.name: _flat(tuner.regulariser_gradient(m.method)) for m in methods}
    return GradientAgreement(
        model=model,
        class_list=class_list,
        classes=len(tuner.prompts.names),
        coordinates=len(next(iter(gradients.values()))),
        norms={name: float(gradient.norm()) for name, gradient in gradients.items()},
        pairs=tuple(
            _pair(first, second, gradients) for first, second in combinations(gradients, 2)
        ),
    )


def _flat(gradient: Tensor) -> Tensor:
    return gradient.detach().cpu().double().flatten()


def _pair(first: str, second: str, gradients: dict[str, Tensor]) -> GradientPair:
    one, other = gradients[first], gradients[second]
    lengths = float(one.norm() * other.norm())
    return GradientPair(
        first=first,
        second=second,
        cosine=float(one @ other) / lengths if lengths > 0 else 0.0,
        same_signs=float((one.sign() == other.sign()).double().mean()),
    )
