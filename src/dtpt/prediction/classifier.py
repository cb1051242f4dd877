"""The public classifier: a `Predictor` with one method, one seed and, optionally, a calibration."""

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import ValidationError
from torch import Tensor

from dtpt.calibration import Calibration, Setup, as_calibration
from dtpt.clip.model import Clip
from dtpt.clip.prompts import DEFAULT_TEMPLATE
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
from dtpt.prediction.prediction import KeptViews, Prediction
from dtpt.prediction.predictor import IMAGES_FOR_LAMBDA, Predictor, Rendered
from dtpt.prediction.rendering import render
from dtpt.prediction.saving import Parts, load_parts, save_parts
from dtpt.tuning import Outcome, TuningSettings
from dtpt.views import ViewRecipe, contact_sheet
from dtpt.views.make import COLUMNS

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
        method: A name such as "d-tpt", "tpt+sals", "c-tpt@20", "mean-views", or a `Method`.
        template: Prompt with {} for the class name; its words are tuned.
        views: How many views, the original included; or a whole recipe.
        seed: Of the random views.
        lambda_: λ of the method's regulariser instead of its default.
        protocol: Selects default λ and learning rate ("fine-grained" or "natural-shifts").
        augmix: Whether the random views go through AugMix.
        context: (n, W) initial context instead of the template's words.
        settings: Optimiser and selection of confident views.
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
        calibration: Calibration | AnyPath | None = None,
    ) -> None:
        if isinstance(classes, str | bytes) or not isinstance(classes, Iterable):
            raise PromptError(f"Classes must be a list of names, not {short_repr(classes)}.")
        self._assemble(
            Parts(
                model=model,
                classes=tuple(classes),
                template=template,
                method=resolve_method(method, lambda_=lambda_, protocol=protocol),
                recipe=_view_recipe(views, augmix),
                seed=_integer(seed, "seed"),
                settings=settings,
                context=context,
                calibration=None if calibration is None else as_calibration(calibration),
            )
        )

    def _assemble(self, parts: Parts) -> None:
        self.predictor = Predictor(
            parts.model,
            parts.classes,
            template=parts.template,
            context=parts.context,
            recipe=parts.recipe,
            settings=parts.settings,
            text_features=parts.text_features,
        )
        self.method = parts.method
        self.seed = parts.seed
        self.calibration = parts.calibration
        self._check_classes()
        if self.calibration is not None:
            self.calibration.check(self.setup)

    def _check_classes(self) -> None:
        names = self.predictor.prompts.names
        if len(names) < 2:
            raise PromptError(f"Only one class ({names[0]!r}): give at least two.")
        for group in self.duplicates:
            listing = ", ".join(repr(name) for name in group)
            warnings.warn(
                f"Classes with the same prompt share their probability: {listing}.",
                PromptWarning,
                stacklevel=4,
            )

    @property
    def model(self) -> Clip:
        return self.predictor.model

    @property
    def classes(self) -> tuple[str, ...]:
        return self.predictor.classes

    @property
    def recipe(self) -> ViewRecipe:
        return self.predictor.recipe

    @property
    def setup(self) -> Setup:
        """Everything that decides a probability: what a calibration must be for."""
        return self.predictor.setup(self.method, self.method.lambda_)

    @property
    def duplicates(self) -> tuple[tuple[str, ...], ...]:
        """Groups of class names with the same prompt: they share their probability."""
        return self.predictor.prompts.duplicates

    def __repr__(self) -> str:
        lambda_ = "" if self.method.lambda_ is None else f", lambda {self.method.lambda_:g}"
        model = self.model.name or f"model {self.model.fingerprint[:12]}"
        return (
            f"<Classifier {self.method.name}{lambda_}, {len(self.classes)} classes, "
            f"{self.recipe.count} views, {model} ({self.model.device})>"
        )

    def save(self, folder: AnyPath, *, weights: bool = False) -> None:
        """Write the classifier to a folder, as JSON and safetensors; `load` reads it back.

        Args:
            folder: Made if it is missing.
            weights: Whether the model's weights are written too. Without them the model is loaded
                by its name again, and must be the same.

        Raises:
            MethodError: The method has functions of your own, which no file can hold.
            CheckpointError: The folder cannot be written.

        Example:
            >>> import dtpt
            >>> made = dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], method="d-tpt@9")
            >>> made.save("pets")
            >>> dtpt.Classifier.load("pets")
            <Classifier d-tpt, lambda 9, 2 classes, 64 views, pocket (cpu)>
        """
        predictor = self.predictor
        parts = Parts(
            model=self.model,
            classes=self.classes,
            template=predictor.prompts.template,
            method=self.method,
            recipe=self.recipe,
            seed=self.seed,
            settings=predictor.tuner.settings,
            context=predictor.context,
            calibration=self.calibration,
            text_features=predictor.tuner.initial_text_features,
        )
        save_parts(parts, folder, weights=weights)

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
        loaded = cls.__new__(cls)
        loaded._assemble(load_parts(folder, model, device=device))
        return loaded

    def predict(self, image: ImageSource, *, keep_views: bool = False) -> Prediction:
        """Classify one image: a path, encoded bytes, a Pillow image or a uint8 array.

        Args:
            image: The image.
            keep_views: Whether thumbnails of the views that are tuned on come with the prediction.

        Raises:
            ImageError: The image cannot be read; the message names it.
        """
        return self._predict(self._render(open_image(image)), keep_views=keep_views)

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
            return _each(self.predict, images)
        if not is_shippable(self.method):
            raise MethodError(
                "The method has functions that no other process can import: put them into a "
                "module of their own, or use workers=1."
            )
        if self.model.device.type == "cpu":
            return _in_processes(self.predict, images, workers=count, threads=threads)
        rendered = _in_processes(self._renderer, images, workers=count, threads=threads)
        return self._finish(rendered)

    def _finish(self, rendered: "Generator[Any, None, None]") -> Predictions:
        with closing(rendered):
            for item in rendered:
                yield item if isinstance(item, ImageError) else self._predict(item)

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

        Only the original is rendered and encoded when the method uses no other.
        """
        return self.predictor.features(self._render(open_image(image)))

    def tune(self, view_features: Tensor) -> Prediction:
        """Tune on features (N, D) that the caller provides; row 0 is what is predicted."""
        (outcome,) = self.predictor.answer(view_features, [self.method])
        return self._calibrated(self.predictor.prediction(outcome), outcome)

    def _render(self, image: Image.Image) -> Rendered:
        return self.predictor.render(image, methods=[self.method], seed=self.seed)

    @property
    def _renderer(self) -> "Callable[[ImageSource], Rendered]":
        """The part of `predict` before the model, for processes without it."""
        return _Renderer(
            partial(
                render,
                recipe=self.predictor.recipe_for([self.method]),
                seed=self.seed,
                preprocessing=self.model.preprocessing,
            )
        )

    def _predict(self, rendered: Rendered, *, keep_views: bool = False) -> Prediction:
        features = self.predictor.features(rendered)
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

    def _calibrated(self, prediction: Prediction, outcome: Outcome) -> Prediction:
        if self.calibration is None:
            return prediction
        calibrated = self.calibration.apply_one(outcome.logits, index=prediction.index)
        return replace(
            prediction,
            calibrated_confidence=calibrated.confidence,
            prediction_set=tuple(self.classes[k] for k in calibrated.prediction_set),
            abstained=calibrated.abstained,
        )


@dataclass(frozen=True)
class _Renderer:
    render: Callable[[Image.Image], Any]

    def __call__(self, source: ImageSource) -> Rendered:
        image = open_image(source)
        return Rendered(image, self.render(image))


def _each(function: Callable[[ImageSource], Any], images: Iterable[Any]) -> Predictions:
    for image in images:
        yield _attempt(function, image)


def _attempt(function: Callable[[ImageSource], Any], image: Any) -> Any:
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
) -> Predictions:
    """Call a function on every image in worker processes; yield the results in order."""
    environment = {"OMP_NUM_THREADS": str(threads)}
    executor = ProcessExecutor(_Factory(function, threads), workers, environment=environment)
    with closing(executor):
        tasks = (_sendable(image) for image in images)
        for event in in_order(executor, tasks, ahead=AHEAD * workers):
            yield ImageError(event.reason) if isinstance(event, Failed) else event.result


def _sendable(image: ImageSource) -> ImageSource | ImageError:
    """Return what can be sent; Pillow images are decoded here, because they may hold open files."""
    if isinstance(image, str | bytes | np.ndarray):
        return image
    if isinstance(image, os.PathLike):
        return os.fspath(image)
    try:
        return open_image(image)
    except ImageError as error:
        return error


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
