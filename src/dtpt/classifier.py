"""The public classifier: an image in, a calibrated prediction out.

>>> import dtpt                                                    # doctest: +SKIP
>>> model = dtpt.load_model("ViT-B-16/openai")                     # doctest: +SKIP
>>> classifier = dtpt.Classifier(model, ["cat", "dog"], method="d-tpt")  # doctest: +SKIP
>>> classifier.predict("photo.jpg").label                          # doctest: +SKIP
'cat'
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dtpt.clip.model import Clip
from dtpt.errors import ImageError
from dtpt.images import ImageSource, open_image, pixel_digest
from dtpt.methods import Method, ResolvedMethod, resolve_method
from dtpt.prompts import DEFAULT_TEMPLATE, PromptSet
from dtpt.tuning import Outcome, Tuner, TuningSettings
from dtpt.views import ViewRecipe, make_views


@dataclass(frozen=True)
class Answer:
    """A distribution over the classes, read at its maximum.

    Attributes:
        label: name of the most probable class, as the caller wrote it.
        index: its position in the class list.
        confidence: its probability, between 0 and 1.
        entropy: of the whole distribution, in nats.
        probabilities: (C,) float32, summing to one.
    """

    label: str
    index: int
    confidence: float
    entropy: float
    probabilities: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Prediction(Answer):
    """What a method says about one image, with the zero-shot answer beside it.

    Attributes:
        method: name of the method, modifiers included.
        lambda_: weight of its regulariser; None where it has none.
        zero_shot: the same model's answer without tuning.
    """

    method: str
    lambda_: float | None
    zero_shot: Answer


class Classifier:
    """Zero-shot classification with test-time prompt tuning, one image at a time.

    Stateless between calls: every image starts from the same initial context, so a prediction does
    not depend on what was predicted before, and the same pixels give the same answer whether they
    come as a path, bytes, a Pillow image or an array.

    Args:
        model: a CLIP from `load_model`.
        classes: class names; `_` counts as a blank.
        method: a name such as "d-tpt", "tpt+sals", "c-tpt@20", or a `Method`.
        template: prompt with {} for the class name; its words are tuned.
        views: how many views, the original included; or a whole recipe.
        seed: of the random views.
        lambda_: weight of the method's regulariser instead of its default.
        family: picks the method's default lambda ("fine-grained" or "natural-shifts").
        augmix: whether the random views go through AugMix.
        context: (n, W) initial context instead of the template's words.
        settings: optimiser and selection of confident views.
    """

    def __init__(
        self,
        model: Clip,
        classes: Sequence[str],
        *,
        method: str | Method | ResolvedMethod = "d-tpt",
        template: str = DEFAULT_TEMPLATE,
        views: int | ViewRecipe = 64,
        seed: int = 0,
        lambda_: float | None = None,
        family: str = "fine-grained",
        augmix: bool = True,
        context: Tensor | None = None,
        settings: TuningSettings | None = None,
    ) -> None:
        self.model = model
        self.classes = tuple(classes)
        self.method = resolve_method(method, lambda_=lambda_, family=family)
        self.recipe = ViewRecipe(count=views, augmix=augmix) if isinstance(views, int) else views
        self.seed = seed
        prompts = PromptSet.build(model, classes, template=template, context=context)
        self.tuner = Tuner(model, prompts, settings=settings)

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Class names that occur more than once: such classes share their probability."""
        return self.tuner.prompts.duplicates

    def predict(self, image: ImageSource) -> Prediction:
        """Classify one image: a path, encoded bytes, a Pillow image or a uint8 array.

        Raises:
            ImageError: the image cannot be read; the message names it.
        """
        return self.tune(self.view_features(image))

    def predict_batch(self, images: Iterable[ImageSource]) -> list[Prediction]:
        """Classify several images; each is independent of the others.

        Raises:
            ImageError: at the first image that cannot be read (see `predict_each`).
        """
        return [self.predict(image) for image in images]

    def predict_each(self, images: Iterable[ImageSource]) -> Iterator[Prediction | ImageError]:
        """Classify images one by one; one that cannot be read yields its error."""
        for image in images:
            try:
                yield self.predict(image)
            except ImageError as error:
                yield error

    def view_features(self, image: ImageSource) -> Tensor:
        """Features (N, D) of the image's views; row 0 is the original view."""
        opened = open_image(image)
        pixels = make_views(
            opened,
            recipe=self.recipe,
            seed=self.seed,
            image_id=pixel_digest(opened),
            preprocessing=self.model.preprocessing,
        )
        return self.model.encode_image(torch.from_numpy(pixels))

    def tune(self, view_features: Tensor) -> Prediction:
        """Tune on features (N, D) that the caller brings; row 0 is what is predicted."""
        (outcome,) = self.tuner.predict(view_features, [self.method])
        return self._prediction(outcome)

    def _prediction(self, outcome: Outcome) -> Prediction:
        answer = self._answer(outcome.probabilities)
        zero_shot = self._answer(torch.softmax(outcome.zero_shot_logits, dim=-1))
        return Prediction(
            **vars(answer),
            method=outcome.method.name,
            lambda_=outcome.method.lambda_,
            zero_shot=zero_shot,
        )

    def _answer(self, probabilities: Tensor) -> Answer:
        index = int(probabilities.argmax())
        logs = torch.xlogy(probabilities, probabilities)
        return Answer(
            label=self.classes[index],
            index=index,
            confidence=float(probabilities[index]),
            entropy=float(-logs.sum()),
            probabilities=probabilities.float().cpu().numpy(),
        )
