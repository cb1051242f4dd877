"""Episodic test-time tuning of one image at a time (Algorithm 1), with shared work.

The context is reset for every image, so at the first step

* the text features, and what their backward pass needs, are the same for every image;
* the regulariser's gradient is the same for every image;
* the entropy's gradient is the same for every method and every λ.

M methods on one image therefore cost one backward pass and M forward passes through the text tower;
methods that tune a shift of the features cost none, and methods without a gradient cost nothing but
their read-out. Every tensor has the same shape for every image and method, so results do not depend
on what else is in the run.
"""

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods.base import EntropyReading, Method, ResolvedMethod
from dtpt.methods.tpt import ENTROPY_LOSSES, select_confident
from dtpt.methods.zero_shot import class_logits
from dtpt.tuning.adamw import AdamW
from dtpt.tuning.checks import check_views, checked_settings, refuse_infinite
from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES, PromptEncoder
from dtpt.tuning.settings import TuningSettings
from dtpt.tuning.spaces import Linearised, ShiftSpace, Space
from dtpt.tuning.strength import sign_thresholds, weight_for_share

log = logging.getLogger("dtpt.tuning")


@dataclass(frozen=True)
class Outcome:
    """What one method says about one image.

    Attributes:
        method: as resolved.
        lambda_: the weight that was used, also where it was found from the picture; None without.
        logits: (C,) after modifiers.
        probabilities: (C,) softmax of the logits.
        zero_shot_logits: (C,) of the same view with the initial context.
        text_features: (C, D) after tuning, before modifiers.
        context: (n, W) tuned context; the initial one for methods that tune none.
    """

    method: ResolvedMethod
    lambda_: float | None
    logits: Tensor
    probabilities: Tensor
    zero_shot_logits: Tensor
    text_features: Tensor
    context: Tensor


@dataclass(frozen=True)
class _Step:
    """Where the first step led, with which weight, and the optimiser for further steps."""

    point: Tensor
    weight: float | None
    descent: AdamW


@dataclass(frozen=True)
class _Tuned:
    """Where tuning ended: the point, the features there (C, D), and the weight that led there."""

    point: Tensor
    text: Tensor
    weight: float | None


def views_needed(methods: Iterable[ResolvedMethod], count: int) -> int:
    """Return how many of `count` views some methods look at: all of them, or the original alone.

    Example:
        >>> from dtpt.methods import resolve_method
        >>> views_needed([resolve_method("zero-shot")], 64)
        1
    """
    return count if any(method.uses_views for method in methods) else 1


class Tuner:
    """Tunes and predicts for one model and one class list; holds no state from image to image.

    What it keeps is the same for every image: the graph of the initial text features and the
    regularisers' gradients, made once at first need, whichever thread needs them first. Copies and
    pickles leave these out.

    Args:
        model: a CLIP.
        prompts: the class prompts with their initial context.
        settings: optimiser and selection.
        budget_bytes: memory for the kept graph of the text features.
        text_features: (C, D) at the initial context, when they are known; else computed.
    """

    def __init__(
        self,
        model: Clip,
        prompts: PromptSet,
        *,
        settings: TuningSettings | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        text_features: Tensor | None = None,
    ) -> None:
        self.prompts = prompts
        self.settings = checked_settings(settings)
        self.logit_scale = model.logit_scale
        self.encoder = PromptEncoder(model, prompts, budget_bytes=budget_bytes)
        if text_features is None:
            text_features = self.encoder.encode(prompts.context)
            log.debug("Computed text features of %d classes", len(prompts.names))
        self.initial_text_features = text_features  # (C, D)
        self._forget()

    def _forget(self) -> None:
        """Drop what can be made again."""
        self._initial: dict[str, Linearised] = {}
        self._regulariser_gradients: dict[str, Tensor] = {}
        self._static: dict[str, _Tuned] = {}
        self._making = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out graphs, which can be neither copied nor pickled."""
        made = ("_initial", "_regulariser_gradients", "_static", "_making")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start without graphs; they are made at first need."""
        self.__dict__.update(state)
        self._forget()

    def predict(self, view_features: Tensor, methods: Sequence[ResolvedMethod]) -> list[Outcome]:
        """Run methods on one image.

        Args:
            view_features: (N, D) unit vectors; row 0 is the original view, which is predicted.
            methods: in the order of the results.
        """
        episode = Episode(self, view_features)
        return [episode.answer(method) for method in methods]

    def predict_many(
        self, pictures: Sequence[Tensor], methods: Sequence[ResolvedMethod]
    ) -> list[list[Outcome]]:
        """Run methods on several images whose forward passes are shared; for accelerators.

        Equal to `predict` on each, up to the rounding of larger batches.
        """
        episodes = [Episode(self, views) for views in pictures]
        pairs = [(e, method) for e in episodes for method in e.one_step_methods(methods)]
        steps = [episode.first_step(method) for episode, method in pairs]
        if steps:
            features = self.encoder.encode_many(torch.stack([step.point for step in steps]))
            for (episode, method), step, text in zip(pairs, steps, features, strict=True):
                episode.remember(method, step, text=text)
        return [[episode.answer(method) for method in methods] for episode in episodes]

    def with_weights(
        self, methods: Sequence[ResolvedMethod], pictures: Iterable[Tensor]
    ) -> list[ResolvedMethod]:
        """Fix every λ that is to be found from unlabelled pictures (`@auto=0.9`).

        Args:
            methods: those without such a λ are returned as they are.
            pictures: (N, D) view features of some pictures; labels play no part.
        """
        open_ones = [m for m in methods if m.strength and not m.strength.each and m.lambda_ is None]
        if not open_ones:
            return list(methods)
        found: dict[str, list[Tensor]] = {method.name: [] for method in open_ones}
        for views in pictures:
            episode = Episode(self, views)
            for method in open_ones:
                found[method.name].append(episode.thresholds(method))
        return [self._with_weight(method, found.get(method.name)) for method in methods]

    def _with_weight(self, method: ResolvedMethod, found: list[Tensor] | None) -> ResolvedMethod:
        if found is None or method.strength is None:
            return method
        if not found:
            raise MethodError(f"{method.name} needs pictures from which its lambda can be found.")
        weight = weight_for_share(torch.cat(found), method.strength.share)
        log.info("Found lambda %g for %s from %d pictures", weight, method.name, len(found))
        return replace(method, lambda_=weight)

    def space(self, method: Method) -> Space:
        """Return what a method tunes."""
        if method.parameter == "shift":
            return ShiftSpace(self.initial_text_features)
        return self.encoder

    def initial(self, method: Method) -> Linearised:
        """Return the features where tuning starts with their pullback, made at first need."""
        with self._making:
            if method.parameter not in self._initial:
                space = self.space(method)
                self._initial[method.parameter] = space.linearise(space.origin)
            return self._initial[method.parameter]

    def entropy_gradient(self, view_features: Tensor, method: Method) -> Tensor:
        """Return the gradient of TPT's loss at the start, in what a method tunes; for analyses."""
        return Episode(self, view_features).entropy_gradient(method)

    def regulariser_gradient(self, method: Method) -> Tensor:
        """Return the gradient of a method's regulariser at the start: one per class list."""
        with self._making:
            if method.name not in self._regulariser_gradients:
                gradient = self.regulariser_pullback(self.initial(method), method)
                self._regulariser_gradients[method.name] = gradient
            return self._regulariser_gradients[method.name]

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
        """Tune by the regulariser alone, once per class list: the limit of a large λ.

        The gradient is scaled to a largest entry of 1, so that AdamW's ε plays no part.
        """
        key = f"{method.method.name} {method.learning_rate}"
        if key not in self._static:
            gradient = self.regulariser_gradient(method.method)
            scale = 1.0 / float(gradient.abs().max().clamp_min(torch.finfo(gradient.dtype).tiny))
            space, descent = self.space(method.method), self.descent(method)
            point = descent.step(scale * gradient)
            for _ in range(1, self.settings.steps):
                here = space.linearise(point)
                point = descent.step(scale * self.regulariser_pullback(here, method.method))
            self._static[key] = _Tuned(point, space.encode(point), None)
        return self._static[key]


class Episode:
    """One image: what its methods share.

    Args:
        tuner: model, class list and settings.
        view_features: (N, D) unit vectors; row 0 is the original view.
    """

    def __init__(self, tuner: Tuner, view_features: Tensor) -> None:
        check_views(view_features, dimensions=tuner.encoder.embed_dim)
        self._tuner = tuner
        self._views = view_features.to(tuner.prompts.context)
        text, scale = tuner.initial_text_features, tuner.logit_scale
        self._zero_shot = class_logits(self._views[0], text, logit_scale=scale)  # (C,)
        self._confident: Tensor | None = None
        self._gradients: dict[tuple[str, EntropyReading], Tensor] = {}
        self._tuned: dict[tuple[str, float | None, float | None, str], _Tuned] = {}

    @property
    def confident(self) -> Tensor:
        """(K, D) the views that are tuned on, chosen with the initial context."""
        if self._confident is None:
            text, scale = self._tuner.initial_text_features, self._tuner.logit_scale
            logits = class_logits(self._views, text, logit_scale=scale)
            self._confident = self._views[select_confident(logits, self._tuner.settings.rho)]
        return self._confident

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

    def thresholds(self, method: ResolvedMethod) -> Tensor:
        """Return the λ from which the regulariser decides each sign of this image's first step."""
        gradient = self._tuner.regulariser_gradient(method.method)
        return sign_thresholds(self.entropy_gradient(method.method), gradient)

    def answer(self, method: ResolvedMethod) -> Outcome:
        """Tune with one method and read its answer out."""
        key = _key(method)
        if key not in self._tuned:
            self._tuned[key] = self._tune(method)
        return self._read(method, self._tuned[key])

    def remember(self, method: ResolvedMethod, step: _Step, *, text: Tensor) -> None:
        """Take over features (C, D) that were computed together with other images'."""
        self._tuned[_key(method)] = _Tuned(step.point, text, step.weight)

    def one_step_methods(self, methods: Sequence[ResolvedMethod]) -> list[ResolvedMethod]:
        """Return the methods, each once, whose features are one step and one pass away."""
        if self._tuner.settings.steps != 1:
            return []
        found: dict[object, ResolvedMethod] = {}
        for method in methods:
            if method.method.tunes_on_views and method.method.parameter == "context":
                found.setdefault(_key(method), method)
        return list(found.values())

    def first_step(self, method: ResolvedMethod) -> _Step:
        """Step once from the start, where every gradient is shared."""
        weight, gradient = self._weight(method), self.entropy_gradient(method.method)
        if weight:
            gradient = gradient + weight * self._tuner.regulariser_gradient(method.method)
        descent = self._tuner.descent(method)
        return _Step(descent.step(gradient), weight, descent)

    def _tune(self, method: ResolvedMethod) -> _Tuned:
        tuner = self._tuner
        if not method.method.tunes or tuner.settings.steps == 0:
            return _Tuned(tuner.prompts.context, tuner.initial_text_features, method.lambda_)
        if method.method.static:
            return tuner.static(method)
        step, space = self.first_step(method), tuner.space(method.method)
        point = step.point
        for _ in range(1, tuner.settings.steps):
            here = space.linearise(point)
            gradient = self._entropy_pullback(here, method.method)
            if step.weight:
                pulled = tuner.regulariser_pullback(here, method.method)
                gradient = gradient + step.weight * pulled
            point = step.descent.step(gradient)
        return _Tuned(point, space.encode(point), step.weight)

    def _weight(self, method: ResolvedMethod) -> float | None:
        """Return λ, found for this image where that is asked for."""
        if method.strength is None or method.lambda_ is not None:
            return method.lambda_
        if not method.strength.each:
            raise MethodError(
                f"The lambda of {method.name} is not found yet: use Tuner.with_weights and some "
                f"pictures, or @auto-each={method.strength.share:g} for one of its own per picture."
            )
        return weight_for_share(self.thresholds(method), method.strength.share)

    def _read(self, method: ResolvedMethod, tuned: _Tuned) -> Outcome:
        """Predict with tuned text features (C, D): the original view, or many at once."""
        text, scale = tuned.text, self._tuner.logit_scale
        for modifier in method.modifiers:
            if modifier.features is not None:
                text = modifier.features(text, self._views[0])
        if method.read_out is None:
            logits = class_logits(self._views[0], text, logit_scale=scale)
        else:
            logits = method.read_out(self._views, text, scale)
        for modifier in method.modifiers:
            if modifier.logits is not None:
                logits = modifier.logits(logits, self._zero_shot)
        probabilities = torch.softmax(logits, dim=-1)
        refuse_infinite(probabilities, method, weight=tuned.weight)
        of_context = method.method.parameter == "context"
        context = tuned.point if of_context else self._tuner.prompts.context
        return Outcome(
            method, tuned.weight, logits, probabilities, self._zero_shot, tuned.text, context
        )


def _key(method: ResolvedMethod) -> tuple[str, float | None, float | None, str]:
    """Say what tells tuned features of one image apart; modifiers that only read do not."""
    return (method.method.name, method.lambda_, method.learning_rate, str(method.strength))
