"""What a method is: what it tunes, by which loss, and how the result is read out.

The methods of the paper share one procedure (Algorithm 1, `algorithm_1.py`): minimise

    L = L_TPT + λ · R(text features)

over the context for one image, then predict that image. They differ in R alone, so a method is
data: a name, R, and the λ that its authors used. Two further choices cover what lies beyond the
paper: the tuned numbers may be a *shift* of the text features instead of the context, and the
answer may be read from many views instead of the original one.

Nothing here, nor in the methods' files, imports torch: tensors bring their own operations, and a
table of methods can be printed at once.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Literal

from dtpt.errors import MethodError, short_repr

if TYPE_CHECKING:
    from torch import Tensor

PROTOCOLS = ("fine-grained", "natural-shifts")
"""The paper's two settings, for which authors give different λ and learning rates."""

EntropyReading = Literal["of-mean", "mean-of"]
Parameter = Literal["nothing", "context", "shift"]
Dash = str | tuple[int, tuple[float, ...]]

# (C, D) normalised text features -> scalar that is *minimised* (signs are inside the function).
Regulariser = Callable[["Tensor"], "Tensor"]
# The same with the (C, D) features before tuning as second argument, as a fixed point of reference.
AnchoredRegulariser = Callable[["Tensor", "Tensor"], "Tensor"]
# (N, D) views, (C, D) text features, τ -> (C,) logits whose softmax is the answer.
ReadOut = Callable[["Tensor", "Tensor", float], "Tensor"]


@dataclass(frozen=True)
class Look:
    """How a method appears in tables and figures.

    Attributes:
        title: as the literature writes it; the name when empty.
        colour: of lines and marks, legible on white and on dark.
        marker: matplotlib's letter for its marks.
        dash: matplotlib's line style.
        hatch: pattern of filled areas, so that colour is never the only sign.
    """

    title: str = ""
    colour: str = ""
    marker: str = ""
    dash: Dash = "-"
    hatch: str = ""


@dataclass(frozen=True)
class Method:
    """One row of the method table.

    Attributes:
        name: as typed on the command line.
        summary: one line for listings.
        parameter: what is tuned: nothing, the context, or a shift of the text features.
        regulariser: R above; None for plain entropy minimisation.
        anchored: R that also sees the features before tuning; at most one of the two is given.
        lambdas: default λ by protocol.
        grid: the λ of a sweep; empty for the default times 0.1 to 10.
        learning_rates: by protocol, where they differ from the settings'.
        entropy: reading of the entropy loss, where it differs from the settings'.
        read_out: how many views give one answer; None reads the original view.
        static: tune by R alone, once per class list, without any image.
        look: how it appears in tables and figures.
    """

    name: str
    summary: str
    parameter: Parameter = "context"
    regulariser: Regulariser | None = None
    anchored: AnchoredRegulariser | None = None
    lambdas: Mapping[str, float] = field(default_factory=dict)
    grid: tuple[float, ...] = ()
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    entropy: EntropyReading | None = None
    read_out: ReadOut | None = None
    static: bool = False
    look: Look = Look()

    @property
    def tunes(self) -> bool:
        """Whether anything is tuned."""
        return self.parameter != "nothing"

    @property
    def is_regularised(self) -> bool:
        """Whether there is an R to weigh."""
        return self.regulariser is not None or self.anchored is not None

    @property
    def sweep(self) -> tuple[float, ...]:
        """The λ of a sweep: its grid, or its default times 0.1 to 10; nothing without an R."""
        if not self.is_regularised or self.static:
            return ()
        default = next(iter(self.lambdas.values()), 1.0)
        return self.grid or tuple(default * factor for factor in (0.1, 0.3, 1.0, 3.0, 10.0))

    @property
    def tunes_on_views(self) -> bool:
        """Whether every image is tuned on its views."""
        return self.tunes and not self.static


@dataclass(frozen=True)
class Modifier:
    """A change to any method, written `method+modifier`.

    Attributes:
        name: as typed.
        title: in tables.
        features: (C, D) text features and (D,) image feature -> (C, D) text features.
        logits: (C,) logits and (C,) zero-shot logits -> (C,) logits.
        read_out: answer from many views instead of the original one.
        learning_rate: another size of the step.
    """

    name: str
    title: str = ""
    features: Callable[["Tensor", "Tensor"], "Tensor"] | None = None
    logits: Callable[["Tensor", "Tensor"], "Tensor"] | None = None
    read_out: ReadOut | None = None
    learning_rate: float | None = None


@dataclass(frozen=True)
class Strength:
    """A λ that is found from unlabelled pictures: `@auto=0.9`, `@auto-each=0.9`.

    The first step follows the signs of g_entropy + λ g_R, so λ only decides how many signs R wins.

    Attributes:
        share: of the signs that R shall win.
        each: for every picture by itself; otherwise once per class list, on average.
    """

    share: float = 0.9
    each: bool = False

    def __str__(self) -> str:
        return f"auto{'-each' if self.each else ''}={self.share:g}"


@dataclass(frozen=True)
class ResolvedMethod:
    """A method with its λ fixed and its modifiers chosen: what the engine runs.

    Attributes:
        name: method and modifiers, e.g. "tpt+sals"; λ is not part of it, but `@auto=0.9` is.
        method: the row of the table.
        lambda_: weight of the regulariser; None where there is none to weigh or it must be found.
        modifiers: applied in order at prediction.
        strength: how λ is found; None where it was given.
        learning_rate: instead of the settings'; None for those.
    """

    name: str
    method: Method
    lambda_: float | None
    modifiers: tuple[Modifier, ...] = ()
    strength: Strength | None = None
    learning_rate: float | None = None

    @property
    def read_out(self) -> ReadOut | None:
        """How many views give one answer; None reads the original view."""
        own = [modifier.read_out for modifier in self.modifiers if modifier.read_out is not None]
        return own[-1] if own else self.method.read_out

    @property
    def uses_views(self) -> bool:
        """Whether views beside the original are looked at."""
        return self.method.tunes_on_views or self.read_out is not None


def is_number(value: object) -> bool:
    """Tell whether a value is one real number, Python's or NumPy's.

    Example:
        >>> is_number(3), is_number("3")
        (True, False)
    """
    return isinstance(value, Real)


def regularised(
    name: str,
    regulariser: Regulariser | None = None,
    *,
    lambda_: float | Mapping[str, float],
    summary: str = "",
    grid: tuple[float, ...] = (),
    anchored: AnchoredRegulariser | None = None,
    look: Look | None = None,
) -> Method:
    """Make TPT plus `lambda_` times a function of the (C, D) normalised text features.

    Raises:
        MethodError: no name, no function, or a weight that is none.

    Example:
        >>> regularised("flat-tpt", lambda text: (text**4).sum(-1).mean(), lambda_=1e4).lambdas
        {'fine-grained': 10000.0, 'natural-shifts': 10000.0}
    """
    if not isinstance(name, str) or not name:
        raise MethodError(f"A method's name is text, not {short_repr(name)}.")
    if not callable(regulariser if anchored is None else anchored):
        raise MethodError(f"The regulariser of {name} must be a function.")
    lambdas = lambda_ if isinstance(lambda_, Mapping) else dict.fromkeys(PROTOCOLS, lambda_)
    for weight in lambdas.values():
        if not is_number(weight) or not 0 <= weight < math.inf:
            raise MethodError(f"lambda of {name} must be a number >= 0, not {short_repr(weight)}.")
    return Method(
        name,
        summary or f"TPT + λ · {name}",
        regulariser=regulariser,
        anchored=anchored,
        lambdas=lambdas,
        grid=grid,
        look=look or Look(),
    )
