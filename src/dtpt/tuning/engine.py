"""Episodic test-time tuning of one image at a time (Algorithm 1), with shared work.

The context is reset for every image, so at the first step

* the text features, and what their backward pass needs, are the same for every image;
* the regulariser's gradient is the same for every image;
* the entropy's gradient is the same for every method and every λ.

M methods on one image therefore cost one backward pass and M forward passes through the text tower;
methods that tune a shift of the features cost none, and methods without a gradient only their
read-out. Every tensor has the same shape for every image and method, so results do not depend on
what else is in the run. State that a method carries from image to image (`Method.step`) is kept by
the caller of `step_method`.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from dtpt.clip.ensembles import is_ensemble
from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError, short_repr
from dtpt.methods.anytime import first_stable
from dtpt.methods.base import EntropyReading, Method, Parameter, ResolvedMethod
from dtpt.methods.table import METHODS
from dtpt.methods.tpt import ENTROPY_LOSSES, select_confident
from dtpt.methods.zero_shot import class_logits
from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES, Linearised, PromptEncoder, ShiftSpace, Space
from dtpt.tuning.settings import TuningSettings, checked_settings

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # torch's defaults of AdamW
LEAST_WEIGHT = 1e-6  # of a sign, where the mean is 1: those below are most of a shift's
ABOVE = 1 + 1e-6  # λ slightly above a ratio, because a sign turns only beyond it

log = logging.getLogger("dtpt.tuning")
Made = TypeVar("Made")


class AdamW:
    """AdamW on one tensor from an empty state, bit-equal to torch's, whose import takes seconds.

    The first step is -lr · g / (|g| + ε) in every coordinate: signed descent.
    """

    def __init__(self, start: Tensor, *, learning_rate: float, weight_decay: float) -> None:
        self._rate = learning_rate
        self._decay = weight_decay
        self._value = start.detach().clone()
        self._mean = torch.zeros_like(start)
        self._square = torch.zeros_like(start)
        self._steps = 0

    def step(self, gradient: Tensor) -> Tensor:
        """Take one step against the gradient and return the new value."""
        self._steps += 1
        self._value.mul_(1 - self._rate * self._decay)
        self._mean.lerp_(gradient, 1 - BETA_1)
        self._square.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        correction = math.sqrt(1 - BETA_2**self._steps)
        spread = (self._square.sqrt() / correction).add_(EPSILON)
        size = self._rate / (1 - BETA_1**self._steps)
        self._value.addcdiv_(self._mean, spread, value=-size)
        return self._value.clone()


def sign_thresholds(entropy: Tensor, regulariser: Tensor) -> Tensor:
    """Return, per coordinate, the smallest λ with which the regulariser decides the sign.

    The first step follows the signs of g_entropy + λ g_R. R wins a coordinate when both gradients
    agree there anyway (0), or when λ exceeds |g_entropy| / |g_R| (infinite where g_R is 0). The
    fraction of signs won is the distribution function of that ratio, and λ one of its quantiles.
    """
    ours, theirs = (g.detach().cpu().double().flatten() for g in (regulariser, entropy))
    ratio = theirs.abs() / ours.abs()  # inf for 0 in ours, nan for 0 in both
    agree = ours.sign() == theirs.sign()
    return torch.where(ours == 0, math.inf, torch.where(agree, 0.0, ratio))


def sign_weights(entropy: Tensor, parameter: Parameter) -> Tensor:
    """Return how much each sign of one image counts; the sum is the number of signs.

    Those of a context count alike. Of the C · D numbers of a shift most belong to unlikely classes,
    whose entropy gradient is almost zero and whose sign any λ wins. They count by the size of that
    gradient: by the part of the first step's descent that they give.
    """
    sizes = entropy.detach().cpu().double().flatten().abs()
    total = float(sizes.sum())
    if parameter == "context" or total == 0:
        return torch.ones_like(sizes)
    return sizes * (len(sizes) / total)


def lambda_for_quantile(
    thresholds: Tensor, quantile: float, *, weights: Tensor | None = None
) -> float:
    """Return the smallest λ that wins this fraction of the signs that can be won at all."""
    finite = torch.isfinite(thresholds)
    counts = torch.ones_like(thresholds) if weights is None else weights
    thresholds, counts = thresholds[finite], counts[finite]
    if len(thresholds) == 0:
        return 0.0
    order = thresholds.argsort()
    reached = counts[order].cumsum(dim=0)
    index = int(torch.searchsorted(reached, quantile * float(reached[-1]) - 1e-9))
    return float(thresholds[order[index]]) * ABOVE


def fraction_won(thresholds: Tensor, lambda_: float, *, weights: Tensor | None = None) -> float:
    """Return the fraction of all signs that a regulariser with this λ decides or agrees with."""
    won = ((thresholds == 0) | (thresholds < lambda_)).double()
    return float(won.mean() if weights is None else (won * weights).sum() / weights.sum())


@dataclass(frozen=True)
class Outcome:
    """What one method predicts for one image."""

    method: ResolvedMethod
    lambda_: float | None  # that was used, also where it was selected for the image
    logits: Tensor  # (C,) after modifiers
    probabilities: Tensor  # (C,) softmax of the logits
    zero_shot_logits: Tensor  # (C,) of the same view with the initial context
    text_features: Tensor  # (C, D) after tuning, before modifiers
    context: Tensor  # (n, W) after tuning; the initial one for methods that tune none
    views: int = 1  # passes through the image tower that the prediction rests on


@dataclass(frozen=True)
class _Tuned:
    """Where tuning ended: the point, the features there (C, D), and the λ that was used."""

    point: Tensor
    text: Tensor
    lambda_: float | None


class Tuner:
    """Tunes and predicts for one model and one class list; holds no state from image to image.

    What it keeps is the same for every image: the graph of the initial text features and the
    regularisers' gradients, made once at first need by whichever thread needs them first. Copies
    and pickles leave these out.

    Args:
        model: a CLIP.
        prompts: the class prompts with their initial context; None for a model without a text
            tower, which runs only methods that do not tune the prompt.
        settings: optimiser and selection.
        budget_bytes: memory for the kept graph of the text features.
        text_features: (C, D) unit vectors at the initial context, when they are known; needed
            without prompts, else computed.
    """

    def __init__(
        self,
        model: Clip,
        prompts: PromptSet | None,
        *,
        settings: TuningSettings | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        text_features: Tensor | None = None,
    ) -> None:
        self._prompts = prompts
        self.settings = checked_settings(settings)
        self.logit_scale = model.logit_scale
        self.encoder: PromptEncoder | None = None
        self._has_text_tower = model.text is not None
        if prompts is not None:
            self.encoder = PromptEncoder(model, prompts, budget_bytes=budget_bytes)
        if text_features is None:
            if self.encoder is None:
                raise MethodError("Without prompts a tuner needs text_features (classes, D).")
            text_features = self.encoder.encode(self.context)
            log.debug("Computed text features of %d classes", len(text_features))
        self.initial_text_features = text_features.to(model.device, model.dtype)  # (C, D)
        self._forget()

    @property
    def prompts(self) -> PromptSet:
        """The class prompts; a MethodError if the text features are fixed."""
        if self._prompts is None:
            raise MethodError("This tuner has no prompts: its text features are fixed.")
        return self._prompts

    @property
    def context(self) -> Tensor:
        """The initial context (n, W); no row if the text features are fixed."""
        if self._prompts is None:
            return self.initial_text_features.new_zeros(0, 0)
        return self._prompts.context

    def _forget(self) -> None:
        """Drop what can be made again."""
        self._made: dict[tuple[object, ...], Any] = {}
        self._making = threading.RLock()

    def _once(self, key: tuple[object, ...], make: Callable[[], Made]) -> Made:
        with self._making:
            if key not in self._made:
                self._made[key] = make()
            made: Made = self._made[key]
            return made

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_made", "_making")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def predict(
        self,
        view_features: Tensor,
        methods: Sequence[ResolvedMethod],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Outcome]:
        """Run methods on one image.

        Args:
            view_features: (N, D) unit vectors; row 0 is the original view, which is predicted.
            methods: in the order of the results; none that carries state (see `step_method`).
            progress: called after each method with how many of them are done; it may raise.
        """
        episode, outcomes = Episode(self, view_features), []
        for method in methods:
            outcomes.append(episode.answer(method))
            if progress is not None:
                progress(len(outcomes), len(methods))
        return outcomes

    def has_enough(self, view_features: Tensor, methods: Sequence[ResolvedMethod]) -> bool:
        """Return whether no method needs views beyond the first ones (N, D) of an image."""
        episode = Episode(self, view_features)
        return all(episode.views_needed(method) is not None for method in methods)

    def predict_many(
        self, images: Sequence[Tensor], methods: Sequence[ResolvedMethod]
    ) -> list[list[Outcome]]:
        """Run methods on several images whose forward passes are shared; for accelerators.

        Equal to `predict` on each, up to the rounding of larger batches.
        """
        episodes = [Episode(self, views) for views in images]
        pairs = [(e, method) for e in episodes for method in e.one_step_methods(methods)]
        steps = [episode.first_step(method) for episode, method in pairs]
        if steps and self.encoder is not None:
            features = self.encoder.encode_many(torch.stack([point for point, _, _ in steps]))
            for (episode, method), step, text in zip(pairs, steps, features, strict=True):
                episode._tuned[_key(method)] = _Tuned(step[0], text, step[1])
        return [[episode.answer(method) for method in methods] for episode in episodes]

    def select_lambdas(
        self, methods: Sequence[ResolvedMethod], images: Iterable[Tensor]
    ) -> list[ResolvedMethod]:
        """Fix every λ that is selected from unlabelled images (`@auto=0.9`).

        Args:
            methods: those with a λ are returned as they are.
            images: (N, D) view features of some images.
        """
        searched = [method for method in methods if method.needs_lambda_search]
        if not searched:
            return list(methods)
        episodes = [Episode(self, views) for views in images]
        found: dict[str, ResolvedMethod] = {}
        for base in dict.fromkeys(method.method.name for method in searched):
            of_base = [method for method in searched if method.method.name == base]
            # one base at a time: of a shift there are C · D numbers for each image
            signs = [episode.signs(of_base[0]) for episode in episodes]
            for method in of_base:
                found[method.name] = _with_lambda(method, signs)
        return [found.get(method.name, method) for method in methods]

    def space(self, method: Method) -> Space:
        """Return what a method tunes; a MethodError if that is fixed."""
        if method.parameter == "shift":
            return ShiftSpace(self.initial_text_features)
        if self.encoder is None:
            raise _needs_text_tower(method, several=self._has_text_tower)
        return self.encoder

    def initial(self, method: Method) -> Linearised:
        """Return the features where tuning starts with their pullback, made at first need."""
        space = self.space(method)
        return self._once(("start", method.parameter), lambda: space.linearise(space.origin))

    def regulariser_gradient(self, method: Method) -> Tensor:
        """Return the gradient of a method's regulariser at the start: one per class list."""
        start = self.initial(method)
        return self._once(
            ("gradient", method.name), lambda: self.regulariser_pullback(start, method)
        )

    def regulariser_pullback(self, point: Linearised, method: Method) -> Tensor:
        """Return the gradient of a method's regulariser at one point."""
        text = point.features.detach().requires_grad_()
        with torch.enable_grad():
            if method.regulariser is not None:
                loss = method.regulariser(text)
            elif method.anchored is not None:
                loss = method.anchored(text, self.initial_text_features)
            else:
                raise MethodError(f"{method.name} has no regulariser.")
            (gradient,) = torch.autograd.grad(loss, text)
        return point.pullback(gradient)

    def descent(self, method: ResolvedMethod) -> AdamW:
        """Return an optimiser at the start of what a method tunes."""
        rate = method.learning_rate or self.settings.learning_rate
        start = self.space(method.method).origin
        return AdamW(start, learning_rate=rate, weight_decay=self.settings.weight_decay)

    def static(self, method: ResolvedMethod) -> _Tuned:
        """Tune by the regulariser alone, once per class list: the limit of a large λ."""
        key = ("static", method.method.name, method.learning_rate)
        return self._once(key, lambda: self._tune_static(method))

    def _tune_static(self, method: ResolvedMethod) -> _Tuned:
        # scaled to a largest entry of 1, so that AdamW's ε plays no part
        gradient = self.regulariser_gradient(method.method)
        scale = 1.0 / float(gradient.abs().max().clamp_min(torch.finfo(gradient.dtype).tiny))
        space, descent = self.space(method.method), self.descent(method)
        point = descent.step(scale * gradient)
        for _ in range(1, self.settings.steps):
            here = space.linearise(point)
            point = descent.step(scale * self.regulariser_pullback(here, method.method))
        return _Tuned(point, space.encode(point), None)


class Episode:
    """One image, given as (N, D) unit vectors, the original view first: what its methods share."""

    def __init__(self, tuner: Tuner, view_features: Tensor) -> None:
        text, scale = tuner.initial_text_features, tuner.logit_scale
        _check_views(view_features, dimensions=text.shape[1])
        self._tuner = tuner
        self._views = view_features.to(text)
        self._zero_shot = class_logits(self._views[0], text, logit_scale=scale)  # (C,)
        self._gradients: dict[tuple[str, EntropyReading], Tensor] = {}
        self._tuned: dict[tuple[object, ...], _Tuned] = {}

    @cached_property
    def confident(self) -> Tensor:
        """(K, D) the views that are tuned on, selected with the initial context."""
        text, scale = self._tuner.initial_text_features, self._tuner.logit_scale
        logits = class_logits(self._views, text, logit_scale=scale)
        return self._views[select_confident(logits, self._tuner.settings.rho)]

    def entropy_gradient(self, method: Method) -> Tensor:
        """Return the entropy's gradient at the start, shared by methods that tune the same."""
        key = (method.parameter, self._reading(method))
        if key not in self._gradients:
            self._gradients[key] = self._entropy_pullback(self._tuner.initial(method), method)
        return self._gradients[key]

    def _reading(self, method: Method) -> EntropyReading:
        return method.entropy or self._tuner.settings.entropy

    def _entropy_pullback(self, point: Linearised, method: Method) -> Tensor:
        text = point.features.detach().requires_grad_()
        with torch.enable_grad():
            logits = class_logits(self.confident, text, logit_scale=self._tuner.logit_scale)
            loss = ENTROPY_LOSSES[self._reading(method)](logits)  # of (K, C)
            (gradient,) = torch.autograd.grad(loss, text)
        return point.pullback(gradient)

    def signs(self, method: ResolvedMethod) -> tuple[Tensor, Tensor]:
        """Return the λ from which R decides each sign of the first step, and how much it counts."""
        entropy = self.entropy_gradient(method.method)
        thresholds = sign_thresholds(entropy, self._tuner.regulariser_gradient(method.method))
        weights = sign_weights(entropy, method.method.parameter)
        kept = weights > LEAST_WEIGHT
        return thresholds[kept], weights[kept]

    def answer(self, method: ResolvedMethod) -> Outcome:
        """Tune with one method and predict the image: the original view, or many at once."""
        if method.method.is_stateful:
            raise MethodError(
                f"{method.name} carries state from image to image: use Classifier.stream(), "
                "`dtpt predict --stream FILE`, `dtpt eval` or step_method."
            )
        tuned, scale = self._tuned_by(method), self._tuner.logit_scale
        text = self._modified(tuned.text, method)
        if method.read_out is None:
            logits = class_logits(self._views[0], text, logit_scale=scale)
            return self._outcome(method, tuned, logits=logits)
        views = self._views[: self.views_needed(method)]  # of None: all
        logits = method.read_out(views, text, logit_scale=scale)
        return self._outcome(method, tuned, logits=logits, views=len(views))

    def views_needed(self, method: ResolvedMethod) -> int | None:
        """Return how many of the first views are enough; None if further ones may be needed."""
        if not method.uses_views:
            return 1
        if method.read_out is None or method.tolerance is None:
            return None
        text = self._modified(self._tuned_by(method).text, method)
        read_out, scale = method.read_out, self._tuner.logit_scale
        return first_stable(
            lambda count: read_out(self._views[:count], text, logit_scale=scale),
            len(self._views),
            tolerance=method.tolerance,
        )

    def step(self, method: ResolvedMethod, state: Any) -> tuple[Outcome, Any]:
        """Predict the image with a method that carries state, and return the next state."""
        if method.method.step is None:
            raise MethodError(f"{method.name} carries no state: run it with Tuner.predict.")
        tuned, scale = self._tuned_by(method), self._tuner.logit_scale
        text = self._modified(tuned.text, method)
        logits, state = method.method.step(state, self._views, text=text, logit_scale=scale)
        return self._outcome(method, tuned, logits=logits), state

    def _tuned_by(self, method: ResolvedMethod) -> _Tuned:
        key = _key(method)
        if key not in self._tuned:
            self._tuned[key] = self._tune(method)
        return self._tuned[key]

    def one_step_methods(self, methods: Sequence[ResolvedMethod]) -> list[ResolvedMethod]:
        """Return the methods, each once, whose features are one step and one pass away."""
        if self._tuner.settings.steps != 1:
            return []
        chosen: dict[object, ResolvedMethod] = {}
        for method in methods:
            if method.method.tunes_on_views and method.method.parameter == "context":
                chosen.setdefault(_key(method), method)
        return list(chosen.values())

    def first_step(self, method: ResolvedMethod) -> tuple[Tensor, float | None, AdamW]:
        """Step once from the start; return the point, the λ, and the optimiser for more steps."""
        lambda_, gradient = self._lambda(method), self.entropy_gradient(method.method)
        if lambda_:
            gradient = gradient + lambda_ * self._tuner.regulariser_gradient(method.method)
        descent = self._tuner.descent(method)
        return descent.step(gradient), lambda_, descent

    def _tune(self, method: ResolvedMethod) -> _Tuned:
        tuner = self._tuner
        if not method.method.tunes or tuner.settings.steps == 0:
            return _Tuned(tuner.context, tuner.initial_text_features, method.lambda_)
        if method.method.static:
            return tuner.static(method)
        (point, lambda_, descent), space = self.first_step(method), tuner.space(method.method)
        for _ in range(1, tuner.settings.steps):
            here = space.linearise(point)
            gradient = self._entropy_pullback(here, method.method)
            if lambda_:
                gradient = gradient + lambda_ * tuner.regulariser_pullback(here, method.method)
            point = descent.step(gradient)
        return _Tuned(point, space.encode(point), lambda_)

    def _lambda(self, method: ResolvedMethod) -> float | None:
        """Return λ, selected for this image where the rule is per image."""
        if method.needs_lambda_search and method.auto is not None:
            raise MethodError(
                f"The lambda of {method.name} is not selected yet: use Tuner.select_lambdas with "
                f"some images, or @auto-each={method.auto.quantile:g} for one per image."
            )
        if method.auto is None or method.lambda_ is not None:
            return method.lambda_
        thresholds, weights = self.signs(method)
        return lambda_for_quantile(thresholds, method.auto.quantile, weights=weights)

    def _modified(self, text: Tensor, method: ResolvedMethod) -> Tensor:
        for modifier in method.modifiers:
            if modifier.features is not None:
                text = modifier.features(text, self._views[0])
        return text

    def _outcome(
        self, method: ResolvedMethod, tuned: _Tuned, *, logits: Tensor, views: int | None = None
    ) -> Outcome:
        for modifier in method.modifiers:
            if modifier.logits is not None:
                logits = modifier.logits(logits, self._zero_shot)
        probabilities = torch.softmax(logits, dim=-1)
        if not bool(torch.isfinite(probabilities).all()):
            raise MethodError(
                f"{method.name} (lambda {tuned.lambda_}) gave probabilities that are not finite: "
                "lower lambda or the learning rate."
            )
        of_context = method.method.parameter == "context"
        context = tuned.point if of_context else self._tuner.context
        if views is None:
            views = len(self._views) if method.uses_views else 1
        return Outcome(
            method,
            tuned.lambda_,
            logits,
            probabilities,
            self._zero_shot,
            tuned.text,
            context,
            views,
        )


def check_text_tower(methods: Iterable[ResolvedMethod], model: Clip, *, template: str = "") -> None:
    """Raise a MethodError for methods that tune a prompt where there is none, or several."""
    several = is_ensemble(template)
    for method in methods:
        if method.method.parameter == "context" and (model.text is None or several):
            raise _needs_text_tower(method.method, several=several)


def _needs_text_tower(method: Method, *, several: bool = False) -> MethodError:
    fixed = (m for m in METHODS.values() if m.parameter != "context" and not m.is_stateful)
    others = ", ".join(m.name for m in fixed)
    why = "there are several for each class" if several else "this model has no text tower"
    return MethodError(f"{method.name} tunes the prompt, and {why}: use {others}.")


def initial_state(tuner: Tuner, method: ResolvedMethod) -> Any:
    """Return the state before the first image of a stream."""
    if method.method.initial is None:
        raise MethodError(
            f"{method.name} carries no state: use Classifier.predict, `dtpt predict` without "
            "--stream, or Tuner.predict."
        )
    return method.method.initial(tuner.initial_text_features, logit_scale=tuner.logit_scale)


def step_method(
    tuner: Tuner, method: ResolvedMethod, *, views: Tensor, state: Any = None
) -> tuple[Outcome, Any]:
    """Run a method that carries state on the (N, D) view features of the next image.

    Args:
        tuner: model, class list and settings.
        method: with `Method.is_stateful`.
        views: the original first.
        state: what the image before returned; None before the first image.
    """
    if state is None:
        state = initial_state(tuner, method)
    return Episode(tuner, views).step(method, state)


def _key(method: ResolvedMethod) -> tuple[object, ...]:
    """Return what decides the tuned features of one image; modifiers that only read do not."""
    return (method.method.name, method.lambda_, method.learning_rate, method.auto)


def _with_lambda(method: ResolvedMethod, signs: Sequence[tuple[Tensor, Tensor]]) -> ResolvedMethod:
    if method.auto is None:
        return method
    if not signs:
        raise MethodError(f"{method.name} needs images from which its lambda is selected.")
    thresholds, weights = (torch.cat(parts) for parts in zip(*signs, strict=True))
    lambda_ = lambda_for_quantile(thresholds, method.auto.quantile, weights=weights)
    log.info("Selected lambda %g for %s from %d images", lambda_, method.name, len(signs))
    return replace(method, lambda_=lambda_)


def _check_views(view_features: Tensor, *, dimensions: int) -> None:
    if not isinstance(view_features, Tensor):
        raise MethodError(f"View features must be a tensor, not {short_repr(view_features)}.")
    shape = tuple(view_features.shape)
    if view_features.ndim != 2 or shape[1] != dimensions or shape[0] == 0:
        raise MethodError(f"View features must be (views, {dimensions}), got {shape}.")
    if not bool(torch.isfinite(view_features).all()):
        raise MethodError("View features contain numbers that are not finite.")
