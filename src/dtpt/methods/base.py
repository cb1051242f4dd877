"""What a method is: what it tunes, by which loss, and how the prediction is read out.

The methods of the paper share one procedure (Algorithm 1, `algorithm_1.py`): minimise

    L = L_TPT + λ · R(text features)

over the context for one image, then predict that image. They differ in R alone, so a method is
data: a name, R, and the λ that its authors used. Three more choices lie beyond the paper: the tuned
numbers may be a *shift* of the text features instead of the context (`parameter`), the prediction
may be read from many views instead of the original one (`read_out`), and a method may carry state
from image to image (`initial` and `step`). All methods share the views of an image, unless one asks
for views of its own (`augmix`).

Neither this file nor a method's file imports torch: tensors bring their own operations, and a table
of methods prints at once. Only `algorithm_1.py` does.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dtpt.errors import MethodError, short_repr

if TYPE_CHECKING:
    from torch import Tensor as Tensor

    from dtpt.views import ViewRecipe
else:
    Tensor = Any  # every method's file takes its annotation from here, without torch

# The paper's two settings, for which authors give different λ and learning rates.
PROTOCOLS = ("fine-grained", "natural-shifts")
IMAGENET = "imagenet"  # one of the fine-grained sets, but for TPS's learning rate

EntropyReading = Literal["of-mean", "mean-of"]
Parameter = Literal["nothing", "context", "shift"]
Dash = str | tuple[int, tuple[float, ...]]

# (C, D) normalised text features -> scalar that is *minimised* (signs are inside the function).
Regulariser = Callable[[Tensor], Tensor]
# The same with the (C, D) features before tuning as second argument, as a fixed point of reference.
AnchoredRegulariser = Callable[[Tensor, Tensor], Tensor]


class ReadOut(Protocol):
    """(N, D) views, (C, D) text features, τ -> (C,) logits whose softmax is the prediction."""

    def __call__(self, views: Tensor, text: Tensor, /, *, logit_scale: float) -> Tensor: ...


class InitialState(Protocol):
    """(C, D) text features, τ -> the state before the first image."""

    def __call__(self, text: Tensor, /, *, logit_scale: float) -> Any: ...


class Step(Protocol):
    """State, (N, D) views of the next image, (C, D) text features, τ -> (C,) logits, new state.

    Pure: the state that came in is not changed. It is a tuple of tensors and of such tuples, whose
    shapes stay those of the initial state, so that it can be stored (`dtpt.tuning.state`).
    """

    def __call__(
        self, state: Any, views: Tensor, /, *, text: Tensor, logit_scale: float
    ) -> tuple[Tensor, Any]: ...


SHORT_FROM = 1000  # λ are written with a power of ten


@dataclass(frozen=True)
class Look:
    """How a method appears in tables and figures."""

    title: str = ""  # as the literature writes it; the name when empty
    colour: str = ""  # legible on white and on dark
    marker: str = ""  # matplotlib's letter
    dash: Dash = "-"  # matplotlib's line style
    hatch: str = ""  # of filled areas, so that colour is never the only difference


@dataclass(frozen=True)
class Method:
    """One row of the method table.

    Raises:
        MethodError: only one of `initial` and `step`, or a `step` beside another way to predict.
    """

    name: str  # as typed on the command line
    summary: str  # one line for listings
    parameter: Parameter = "context"  # what is tuned
    regulariser: Regulariser | None = None  # R above; None for plain entropy minimisation
    anchored: AnchoredRegulariser | None = None  # R that also gets the features before tuning
    lambdas: Mapping[str, float] = field(default_factory=dict)  # default λ by protocol
    grid: tuple[float, ...] = ()  # λ of a sweep; empty for the default times 0.1 to 10
    learning_rates: Mapping[str, float] = field(default_factory=dict)  # where not the settings'
    entropy: EntropyReading | None = None  # where not the settings'
    read_out: ReadOut | None = None  # prediction from many views; None reads the original view
    static: bool = False  # tune by R alone, once per class list, without any image
    initial: InitialState | None = None  # with `step`: state that is carried from image to image
    step: Step | None = None
    # a step of its own on some data sets, by name, where authors give settings for each
    step_of: Mapping[str, Step] = field(default_factory=dict)
    original: bool = False  # a step reads the original view alone
    augmix: bool | None = None  # of the views, where not as the data set has them
    tolerance: float | None = None  # of an anytime read-out; None reads all views
    look: Look = Look()

    def __post_init__(self) -> None:
        if (self.initial is None) != (self.step is None):
            raise MethodError(f"{self.name} needs both `initial` and `step`, or neither.")
        if self.step is not None and (self.read_out is not None or self.static):
            raise MethodError(f"{self.name} has a `step`: drop `read_out` and `static`.")

    @property
    def tunes(self) -> bool:
        return self.parameter != "nothing"

    @property
    def is_regularised(self) -> bool:
        return self.regulariser is not None or self.anchored is not None

    @property
    def takes_lambda(self) -> bool:
        return self.is_regularised and not self.static

    @property
    def is_stateful(self) -> bool:
        """Whether a prediction depends on the images before it."""
        return self.step is not None

    @property
    def sweep(self) -> tuple[float, ...]:
        """The λ of a sweep: its grid, or its default times 0.1 to 10; nothing without an R."""
        if not self.takes_lambda:
            return ()
        default = next(iter(self.lambdas.values()), 1.0)
        return self.grid or tuple(default * factor for factor in (0.1, 0.3, 1.0, 3.0, 10.0))

    @property
    def tunes_on_views(self) -> bool:
        """Whether every image is tuned on its views."""
        return self.tunes and not self.static


@dataclass(frozen=True)
class Modifier:
    """A change to any method, written `method+modifier`."""

    name: str
    title: str = ""  # in tables
    # (C, D) text features and (D,) image feature -> (C, D) text features
    features: Callable[[Tensor, Tensor], Tensor] | None = None
    # (C,) logits and (C,) zero-shot logits -> (C,) logits
    logits: Callable[[Tensor, Tensor], Tensor] | None = None
    read_out: ReadOut | None = None
    learning_rate: float | None = None
    tolerance: float | None = None  # of an anytime read-out
    stream: "Callable[[Method], Method] | None" = None  # a stream method -> another one


@dataclass(frozen=True)
class AutoLambda:
    """A rule that selects λ from unlabelled images: `@auto=0.9`, `@auto-each=0.9`.

    The first step follows the signs of g_entropy + λ g_R, so λ only decides how many signs R wins:
    it is a quantile of |g_entropy| / |g_R|. The signs of a shift count by |g_entropy|.
    """

    quantile: float = 0.9  # fraction of the signs that R wins
    each: bool = False  # per image; otherwise once per class list, on average

    def __str__(self) -> str:
        return f"auto{'-each' if self.each else ''}={self.quantile:g}"


@dataclass(frozen=True)
class ResolvedMethod:
    """A method with its λ fixed and its modifiers chosen: what the engine runs."""

    name: str  # with modifiers: "tpt+sals"; λ only as a rule: "d-tpt@auto=0.9"
    method: Method
    lambda_: float | None  # None where there is no regulariser or λ is not selected yet
    modifiers: tuple[Modifier, ...] = ()  # in the order in which they apply
    auto: AutoLambda | None = None  # how λ is selected; None where it was given
    learning_rate: float | None = None  # instead of the settings'

    @property
    def label(self) -> str:
        """Name and λ as one word, which `resolve_method` reads: `d-tpt@1e5`."""
        return method_label(self.name, None if self.auto else self.lambda_)

    @property
    def needs_lambda_search(self) -> bool:
        """Whether λ must be selected from some images before the first prediction."""
        return self.auto is not None and not self.auto.each and self.lambda_ is None

    @property
    def read_out(self) -> ReadOut | None:
        """How many views give one prediction; None reads the original view."""
        given = [modifier.read_out for modifier in self.modifiers if modifier.read_out is not None]
        return given[-1] if given else self.method.read_out

    @property
    def tolerance(self) -> float | None:
        """When an anytime read-out stops; None for one that takes all views."""
        given = [m.tolerance for m in self.modifiers if m.tolerance is not None]
        return given[-1] if given else self.method.tolerance

    @property
    def uses_views(self) -> bool:
        """Whether views beside the original are used."""
        method = self.method
        steps_on_views = method.is_stateful and not method.original
        return method.tunes_on_views or steps_on_views or self.read_out is not None

    def on_dataset(self, name: str) -> "ResolvedMethod":
        """Return the method with the step that its authors give for a data set, if any."""
        step = self.method.step_of.get(name)
        return self if step is None else replace(self, method=replace(self.method, step=step))

    @property
    def own_views(self) -> dict[str, bool]:
        """Fields of the view recipe that the method sets, instead of the data set."""
        augmix = self.method.augmix
        return {} if augmix is None or not self.uses_views else {"augmix": augmix}


def recipe_groups(
    methods: Sequence[ResolvedMethod], recipe: "ViewRecipe"
) -> "dict[ViewRecipe, tuple[int, ...]]":
    """Return which methods (indices) share views: those of `recipe` first, then other recipes."""
    groups: dict[ViewRecipe, tuple[int, ...]] = {recipe: ()}
    for index, method in enumerate(methods):
        own = recipe.model_copy(update=method.own_views)
        groups[own] = (*groups.get(own, ()), index)
    return {own: members for own, members in groups.items() if members}


def shared_recipe(methods: Sequence[ResolvedMethod], recipe: "ViewRecipe") -> "ViewRecipe":
    """Return the recipe of methods that share views, with as many views as they use.

    Raises:
        MethodError: they use different views.
    """
    first, *others = recipe_groups(methods, recipe) or [recipe]
    if others:
        names = ", ".join(method.name for method in methods)
        raise MethodError(f"These methods use different views of an image: {names}.")
    count = first.count if any(method.uses_views for method in methods) else 1
    return first.model_copy(update={"count": count})


def of_protocol(values: Mapping[str, float], protocol: str) -> float | None:
    """Return the value of a protocol; ImageNet's is that of fine-grained sets if it has none."""
    fallback = values.get(PROTOCOLS[0]) if protocol == IMAGENET else None
    return values.get(protocol, fallback)


def method_label(name: str, lambda_: float | None) -> str:
    """Return a name and its λ as one word: `c-tpt@50`, `d-tpt@1e5`, `tpt`."""
    return name if lambda_ is None else f"{name}@{lambda_word(lambda_)}"


def lambda_word(value: float) -> str:
    """Write λ as it is typed: round numbers from 1000 on as `1e5`, `2.5e3`.

    Example:
        >>> lambda_word(1e5), lambda_word(2500.0), lambda_word(50.0), lambda_word(2512.0)
        ('1e5', '2.5e3', '50', '2512')
    """
    parts = power_of_ten(value)
    return "{}e{}".format(*parts) if parts else f"{value:.10g}"


def power_of_ten(value: float) -> tuple[str, int] | None:
    """Return factor and exponent of a number from 1000 on with at most two digits, else None."""
    factor, _, exponent = f"{value:.1e}".partition("e")
    is_short = value >= SHORT_FROM and float(f"{factor}e{exponent}") == value
    return (factor.removesuffix(".0"), int(exponent)) if is_short else None


@dataclass(frozen=True)
class Cost:
    """Passes through CLIP's towers for one image; methods that run together share some of them."""

    image_passes: int
    text_forward: int  # each over all class prompts
    text_backward: int


def method_cost(method: ResolvedMethod, *, views: int = 64, steps: int = 1) -> Cost:
    """Count the passes of one method on one image, without those that serve all images."""
    through_tower = method.method.tunes_on_views and method.method.parameter == "context"
    passes = steps if through_tower else 0
    return Cost(views if method.uses_views else 1, passes, passes)


def is_number(value: object) -> bool:
    return isinstance(value, Real)  # Python's or NumPy's


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
        MethodError: no name, no function, or an invalid λ.

    Example:
        >>> regularised("flat-tpt", lambda text: (text**4).sum(-1).mean(), lambda_=1e4).lambdas
        {'fine-grained': 10000.0, 'natural-shifts': 10000.0}
    """
    if not isinstance(name, str) or not name:
        raise MethodError(f"Invalid method name {short_repr(name)}: use text.")
    if not callable(regulariser if anchored is None else anchored):
        raise MethodError(f"The regulariser of {name} must be a function.")
    lambdas = lambda_ if isinstance(lambda_, Mapping) else dict.fromkeys(PROTOCOLS, lambda_)
    for value in lambdas.values():
        if not is_number(value) or not 0 <= value < math.inf:
            raise MethodError(f"lambda of {name} must be a number >= 0, not {short_repr(value)}.")
    return Method(
        name,
        summary or f"TPT + λ · {name}",
        regulariser=regulariser,
        anchored=anchored,
        lambdas=lambdas,
        grid=grid,
        look=look or Look(),
    )
