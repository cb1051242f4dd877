"""The one predictor: model, class prompts, view recipe and settings.

`Classifier`, the workers of a run, the web service and the analyses are thin layers over it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from dtpt.calibration import Setup
from dtpt.clip.ensembles import (
    Descriptions,
    checked_descriptions,
    class_prompts,
    descriptions_label,
    ensemble_features,
    is_ensemble,
)
from dtpt.clip.model import Clip, view_batches, views_per_batch
from dtpt.clip.prompts import (
    DEFAULT_TEMPLATE,
    PromptSet,
    class_list,
    context_digest,
    prompted_names,
    require_clip,
)
from dtpt.errors import PromptError
from dtpt.images import pixel_digest
from dtpt.methods import ResolvedMethod, shared_recipe
from dtpt.methods.anytime import stops
from dtpt.methods.tpt import select_confident
from dtpt.methods.zero_shot import class_logits
from dtpt.prediction.ood import ood_warning
from dtpt.prediction.prediction import Prediction
from dtpt.tuning import Outcome, Tuner, TuningSettings
from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES
from dtpt.views import ViewRecipe, Views, make_views

IMAGES_FOR_LAMBDA = 32  # from which a λ is selected without labels

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Rendered:
    """A decoded image and its views (N, 3, S, S), the original first.

    Of methods that may stop early it holds the first views, and the others are made as needed.
    """

    image: Image.Image
    pixels: Views


class Predictor:
    """Predicts images of one class list with one model; holds no state from image to image.

    Args:
        model: A CLIP.
        classes: Class names.
        template: Prompt with {} for the class name; several on lines of their own are an ensemble.
        context: (n, W) initial context instead of the template's words.
        recipe: How views are made.
        settings: Optimiser and selection of confident views.
        descriptions: sentences for each class, instead of a template.
        text_features: (C, D) unit vectors at the initial context, when they are known; else
            computed. A model without a text tower needs them, unless it has fixed ones of these
            classes, and its prompt cannot be tuned.
        budget_bytes: Memory for the kept graph of the text features.
    """

    def __init__(
        self,
        model: Clip,
        classes: Iterable[str],
        *,
        template: str = DEFAULT_TEMPLATE,
        context: Tensor | None = None,
        recipe: ViewRecipe | None = None,
        settings: TuningSettings | None = None,
        text_features: Tensor | None = None,
        descriptions: Descriptions | None = None,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
    ) -> None:
        self.model = require_clip(model)
        self.classes = class_list(classes)
        fixed = model.fixed_text
        if fixed is not None:
            fixed.check_prompt(template, context=context)
            text_features = fixed.of(self.classes) if text_features is None else text_features
        self.template = template if fixed is None else fixed.prompt
        if descriptions is not None:
            descriptions = checked_descriptions(descriptions)
            self.template = descriptions_label(descriptions)
        several = is_ensemble(self.template) and model.text is not None
        if several and context is not None:
            raise PromptError("A trained context belongs to one prompt: give one template.")
        if several and text_features is None:
            texts = class_prompts(self.classes, self.template, descriptions=descriptions)
            text_features = ensemble_features(model, texts)
        self.context = context
        self.recipe = recipe or ViewRecipe()
        prompts = None
        if model.text is not None and not several:
            prompts = PromptSet.build(model, self.classes, template=template, context=context)
        if text_features is not None:
            _check_text_features(text_features, (len(self.classes), model.config.embed_dim))
        self.tuner = Tuner(
            model,
            prompts,
            settings=settings,
            text_features=text_features,
            budget_bytes=budget_bytes,
        )

    @property
    def prompts(self) -> PromptSet:
        """The class prompts; a MethodError without a text tower or with several templates."""
        return self.tuner.prompts

    @property
    def duplicates(self) -> tuple[tuple[str, ...], ...]:
        """Groups of class names with the same prompt: they share their probability."""
        prompts = self.tuner._prompts
        return () if prompts is None else prompts.duplicates

    def with_recipe(self, recipe: ViewRecipe) -> "Predictor":
        """Return a predictor with other views; prompts and text features are shared."""
        other = copy(self)
        other.recipe = recipe
        return other

    def recipe_for(self, methods: Sequence[ResolvedMethod] | None) -> ViewRecipe:
        """Return the recipe of the views that some methods share; of all views for None.

        Raises:
            MethodError: they use different views; `recipe_groups` separates them.
        """
        return self.recipe if methods is None else shared_recipe(methods, self.recipe)

    def render(
        self,
        image: Image.Image,
        *,
        methods: Sequence[ResolvedMethod] | None,
        seed: int,
        progress: Progress | None = None,
    ) -> Rendered:
        """Make the views that some methods use for certain; all of them for None."""
        recipe = self.recipe_for(methods)
        if may_stop_early(methods):
            recipe = recipe.model_copy(update={"count": 1})
        pixels = make_views(
            image,
            recipe=recipe,
            seed=seed,
            preprocessing=self.model.preprocessing,
            progress=progress,
        )
        return Rendered(image, pixels)

    def features(
        self,
        rendered: Rendered,
        *,
        methods: Sequence[ResolvedMethod] | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Tensor:
        """Encode the views: (N, D) unit vectors, row 0 the original view.

        Methods that may stop early get as many as they need, bit for bit the first ones of all.
        """
        if methods is None or not may_stop_early(methods):
            return self.model.encode_views(torch.from_numpy(rendered.pixels), progress=progress)
        recipe = self.recipe_for(methods)
        encoded = self.model.encode_batches(self._batches(rendered, recipe=recipe, seed=seed))
        features = next(encoded)
        for stop in stops(recipe.count)[1:]:
            if self.tuner.has_enough(features, methods):
                break
            while len(features) < stop:
                features = torch.cat([features, next(encoded)])
            if progress is not None:
                progress(stop, recipe.count)
        return features

    def _batches(self, rendered: Rendered, *, recipe: ViewRecipe, seed: int) -> Iterator[Tensor]:
        """Yield views in the batches in which all are encoded; those that are missing are made."""
        image_id = pixel_digest(rendered.image)
        for batch in view_batches(recipe.count, size=views_per_batch(self.model.visual)):
            pixels = rendered.pixels[batch]
            if len(pixels) < batch.stop - batch.start:
                pixels = make_views(
                    rendered.image,
                    recipe=recipe.model_copy(update={"count": batch.stop}),
                    seed=seed,
                    preprocessing=self.model.preprocessing,
                    image_id=image_id,
                    first=batch.start,
                )
            yield torch.from_numpy(pixels)

    def answer(
        self,
        features: Tensor,
        methods: Sequence[ResolvedMethod],
        *,
        progress: Progress | None = None,
    ) -> list[Outcome]:
        """Run methods on the view features (N, D) of one image."""
        return self.tuner.predict(features, methods, progress=progress)

    def answer_many(
        self, features: Sequence[Tensor], methods: Sequence[ResolvedMethod]
    ) -> list[list[Outcome]]:
        """Run methods on several images; more than one share forward passes of the text tower."""
        if len(features) == 1:
            return [self.answer(features[0], methods)]
        return self.tuner.predict_many(features, methods)

    def prediction(self, outcome: Outcome) -> Prediction:
        """Read an outcome at its maximum, with the zero-shot prediction beside it."""
        zero_shot = torch.softmax(outcome.zero_shot_logits, dim=-1)
        return Prediction.read(
            outcome.probabilities,
            self.classes,
            method=outcome.method.name,
            lambda_=outcome.lambda_,
            without_tuning=Prediction.read(zero_shot, self.classes),
        )

    def view_logits(self, features: Tensor) -> Tensor:
        """Return the zero-shot logits (N, C) of every view (N, D)."""
        text = self.tuner.initial_text_features
        return class_logits(features.to(text), text, logit_scale=self.tuner.logit_scale)

    def confident_views(self, logits: Tensor) -> list[int]:
        """Return which views (N, C) are tuned on, by falling confidence."""
        return [int(view) for view in select_confident(logits, self.tuner.settings.rho)]

    def ood_warning(self, image: Image.Image, features: Tensor) -> str | None:
        """Warn about an image that differs from what the model was trained on."""
        return ood_warning(self.model, features[0], image=image)

    def setup(self, method: ResolvedMethod, lambda_: float | None, *, model: str = "") -> Setup:
        """Return everything that decides a probability: what a calibration is valid for."""
        is_known = self.model.text is not None or self.model.fixed_text is not None
        fixed = self.context if is_known else self.tuner.initial_text_features
        return Setup(
            model=model,
            fingerprint=self.model.fingerprint,
            precision=self.model.precision,
            method=method.name,
            lambda_=lambda_,
            learning_rate=method.learning_rate,
            template=self.template,
            context=None if fixed is None else context_digest(fixed),
            classes=prompted_names(self.classes),
            views={**self.recipe.model_dump(mode="json"), **method.own_views},
            tuning=self.tuner.settings.model_dump(mode="json"),
        )


def may_stop_early(methods: Sequence[ResolvedMethod] | None) -> bool:
    """Return whether the methods may need fewer views than the recipe has."""
    users = [method for method in methods or () if method.uses_views]
    return bool(users) and all(method.tolerance is not None for method in users)


def _check_text_features(features: Tensor, shape: tuple[int, int]) -> None:
    if not isinstance(features, Tensor) or features.shape != shape:
        raise PromptError(f"text_features must be a tensor of shape {shape}.")
    if not bool(((features.norm(dim=-1) - 1).abs() < 1e-2).all()):
        raise PromptError("text_features must be unit vectors: divide each row by its norm.")
