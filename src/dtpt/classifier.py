"""The public classifier: an image in, a calibrated prediction out.

>>> import dtpt
>>> from dtpt.data.openmoji_art import OpenMojiRef
>>> model = dtpt.load_model("pocket")
>>> classifier = dtpt.Classifier(model, ["bicycle", "tropical drink"], method="d-tpt", views=16)
>>> classifier.predict(OpenMojiRef("1F6B2").open()).label
'bicycle'
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from torch import Tensor

from dtpt.clip.model import Clip
from dtpt.errors import ImageError, MethodError, PromptError, PromptWarning
from dtpt.familiarity import unfamiliar
from dtpt.images import ImageSource, open_image, pixel_digest
from dtpt.methods import Method, ResolvedMethod, resolve_method
from dtpt.promises import Promise, Subject, as_promise
from dtpt.prompts import DEFAULT_TEMPLATE, PromptSet, context_digest
from dtpt.tuning import Outcome, Tuner, TuningSettings, views_needed
from dtpt.views import ViewRecipe, make_views

PICTURES_FOR_A_WEIGHT = 32


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

    @classmethod
    def read(cls, probabilities: Tensor, classes: Sequence[str]) -> "Answer":
        """Read a distribution (C,) over classes at its maximum.

        Example:
            >>> Answer.read(torch.tensor([0.25, 0.75]), ["cat", "dog"]).label
            'dog'
        """
        index = int(probabilities.argmax())
        logs = torch.xlogy(probabilities, probabilities)
        return Answer(
            label=classes[index],
            index=index,
            confidence=float(probabilities[index]),
            entropy=float(-logs.sum()),
            probabilities=probabilities.float().cpu().numpy(),
        )


@dataclass(frozen=True)
class Prediction(Answer):
    """What a method says about one image, with the zero-shot answer beside it.

    Attributes:
        method: name of the method, modifiers included.
        lambda_: weight of its regulariser; None where it has none.
        zero_shot: the same model's answer without tuning.
        remark: a warning for people, such as that the picture is not of the model's kind.
        calibrated_confidence: what a promise makes of the confidence; None without a promise.
        prediction_set: the classes that a promise does not rule out, the most probable first.
        is_answered: whether the promise on errors covers this answer.
    """

    method: str
    lambda_: float | None
    zero_shot: Answer
    remark: str | None = None
    calibrated_confidence: float | None = None
    prediction_set: tuple[str, ...] | None = None
    is_answered: bool | None = None


class Classifier:
    """Zero-shot classification with test-time tuning, one image at a time.

    Stateless between calls: every image starts from the same initial context, so a prediction does
    not depend on what was predicted before, and the same pixels give the same answer whether they
    come as a path, bytes, a Pillow image or an array. It can be copied and pickled at any time.

    Args:
        model: a CLIP from `load_model`.
        classes: at least two class names; `_` counts as a blank.
        method: a name such as "d-tpt", "tpt+sals", "c-tpt@20", "mean-views", or a `Method`.
        template: prompt with {} for the class name; its words are tuned.
        views: how many views, the original included; or a whole recipe.
        seed: of the random views.
        lambda_: weight of the method's regulariser instead of its default.
        protocol: picks default lambda and learning rate ("fine-grained" or "natural-shifts").
        augmix: whether the random views go through AugMix.
        context: (n, W) initial context instead of the template's words.
        settings: optimiser and selection of confident views.
        promise: what `dtpt calibrate` made for exactly this model, method and class list, or its
            file; predictions then have a calibrated confidence, a set, and are answered or not.

    Raises:
        PromiseError: the promise is for something else, or its file is damaged.
        PromptError: fewer than two classes, or a prompt that cannot be made.
        MethodError: an unknown method, or a number that makes no sense.
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
        protocol: str = "fine-grained",
        augmix: bool = True,
        context: Tensor | None = None,
        settings: TuningSettings | None = None,
        promise: Promise | str | Path | None = None,
    ) -> None:
        self.model = model
        self.method = resolve_method(method, lambda_=lambda_, protocol=protocol)
        self.recipe = _recipe(views, augmix)
        self.seed = _whole_number(seed, "seed")
        prompts = PromptSet.build(model, classes, template=template, context=context)
        self.classes = tuple(classes)
        _check_classes(prompts)
        self.tuner = Tuner(model, prompts, settings=settings)
        self._context = None if context is None else context_digest(context)
        self.promise = None if promise is None else as_promise(promise)
        if self.promise is not None:
            self.promise.check(self.subject)

    @property
    def subject(self) -> Subject:
        """Everything that decides a probability: what a promise must be about."""
        return Subject(
            model="",
            fingerprint=self.model.fingerprint,
            precision=self.model.precision,
            method=self.method.name,
            lambda_=self.method.lambda_,
            learning_rate=self.method.learning_rate,
            template=self.tuner.prompts.template,
            context=self._context,
            classes=self.tuner.prompts.names,
            views=self.recipe.model_dump(mode="json"),
            tuning=self.tuner.settings.model_dump(mode="json"),
        )

    @property
    def duplicates(self) -> tuple[tuple[str, ...], ...]:
        """Groups of class names with the same prompt: they share their probability."""
        return self.tuner.prompts.duplicates

    def predict(self, image: ImageSource) -> Prediction:
        """Classify one image: a path, encoded bytes, a Pillow image or a uint8 array.

        Raises:
            ImageError: the image cannot be read; the message names it.
        """
        opened = open_image(image)
        features = self.view_features(opened)
        remark = unfamiliar(self.model, features[0], image=opened)
        return replace(self.tune(features), remark=remark)

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

    def fit_weight(self, images: Iterable[ImageSource]) -> float | None:
        """Find the lambda of a method such as "d-tpt@auto=0.9" from pictures without labels.

        At most 32 pictures are looked at. Returns the weight; None if the method has none to find.
        """
        seen = (self.view_features(image) for image in islice(images, PICTURES_FOR_A_WEIGHT))
        (self.method,) = self.tuner.with_weights([self.method], seen)
        return self.method.lambda_

    def view_features(self, image: ImageSource) -> Tensor:
        """Return features (N, D) of the image's views; row 0 is the original view.

        Only the original is made and encoded when the method looks at no other.
        """
        opened = open_image(image)
        count = views_needed([self.method], self.recipe.count)
        pixels = make_views(
            opened,
            recipe=self.recipe.model_copy(update={"count": count}),
            seed=self.seed,
            image_id=pixel_digest(opened),
            preprocessing=self.model.preprocessing,
        )
        return self.model.encode_views(torch.from_numpy(pixels))

    def tune(self, view_features: Tensor) -> Prediction:
        """Tune on features (N, D) that the caller brings; row 0 is what is predicted."""
        (outcome,) = self.tuner.predict(view_features, [self.method])
        return self._promised(self._prediction(outcome), outcome)

    def _prediction(self, outcome: Outcome) -> Prediction:
        answer = Answer.read(outcome.probabilities, self.classes)
        zero_shot = torch.softmax(outcome.zero_shot_logits, dim=-1)
        return Prediction(
            **vars(answer),
            method=outcome.method.name,
            lambda_=outcome.lambda_,
            zero_shot=Answer.read(zero_shot, self.classes),
        )

    def _promised(self, prediction: Prediction, outcome: Outcome) -> Prediction:
        """Add what the promise, if there is one, says about a prediction."""
        if self.promise is None:
            return prediction
        logs = torch.log_softmax(outcome.logits.cpu().double(), dim=-1).numpy()  # (C,)
        said = self.promise.state(logs[None], predictions=[prediction.index])
        order = np.argsort(-logs, kind="stable")
        return replace(
            prediction,
            calibrated_confidence=float(said.confidence[0]),
            prediction_set=tuple(self.classes[k] for k in order if said.members[0, k]),
            is_answered=bool(said.answered[0]),
        )


def _recipe(views: object, augmix: bool) -> ViewRecipe:
    if isinstance(views, ViewRecipe):
        return views
    try:
        return ViewRecipe(count=_whole_number(views, "views"), augmix=augmix)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise MethodError(f"views is {views!r}: {reason}; the paper uses 64.") from None


def _whole_number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise MethodError(f"{name} must be a whole number, got {value!r}.")
    return int(value)


def _check_classes(prompts: PromptSet) -> None:
    """Refuse what can only be answered one way; warn about classes that nothing tells apart."""
    if len(prompts.names) < 2:
        raise PromptError(
            f"One class ({prompts.names[0]!r}) leaves nothing to decide: give at least two."
        )
    for group in prompts.duplicates:
        names = ", ".join(repr(name) for name in group)
        warnings.warn(
            f"Classes with the same prompt share their probability: {names}.",
            PromptWarning,
            stacklevel=3,
        )
