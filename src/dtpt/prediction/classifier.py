"""Model, prompts, views and method put together: `Classifier`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Literal, Self

import torch
from torch import Tensor

from dtpt.calibration import Calibration, Setup, as_calibration
from dtpt.clip.model import Clip
from dtpt.clip.prompts import DEFAULT_TEMPLATE, PromptSet, context_digest
from dtpt.errors import ImageError, OptionError
from dtpt.files import AnyPath
from dtpt.images import ImageSource
from dtpt.methods import Method, ResolvedMethod, resolve_method
from dtpt.methods.tpt import select_confident
from dtpt.methods.zero_shot import class_logits
from dtpt.prediction.answers import Answer, KeptViews, Prediction
from dtpt.prediction.arguments import check_prompts, class_names, view_recipe, whole_number
from dtpt.prediction.batches import (
    Answers,
    answer_here,
    answer_in_processes,
    check_images,
    count_workers,
)
from dtpt.prediction.ood import unfamiliar
from dtpt.prediction.saving import Parts, load_parts, save_parts
from dtpt.prediction.seeing import Seen, ViewMaker
from dtpt.tuning import Outcome, Tuner, TuningSettings, views_needed
from dtpt.tuning.settings import checked_settings
from dtpt.views import ViewRecipe, contact_sheet
from dtpt.views.make import COLUMNS

PICTURES_FOR_A_WEIGHT = 32


class Classifier:
    """Zero-shot classification with test-time tuning, one image at a time.

    Stateless between calls: every image starts from the same initial context, so a prediction does
    not depend on what was predicted before, and the same pixels give the same answer whether they
    come as a path, bytes, a Pillow image or an array. It can be copied and pickled at any time.

    Threads may share one classifier: `predict`, `tune` and their kin give each thread the answers
    that it would get alone. `fit_weight` changes the classifier: call it before sharing.

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
        calibration: what `dtpt calibrate` fitted for exactly this model, method and class list, or
            its file; predictions then have a calibrated confidence, a prediction set, and abstain.

    Raises:
        CalibrationError: the calibration is for another setup, or its file is damaged.
        PromptError: fewer than two classes, or a prompt that cannot be made.
        MethodError: an unknown method, or a number that makes no sense.

    Example:
        >>> import dtpt
        >>> dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], method="tpt", views=8)
        <Classifier tpt, of 2 classes with 8 views, on pocket (cpu)>
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
        self._assemble(
            Parts(
                model=model,
                classes=class_names(classes),
                template=template,
                method=resolve_method(method, lambda_=lambda_, protocol=protocol),
                recipe=view_recipe(views, augmix),
                seed=whole_number(seed, "seed"),
                settings=checked_settings(settings),
                context=context,
                calibration=None if calibration is None else as_calibration(calibration),
            )
        )

    def _assemble(self, parts: Parts) -> None:
        self.model = parts.model
        self.method = parts.method
        self.recipe = parts.recipe
        self.seed = parts.seed
        self.classes = parts.classes
        prompts = PromptSet.build(
            parts.model, parts.classes, template=parts.template, context=parts.context
        )
        check_prompts(prompts)
        self.tuner = Tuner(
            parts.model, prompts, settings=parts.settings, text_features=parts.text_features
        )
        self._context = None if parts.context is None else context_digest(parts.context)
        self.calibration = parts.calibration
        if self.calibration is not None:
            self.calibration.check(self.setup)

    @property
    def setup(self) -> Setup:
        """Everything that decides a probability: what a calibration must be for."""
        return Setup(
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

    def save(self, folder: AnyPath, *, weights: bool = False) -> None:
        """Write the classifier to a folder, as JSON and safetensors; `load` reads it back.

        Args:
            folder: made if it is missing.
            weights: whether the model's weights are written too. Without them the model is loaded
                by its name again, and must be the same.

        Raises:
            MethodError: the method has functions of your own, which no file can hold.
            CheckpointError: the folder cannot be written.

        Example:
            >>> import dtpt
            >>> made = dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], method="d-tpt@9")
            >>> made.save("pets")
            >>> dtpt.Classifier.load("pets")
            <Classifier d-tpt, lambda 9, of 2 classes with 64 views, on pocket (cpu)>
        """
        prompts = self.tuner.prompts
        parts = Parts(
            model=self.model,
            classes=self.classes,
            template=prompts.template,
            method=self.method,
            recipe=self.recipe,
            seed=self.seed,
            settings=self.tuner.settings,
            context=None if self._context is None else prompts.context,
            calibration=self.calibration,
            text_features=self.tuner.initial_text_features,
        )
        save_parts(parts, folder, weights=weights)

    @classmethod
    def load(cls, folder: AnyPath, model: Clip | None = None, *, device: str = "auto") -> Self:
        """Read a classifier that `save` wrote; nothing in the folder is run as code.

        Args:
            folder: the folder.
            model: used instead of loading one; it must be the one that the classifier had.
            device: where a model is loaded.

        Raises:
            CheckpointError: a file is missing or damaged, was written by a newer version, or the
                model is another one.
        """
        made = cls.__new__(cls)
        made._assemble(load_parts(folder, model, device=device))
        return made

    def __repr__(self) -> str:
        weight = "" if self.method.lambda_ is None else f", lambda {self.method.lambda_:g}"
        model = self.model.name or f"a model {self.model.fingerprint[:12]}"
        return (
            f"<Classifier {self.method.name}{weight}, of {len(self.classes)} classes with "
            f"{self.recipe.count} views, on {model} ({self.model.device})>"
        )

    @property
    def duplicates(self) -> tuple[tuple[str, ...], ...]:
        """Groups of class names with the same prompt: they share their probability."""
        return self.tuner.prompts.duplicates

    def predict(self, image: ImageSource, *, keep_views: bool = False) -> Prediction:
        """Classify one image: a path, encoded bytes, a Pillow image or a uint8 array.

        Args:
            image: the image.
            keep_views: whether thumbnails of the views that are tuned on come with the answer.

        Raises:
            ImageError: the image cannot be read; the message names it.
        """
        return self._answer(self._view_maker(image), keep_views=keep_views)

    def predict_batch(
        self, images: Iterable[ImageSource], *, workers: int | Literal["auto"] = 1, threads: int = 1
    ) -> Iterator[Prediction]:
        """Classify several images and yield the predictions in their order.

        An image that cannot be read ends the iteration with its error, after the predictions of
        all images before it; `predict_each` goes on instead. Arguments as there.

        Raises:
            ImageError: at the first image that cannot be read; the message names it.

        Example:
            >>> import dtpt, numpy as np
            >>> made = dtpt.Classifier(dtpt.load_model("pocket"), ["cat", "dog"], views=4)
            >>> pictures = [np.zeros((9, 9, 3), np.uint8), np.ones((9, 9, 3), np.uint8)]
            >>> len(list(made.predict_batch(pictures)))
            2
        """
        return _without_errors(self.predict_each(images, workers=workers, threads=threads))

    def predict_each(
        self, images: Iterable[ImageSource], *, workers: int | Literal["auto"] = 1, threads: int = 1
    ) -> Answers[Prediction]:
        """Classify several images in their order; one that cannot be read yields its error.

        Predictions are those of `predict` in a process with as many torch threads, bit for bit.
        Images are taken as they are needed, a few ahead, so that there may be any number of them.

        Args:
            images: paths, bytes, Pillow images or arrays.
            workers: processes that work beside this one; 1 works in this one, "auto" fills the
                cores. On a CPU each has a copy of the classifier, and of the model's memory. Where
                the model is on an accelerator they make the views, and the rest happens here.
                Scripts need no `if __name__ == "__main__"`.
            threads: torch threads of each process.

        Raises:
            OptionError: `images` is one picture, or a number makes no sense.
            MethodError: with workers, a method with functions of the script itself.
            WorkerError: a process ended, for example because memory ran out.
        """
        check_images(images)
        if whole_number(threads, "threads") < 1:
            raise OptionError(f"threads must be at least 1, got {threads}.")
        count = count_workers(workers, threads=threads)
        if count == 1:
            return answer_here(self.predict, images)
        if self.model.device.type == "cpu":
            return answer_in_processes(self.predict, images, workers=count, threads=threads)
        seen = answer_in_processes(self._view_maker, images, workers=count, threads=threads)
        return self._answers(seen)

    def _answers(self, views: Answers[Seen]) -> Answers[Prediction]:
        with closing(views):
            for seen in views:
                yield seen if isinstance(seen, ImageError) else self._answer(seen)

    def fit_weight(self, images: Iterable[ImageSource]) -> float | None:
        """Find the lambda of a method such as "d-tpt@auto=0.9" from pictures without labels.

        At most 32 pictures are looked at. Returns the weight; None if the method has none to find.

        Example:
            >>> import dtpt, numpy as np
            >>> model = dtpt.load_model("pocket")
            >>> made = dtpt.Classifier(model, ["cat", "dog"], method="d-tpt@auto=0.9", views=4)
            >>> made.fit_weight([np.zeros((9, 9, 3), np.uint8)]) == made.method.lambda_
            True
        """
        check_images(images)
        seen = (self.view_features(image) for image in islice(images, PICTURES_FOR_A_WEIGHT))
        (self.method,) = self.tuner.select_lambdas([self.method], seen)
        return self.method.lambda_

    def view_features(self, image: ImageSource) -> Tensor:
        """Return features (N, D) of the image's views; row 0 is the original view.

        Only the original is made and encoded when the method looks at no other.
        """
        return self._features(self._view_maker(image))

    def tune(self, view_features: Tensor) -> Prediction:
        """Tune on features (N, D) that the caller brings; row 0 is what is predicted."""
        (outcome,) = self.tuner.predict(view_features, [self.method])
        return self._calibrated(self._prediction(outcome), outcome)

    @property
    def _view_maker(self) -> ViewMaker:
        count = views_needed([self.method], self.recipe.count)
        recipe = self.recipe.model_copy(update={"count": count})
        return ViewMaker(recipe, self.seed, self.model.preprocessing)

    def _features(self, seen: Seen) -> Tensor:
        return self.model.encode_views(torch.from_numpy(seen.pixels))

    def _answer(self, seen: Seen, *, keep_views: bool = False) -> Prediction:
        features = self._features(seen)
        return replace(
            self.tune(features),
            remark=unfamiliar(self.model, features[0], image=seen.picture),
            kept=self._kept(seen, features) if keep_views else None,
        )

    def _kept(self, seen: Seen, features: Tensor) -> KeptViews | None:
        """Return the views that are tuned on; None for methods that tune on none."""
        if not self.method.method.tunes_on_views:
            return None
        text, scale = self.tuner.initial_text_features, self.tuner.logit_scale
        logits = class_logits(features, text, logit_scale=scale)  # (N, C)
        kept = select_confident(logits, self.tuner.settings.rho).tolist()
        columns = min(COLUMNS, len(kept))
        sheet = contact_sheet(seen.pixels[kept], self.model.preprocessing, columns=columns)
        return KeptViews(tuple(kept), sheet)

    def _prediction(self, outcome: Outcome) -> Prediction:
        answer = Answer.read(outcome.probabilities, self.classes)
        zero_shot = torch.softmax(outcome.zero_shot_logits, dim=-1)
        return Prediction(
            **vars(answer),
            method=outcome.method.name,
            lambda_=outcome.lambda_,
            zero_shot=Answer.read(zero_shot, self.classes),
        )

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


def _without_errors(answers: Answers[Prediction]) -> Iterator[Prediction]:
    with closing(answers):  # processes end at the first error, not when somebody collects them
        for answer in answers:
            if isinstance(answer, ImageError):
                raise answer
            yield answer
