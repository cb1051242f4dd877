"""The public classifier: a `Predictor` with one method, one seed and, optionally, a calibration."""

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from dtpt.calibration import Calibration, Setup, as_calibration
from dtpt.clip.ensembles import Descriptions
from dtpt.clip.model import Clip
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.prompts import DEFAULT_TEMPLATE
from dtpt.clip.tokenizer import same_prompt_notes
from dtpt.errors import (
    ImageError,
    MethodError,
    OptionError,
    PromptError,
    PromptWarning,
    explain,
    short_repr,
)
from dtpt.executors.pool import (
    Announce,
    Failed,
    FunctionWorker,
    ProcessExecutor,
    in_order,
    is_shippable,
)
from dtpt.executors.process import CAN_START
from dtpt.files import AnyPath
from dtpt.images import ImageSource, open_image
from dtpt.machine import usable_cores
from dtpt.methods import Method, ResolvedMethod, resolve_method
from dtpt.methods.base import lambda_word
from dtpt.methods.table import DEFAULT_METHOD
from dtpt.prediction.prediction import KeptViews, Prediction
from dtpt.prediction.predictor import IMAGES_FOR_LAMBDA, Predictor, Rendered
from dtpt.prediction.saving import read_classifier, write_classifier
from dtpt.tuning import TuningSettings
from dtpt.tuning.engine import check_text_tower
from dtpt.views import ViewRecipe, contact_sheet, make_views
from dtpt.views.make import COLUMNS

if TYPE_CHECKING:
    from dtpt.prediction.stream import Stream

Workers = int | Literal["auto"]
Predictions = Generator[Prediction | ImageError, None, None]

MOST_WORKERS = 256
AHEAD = 3  # images per worker that are begun before the prediction in front is taken


class Classifier:
    """Zero-shot classification with test-time tuning, one image at a time.

    Stateless between calls: every image starts from the same initial context, so a prediction does
    not depend on what was predicted before, and the same pixels give the same prediction whether
    they come as a path, bytes, a Pillow image or an array. It can be copied and pickled.

    Threads may share one classifier: `predict`, `tune` and their kin give each thread what it would
    get alone. `fit_lambda` changes the classifier: call it before sharing.

    Args:
        model: A CLIP from `load_model`.
        classes: At least two class names; `_` counts as a blank.
        method: A name such as "mean-views", "d-tpt", "tpt+sals", "c-tpt@20", or a `Method`.
        template: Prompt with {} for the class name; its words are tuned. Several, on lines of their
            own, are an ensemble, for methods that do not tune them.
        views: How many views, the original included; or a whole recipe.
        seed: Of the random views.
        lambda_: λ of the method's regulariser instead of its default.
        protocol: Selects default λ and learning rate ("fine-grained", "natural-shifts" or
            "imagenet").
        augmix: Whether the random views go through AugMix; a method that has views of its own,
            such as "mta:published", decides for itself.
        context: (n, W) initial context instead of the template's words.
        settings: Optimiser and selection of confident views.
        descriptions: Sentences for each class, by its name, instead of a template.
        text_features: (C, D) unit vectors of the prompts, when they are known; else computed. A
            model without a text tower needs them, unless it has fixed ones, and takes methods that
            do not tune the prompt.
        calibration: What `dtpt calibrate` fitted for exactly this model, method and class list, or
            its file; predictions then have a calibrated confidence, a prediction set, and abstain.

    Raises:
        CalibrationError: The calibration is for another setup, or its file is damaged.
        PromptError: Fewer than two classes, or a prompt that cannot be made.
        MethodError: An unknown method, or an invalid number.

    Example:
        >>> import dtpt
        >>> dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], method="tpt", views=8)
        <Classifier tpt, 2 classes, 8 views, pocket (cpu)>
    """

    def __init__(
        self,
        model: Clip,
        classes: Iterable[str],
        *,
        method: str | Method | ResolvedMethod = DEFAULT_METHOD,
        template: str = DEFAULT_TEMPLATE,
        views: int | ViewRecipe = 64,
        seed: int = 0,
        lambda_: float | None = None,
        protocol: str = "fine-grained",
        augmix: bool = True,
        context: Tensor | None = None,
        settings: TuningSettings | None = None,
        text_features: Tensor | None = None,
        descriptions: Descriptions | None = None,
        calibration: Calibration | AnyPath | None = None,
    ) -> None:
        self.method = resolve_method(method, lambda_=lambda_, protocol=protocol)
        self.seed = _integer(seed, "seed")
        self.predictor = Predictor(
            model,
            classes,
            template=template,
            context=context,
            recipe=_view_recipe(views, augmix),
            settings=settings,
            text_features=text_features,
            descriptions=descriptions,
        )
        self.calibration = None if calibration is None else as_calibration(calibration)
        if len(self.classes) < 2:
            raise PromptError(f"Only one class ({self.classes[0]!r}): give at least two.")
        check_text_tower([self.method], model, template=self.predictor.template)
        if self.calibration is not None:
            self.calibration.check(self.setup)
        for text in same_prompt_notes(self.duplicates):
            warnings.warn(text, PromptWarning, stacklevel=2)

    @property
    def model(self) -> Clip:
        return self.predictor.model

    @property
    def classes(self) -> tuple[str, ...]:
        return self.predictor.classes

    @property
    def setup(self) -> Setup:
        """Everything that decides a probability: what a calibration must be for."""
        return self.predictor.setup(self.method, self.method.lambda_)

    @property
    def duplicates(self) -> tuple[tuple[str, ...], ...]:
        """Groups of class names with the same prompt: they share their probability."""
        return self.predictor.duplicates

    def __repr__(self) -> str:
        lambda_ = (
            "" if self.method.lambda_ is None else f", lambda {lambda_word(self.method.lambda_)}"
        )
        model = self.model.name or f"model {self.model.fingerprint[:12]}"
        return (
            f"<Classifier {self.method.name}{lambda_}, {len(self.classes)} classes, "
            f"{self.predictor.recipe.count} views, {model} ({self.model.device})>"
        )

    def save(self, folder: AnyPath, *, weights: bool = False) -> None:
        """Write the classifier to a folder, as JSON and safetensors; `load` reads it back.

        Args:
            folder: Made if it is missing.
            weights: Whether the model's weights are written too. Without them the model is loaded
                by its name again, and must be the same.

        Raises:
            MethodError: The method has functions of your own, which no file can hold.
            CheckpointError: The folder cannot be written, or the model is in half precision and
                its weights were asked for.

        Example:
            >>> import dtpt
            >>> made = dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], method="d-tpt@9")
            >>> made.save("pets")
            >>> dtpt.Classifier.load("pets")
            <Classifier d-tpt, lambda 9, 2 classes, 64 views, pocket (cpu)>
        """
        write_classifier(self, folder, weights=weights)

    @classmethod
    def load(cls, folder: AnyPath, model: Clip | None = None, *, device: str = "auto") -> Self:
        """Read a classifier that `save` wrote; nothing in the folder is run as code.

        Args:
            folder: The folder.
            model: Used instead of loading one; it must be the one that the classifier had.
            device: Where a model is loaded.

        Raises:
            CheckpointError: A file is missing or damaged, was written by a newer version, or the
                model is another one.
        """
        return cls(**read_classifier(folder, model, device=device))

    def predict(self, image: ImageSource, *, keep_views: bool = False) -> Prediction:
        """Classify one image: a path, encoded bytes, a Pillow image or a uint8 array.

        Args:
            image: The image.
            keep_views: Whether thumbnails of the views that are tuned on come with the prediction.

        Raises:
            ImageError: The image cannot be read; the message names it.
        """
        return self._predict(self._rendered(image), keep_views=keep_views)

    def predict_batch(
        self, images: Iterable[ImageSource], *, workers: Workers = 1, threads: int = 1
    ) -> Iterator[Prediction]:
        """Classify several images and yield the predictions in their order.

        An image that cannot be read ends the iteration with its error, after the predictions of
        all images before it; `predict_each` continues instead. Arguments as there.

        Raises:
            ImageError: At the first image that cannot be read; the message names it.

        Example:
            >>> import dtpt, numpy as np
            >>> made = dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], views=4)
            >>> images = [np.zeros((9, 9, 3), np.uint8), np.ones((9, 9, 3), np.uint8)]
            >>> len(list(made.predict_batch(images)))
            2
        """
        return _until_error(self.predict_each(images, workers=workers, threads=threads))

    def predict_each(
        self, images: Iterable[ImageSource], *, workers: Workers = 1, threads: int = 1
    ) -> Predictions:
        """Classify several images in their order; one that cannot be read yields its error.

        Predictions are those of `predict` in a process with as many torch threads, bit for bit.
        Images are taken as they are needed, a few ahead, so that there may be any number of them.

        Args:
            images: Paths, bytes, Pillow images or arrays.
            workers: Worker processes; 1 works in this one, "auto" fills the cores. On a CPU each
                has a copy of the classifier, and of the model's memory. Where the model is on an
                accelerator they make the views, and the rest happens here. Scripts need no
                `if __name__ == "__main__"`.
            threads: torch threads of each process.

        Raises:
            OptionError: `images` is one image, or a number is invalid.
            MethodError: With workers, a method with functions of the script itself.
            WorkerError: Worker processes cannot be started, or cannot go on.
        """
        _check_images(images)
        if _integer(threads, "threads") < 1:
            raise OptionError(f"threads must be at least 1, got {threads}.")
        count = _count_workers(workers, threads=threads)
        if count == 1:
            return (_attempt(self.predict, image) for image in images)
        if not is_shippable(self.method):
            raise MethodError(
                "The method has functions that no other process can import: put them into a "
                "module of their own, or use workers=1."
            )
        if self.model.device.type == "cpu":
            return _in_processes(self.predict, images, workers=count, threads=threads)
        return _in_processes(
            self._render, images, workers=count, threads=threads, then=self._predict
        )

    def stream(self) -> "Stream":
        """Start a stream of images, for a method that carries state from image to image.

        Example:
            >>> import dtpt, numpy as np
            >>> made = dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], method="tda")
            >>> stream = made.stream()
            >>> stream.predict(np.zeros((9, 9, 3), np.uint8)).method, stream.images
            ('tda', 1)
        """
        from dtpt.prediction.stream import Stream

        return Stream(self)

    def fit_lambda(self, images: Iterable[ImageSource]) -> float | None:
        """Select the λ of a method such as "d-tpt@auto=0.9" on images without labels.

        At most 32 images are used. Returns λ; None if the method has none to select.

        Example:
            >>> import dtpt, numpy as np
            >>> model = dtpt.load_model("pocket")
            >>> made = dtpt.Classifier(model, ["cat", "dog"], method="d-tpt@auto=0.9", views=4)
            >>> made.fit_lambda([np.zeros((9, 9, 3), np.uint8)]) == made.method.lambda_
            True
        """
        _check_images(images)
        features = (self.view_features(image) for image in islice(images, IMAGES_FOR_LAMBDA))
        (self.method,) = self.predictor.tuner.select_lambdas([self.method], features)
        return self.method.lambda_

    def view_features(self, image: ImageSource) -> Tensor:
        """Return features (N, D) of the image's views; row 0 is the original view.

        Only the original is rendered and encoded when the method uses no other, and as many as it
        needs when it stops early.
        """
        return self._features(self._rendered(image))

    def tune(self, view_features: Tensor) -> Prediction:
        """Tune on features (N, D) that the caller provides; row 0 is what is predicted."""
        (outcome,) = self.predictor.answer(view_features, [self.method])
        prediction = self.predictor.prediction(outcome)
        if self.calibration is None:
            return prediction
        calibrated = self.calibration.apply_one(outcome.logits, index=prediction.index)
        return replace(
            prediction,
            calibrated_confidence=calibrated.confidence,
            prediction_set=tuple(self.classes[k] for k in calibrated.prediction_set),
            abstained=calibrated.abstained,
        )

    @property
    def _render(self) -> Callable[[ImageSource], Rendered]:
        """The part of `predict` before the model, which processes without it can do."""
        recipe = self.predictor.recipe_for([self.method])
        return _Render(recipe, self.seed, self.model.preprocessing)

    def _rendered(self, image: ImageSource) -> Rendered:
        return self.predictor.render(open_image(image), methods=[self.method], seed=self.seed)

    def _features(self, rendered: Rendered) -> Tensor:
        return self.predictor.features(rendered, methods=[self.method], seed=self.seed)

    def _predict(self, rendered: Rendered, *, keep_views: bool = False) -> Prediction:
        features = self._features(rendered)
        return replace(
            self.tune(features),
            warning=self.predictor.ood_warning(rendered.image, features),
            kept=self._kept_views(rendered, features) if keep_views else None,
        )

    def _kept_views(self, rendered: Rendered, features: Tensor) -> KeptViews | None:
        """Return the views that are tuned on; None for methods that tune on none."""
        if not self.method.method.tunes_on_views:
            return None
        kept = self.predictor.confident_views(self.predictor.view_logits(features))
        columns = min(COLUMNS, len(kept))
        sheet = contact_sheet(rendered.pixels[kept], self.model.preprocessing, columns=columns)
        return KeptViews(tuple(kept), sheet)


@dataclass(frozen=True)
class _Render:
    recipe: ViewRecipe
    seed: int
    preprocessing: Preprocess

    def __call__(self, source: ImageSource) -> Rendered:
        image = open_image(source)
        setting = self.preprocessing
        pixels = make_views(image, recipe=self.recipe, seed=self.seed, preprocessing=setting)
        return Rendered(image, pixels)


def _attempt(function: Callable[[Any], Any], image: Any) -> Any:
    if isinstance(image, ImageError):
        return image
    try:
        return function(image)
    except ImageError as error:
        return error


@dataclass(frozen=True)
class _Factory:
    function: Callable[[ImageSource], Any]
    threads: int

    def __call__(self, announce: Announce) -> FunctionWorker:
        torch.set_num_threads(self.threads)
        return FunctionWorker(partial(_attempt, self.function), announce)


def _in_processes(
    function: Callable[[ImageSource], Any],
    images: Iterable[ImageSource],
    *,
    workers: int,
    threads: int,
    then: Callable[[Any], Prediction] | None = None,
) -> Predictions:
    """Call a function on every image in worker processes, and `then` here on its result.

    Yields the results in the order of the images.
    """
    environment = {"OMP_NUM_THREADS": str(threads)}
    executor = ProcessExecutor(_Factory(function, threads), workers, environment=environment)
    with closing(executor):
        tasks = (_sendable(image) for image in images)
        for event in in_order(executor, tasks, ahead=AHEAD * workers):
            result = ImageError(event.reason) if isinstance(event, Failed) else event.result
            yield result if then is None else _attempt(then, result)


def _sendable(image: ImageSource) -> ImageSource | ImageError:
    """Return what can be sent; Pillow images are decoded here, because they may hold open files."""
    if isinstance(image, str | bytes | np.ndarray):
        return image
    if isinstance(image, os.PathLike):
        return os.fspath(image)
    return _attempt(open_image, image)  # type: ignore[no-any-return]


def _until_error(predictions: Predictions) -> Iterator[Prediction]:
    with closing(predictions):  # processes end at the first error, not when they are collected
        for prediction in predictions:
            if isinstance(prediction, ImageError):
                raise prediction
            yield prediction


def _check_images(images: object) -> None:
    if isinstance(images, str | bytes | os.PathLike) or not isinstance(images, Iterable):
        raise OptionError(f"Expected several images, for example a list, got {short_repr(images)}.")


def _count_workers(workers: object, *, threads: int) -> int:
    if workers == "auto":
        return max(1, usable_cores() // threads) if CAN_START else 1
    if isinstance(workers, bool) or not isinstance(workers, int | np.integer):
        raise OptionError(f"workers must be a whole number or 'auto', got {short_repr(workers)}.")
    if not 1 <= workers <= MOST_WORKERS:
        raise OptionError(f"workers must lie between 1 and {MOST_WORKERS}, got {workers}.")
    return int(workers) if CAN_START else 1


def _view_recipe(views: object, augmix: bool) -> ViewRecipe:
    if not isinstance(augmix, bool):
        raise MethodError(f"augmix must be True or False, got {short_repr(augmix)}.")
    if isinstance(views, ViewRecipe):
        return views
    try:
        return ViewRecipe(count=_integer(views, "views"), augmix=augmix)
    except ValidationError as error:
        raise MethodError(f"views: {explain(error)}; the paper uses 64.") from None


def _integer(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise MethodError(f"{name} must be a whole number, got {short_repr(value)}.")
    return int(value)
