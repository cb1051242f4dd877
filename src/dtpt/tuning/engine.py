"""Episodic test-time prompt tuning of one image at a time (Algorithm 1), with shared work.

The context is reset for every image, so at the first step

* the text features, and what their backward pass needs, are the same for every image;
* the regulariser's gradient is the same for every image;
* the entropy's gradient is the same for every method and every λ.

M methods on one image therefore cost one backward pass and M forward passes. Every tensor has the
same shape for every image and method, so results do not depend on what else is in the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dtpt.clip.model import Clip
from dtpt.errors import MethodError
from dtpt.methods.base import Method, ResolvedMethod
from dtpt.methods.tpt import ENTROPY_LOSSES, select_confident
from dtpt.methods.zero_shot import class_logits
from dtpt.prompts import PromptSet
from dtpt.tuning.adamw import AdamW
from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES, Linearisation, PromptEncoder
from dtpt.tuning.settings import TuningSettings


@dataclass(frozen=True)
class Outcome:
    """What one method says about one image.

    Attributes:
        method: as resolved, λ included.
        logits: (C,) after modifiers.
        probabilities: (C,) softmax of the logits.
        zero_shot_logits: (C,) of the same view with the initial context.
        text_features: (C, D) after tuning, before modifiers.
        context: (n, W) tuned context.
    """

    method: ResolvedMethod
    logits: Tensor
    probabilities: Tensor
    zero_shot_logits: Tensor
    text_features: Tensor
    context: Tensor


class Tuner:
    """Tunes and predicts for one model and one class list; holds no state from image to image.

    Args:
        model: a CLIP.
        prompts: the class prompts with their initial context.
        settings: optimiser and selection.
        budget_bytes: memory for the kept graph of the text features.
    """

    def __init__(
        self,
        model: Clip,
        prompts: PromptSet,
        *,
        settings: TuningSettings | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
    ) -> None:
        self.prompts = prompts
        self.settings = settings or TuningSettings()
        self.logit_scale = model.logit_scale
        self.encoder = PromptEncoder(model, prompts, budget_bytes=budget_bytes)
        self.initial_text_features = self.encoder.encode(prompts.context)  # (C, D)
        self._initial: Linearisation | None = None
        self._regulariser_gradients: dict[str, Tensor] = {}
        self._static: dict[str, tuple[Tensor, Tensor]] = {}

    def predict(self, view_features: Tensor, methods: Sequence[ResolvedMethod]) -> list[Outcome]:
        """Run methods on one image.

        Args:
            view_features: (N, D) unit vectors; row 0 is the original view, which is predicted.
            methods: in the order of the results.
        """
        self._check(view_features)
        views = view_features.to(self.prompts.context)
        selected = views[self._select(views)]  # (K, D)
        needs_entropy = any(m.method.tunes and not m.method.static for m in methods)
        entropy_gradient = None
        if needs_entropy and self.settings.steps > 0:
            entropy_gradient = self._entropy_gradient(self.initial, selected)
        tuned: dict[tuple[str, float | None], tuple[Tensor, Tensor]] = {}
        outcomes = []
        for resolved in methods:
            key = (resolved.method.name, resolved.lambda_)
            if key not in tuned:
                tuned[key] = self._tune(resolved, selected, entropy_gradient)
            outcomes.append(self._read_out(resolved, views[0], *tuned[key]))
        return outcomes

    @property
    def initial(self) -> Linearisation:
        """Text features at the initial context with their graph, made at first need."""
        if self._initial is None:
            self._initial = self.encoder.linearise(self.prompts.context)
        return self._initial

    def entropy_gradient(self, view_features: Tensor) -> Tensor:
        """Gradient (n, W) of TPT's loss at the initial context, for analyses."""
        views = view_features.to(self.prompts.context)
        return self._entropy_gradient(self.initial, views[self._select(views)])

    def regulariser_gradient(self, method: Method) -> Tensor:
        """Gradient (n, W) of a method's regulariser at the initial context: one per class list."""
        if method.name not in self._regulariser_gradients:
            gradient = _regulariser_pullback(self.initial, method)
            self._regulariser_gradients[method.name] = gradient
        return self._regulariser_gradients[method.name]

    def _check(self, view_features: Tensor) -> None:
        dim = self.encoder.embed_dim
        if view_features.ndim != 2 or view_features.shape[1] != dim or len(view_features) == 0:
            raise MethodError(
                f"View features must be (views, {dim}), got {tuple(view_features.shape)}."
            )
        if not bool(torch.isfinite(view_features).all()):
            raise MethodError("View features contain numbers that are not finite.")

    def _select(self, views: Tensor) -> Tensor:
        logits = class_logits(views, self.initial_text_features, logit_scale=self.logit_scale)
        return select_confident(logits, self.settings.rho)

    def _tune(
        self, resolved: ResolvedMethod, selected: Tensor, entropy_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Tuned context and text features of one method for one image."""
        method = resolved.method
        if not method.tunes or self.settings.steps == 0:
            return self.prompts.context, self.initial_text_features
        if method.static:
            return self._tune_static(method)
        if entropy_gradient is None:
            raise MethodError("The entropy gradient is missing: this is a bug.")
        weight, gradient = resolved.lambda_, entropy_gradient
        if weight:
            gradient = gradient + weight * self.regulariser_gradient(method)
        descent = AdamW(self.prompts.context, self.settings)
        context = descent.step(gradient)
        for _ in range(1, self.settings.steps):
            point = self.encoder.linearise(context)
            gradient = self._entropy_gradient(point, selected)
            if weight:
                gradient = gradient + weight * _regulariser_pullback(point, method)
            context = descent.step(gradient)
        return context, self.encoder.encode(context)

    def _tune_static(self, method: Method) -> tuple[Tensor, Tensor]:
        """The limit of a large λ: the regulariser alone, once per class list.

        The gradient is scaled to a largest entry of 1, so that AdamW's ε plays no part.
        """
        if method.name not in self._static:
            gradient = self.regulariser_gradient(method)
            scale = 1.0 / float(gradient.abs().max().clamp_min(torch.finfo(gradient.dtype).tiny))
            descent = AdamW(self.prompts.context, self.settings)
            context = descent.step(scale * gradient)
            for _ in range(1, self.settings.steps):
                point = self.encoder.linearise(context)
                context = descent.step(scale * _regulariser_pullback(point, method))
            self._static[method.name] = (context, self.encoder.encode(context))
        return self._static[method.name]

    def _entropy_gradient(self, point: Linearisation, selected: Tensor) -> Tensor:
        text = point.features.detach().requires_grad_()
        with torch.enable_grad():
            logits = class_logits(selected, text, logit_scale=self.logit_scale)  # (K, C)
            loss = ENTROPY_LOSSES[self.settings.entropy](logits)
            (gradient,) = torch.autograd.grad(loss, text)
        return point.pullback(gradient)

    def _read_out(
        self, resolved: ResolvedMethod, image: Tensor, context: Tensor, text: Tensor
    ) -> Outcome:
        """Predict the original view (D,) with tuned text features (C, D)."""
        zero_shot = class_logits(image, self.initial_text_features, logit_scale=self.logit_scale)
        seen = text
        for modifier in resolved.modifiers:
            if modifier.features is not None:
                seen = modifier.features(seen, image)
        logits = class_logits(image, seen, logit_scale=self.logit_scale)
        for modifier in resolved.modifiers:
            if modifier.logits is not None:
                logits = modifier.logits(logits, zero_shot)
        probabilities = torch.softmax(logits, dim=-1)
        return Outcome(resolved, logits, probabilities, zero_shot, text, context)


def _regulariser_pullback(point: Linearisation, method: Method) -> Tensor:
    """Gradient (n, W) of a method's regulariser at one context."""
    if method.regulariser is None:
        raise MethodError(f"{method.name} has no regulariser.")
    text = point.features.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(method.regulariser(text), text)
    return point.pullback(gradient)
