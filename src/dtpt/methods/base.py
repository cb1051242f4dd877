"""What a method is: which loss tunes the context, and how the tuned features are read out.

All methods of the paper share one procedure (Algorithm 1): minimise

    L = L_TPT + λ · R(text features)

over the context for one image, then predict that image. They differ in R alone, so a method is
data: a name, R, and the λ that its authors used for each family of data sets.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

FAMILIES = ("fine-grained", "natural-shifts")

# (C, D) normalised text features -> scalar that is *minimised* (signs are inside the function).
Regulariser = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Method:
    """One row of the method table.

    Attributes:
        name: as typed on the command line.
        summary: one line for listings.
        tunes: False for zero-shot, which never touches the context.
        regulariser: R above; None for plain TPT.
        lambdas: default λ per family of data sets.
        static: tune by R alone, once per class list, without any image.
    """

    name: str
    summary: str
    tunes: bool = True
    regulariser: Regulariser | None = None
    lambdas: Mapping[str, float] = field(default_factory=dict)
    static: bool = False


@dataclass(frozen=True)
class Modifier:
    """A change at prediction time, written `method+modifier`.

    Attributes:
        name: as typed.
        features: (C, D) text features and (D,) image feature -> (C, D) text features.
        logits: (C,) logits and (C,) zero-shot logits -> (C,) logits.
    """

    name: str
    features: Callable[[Tensor, Tensor], Tensor] | None = None
    logits: Callable[[Tensor, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class ResolvedMethod:
    """A method with its λ fixed and its modifiers chosen: what the engine runs.

    Attributes:
        name: method and modifiers, e.g. "tpt+sals"; λ is not part of it.
        method: the row of the table.
        lambda_: weight of the regulariser; None where there is none to weigh.
        modifiers: applied in order at prediction.
    """

    name: str
    method: Method
    lambda_: float | None
    modifiers: tuple[Modifier, ...] = ()


def regularised(
    name: str,
    regulariser: Regulariser,
    *,
    lambda_: float | Mapping[str, float],
    summary: str = "",
) -> Method:
    """Make TPT plus `lambda_` times a function of the (C, D) normalised text features."""
    lambdas = dict.fromkeys(FAMILIES, lambda_) if isinstance(lambda_, int | float) else lambda_
    return Method(name, summary or f"TPT + λ · {name}", regulariser=regulariser, lambdas=lambdas)
