"""From a picture and settings to answers, with everything kept that the next question needs.

The image side (views and their features) depends on the picture and on how views are made; the text
side (class prompts) on the class list. Each is kept for itself, so that another weight, another
method or one view less costs one tuning step and no pass through the image tower.
"""

import hashlib
import mmap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dtpt.calibration import Calibration, Setup
from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.images import open_image, pixel_digest
from dtpt.methods import ResolvedMethod, method_title, resolve_method
from dtpt.methods.tpt import select_confident
from dtpt.methods.zero_shot import class_logits
from dtpt.prediction import Answer
from dtpt.prediction.ood import unfamiliar
from dtpt.tuning import Episode, Outcome, Tuner, TuningSettings, views_needed
from dtpt.views import ViewRecipe, contact_sheet, make_views
from dtpt.web.cache import BoundedCache, own_pages
from dtpt.web.commands import commands
from dtpt.web.evidence import EvidenceSource, calibrated
from dtpt.web.limits import Limits, check_picture, check_settings
from dtpt.web.refusals import Refusal
from dtpt.web.schemas import (
    Calibrated,
    Choice,
    Evidence,
    MethodAnswer,
    Picture,
    PredictAnswer,
    PredictSettings,
    View,
)
from dtpt.web.words import moved_words
from dtpt.web.worker import Job


@dataclass(frozen=True)
class Seen:
    """What is kept of a picture: no pixels but the thumbnails.

    Attributes:
        picture_id: hash of its pixels.
        size: width and height.
        remark: what is odd about it.
        values: of the features; see `features`.
        shape: of the features, (N, D).
        sheet: thumbnails of the views as a JPEG; None if nobody asked.
    """

    picture_id: str
    size: tuple[int, int]
    remark: str | None
    values: mmap.mmap
    shape: tuple[int, ...]
    sheet: mmap.mmap | None

    @property
    def features(self) -> Tensor:
        """(N, D) of the views, on the CPU; the model's features as they were."""
        values = np.frombuffer(self.values, np.float32)
        return torch.from_numpy(values.reshape(self.shape))

    @property
    def memory(self) -> int:
        """Bytes that it takes: two rounded to pages, and something for the record."""
        return len(self.values) + len(self.sheet or b"") + 3 * mmap.PAGESIZE


class _Known(TypedDict):
    """The parts of an answer that tell how far it can be trusted."""

    evidence: list[Evidence] | None
    calibrated: Calibrated | None


@dataclass(frozen=True)
class _Question:
    """Settings, resolved."""

    settings: PredictSettings
    methods: tuple[ResolvedMethod, ...]
    recipe: ViewRecipe
    tuning: TuningSettings

    def key(self, picture_id: str) -> str:
        """Name what is seen of a picture: another recipe or seed sees something else."""
        text = f"{picture_id} {self.recipe.fingerprint} {self.settings.seed}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def wants(self, part: str) -> bool:
        """Tell whether a part of the answer is asked for."""
        return part in self.settings.show


class Playground:
    """One model with what it has seen lately. Its answers equal those of `dtpt.Classifier`.

    Args:
        model: a CLIP.
        name: as given to `load_model`.
        limits: of requests and of memory.
        evidence: what is known about answers of some confidence.
        calibrations: applied to predictions of their setup.
    """

    def __init__(
        self,
        model: Clip,
        *,
        name: str,
        limits: Limits,
        evidence: Sequence[EvidenceSource] = (),
        calibrations: Sequence[Calibration] = (),
    ) -> None:
        self.model = model
        self.name = name
        self.limits = limits
        self.evidence = tuple(evidence)
        self.calibrations = tuple(calibrations)
        self.seen: BoundedCache[str, Seen] = BoundedCache(most=limits.cache_bytes)
        self._tuners: BoundedCache[str, Tuner] = BoundedCache(most=limits.class_lists)

    def predict(
        self, picture: bytes | None, settings: PredictSettings, *, job: Job
    ) -> PredictAnswer:
        """Answer one question; runs in the worker's thread.

        Args:
            picture: an encoded picture; None for one that `settings.picture_id` names.
            settings: what is asked.
            job: hears of progress and may end the work.

        Raises:
            Refusal: too much was asked, the picture is not known any more, or the time is over.
            DtptError: the picture, the classes or a method make no sense.
        """
        started = time.monotonic()
        check_settings(settings, self.limits)
        question = _resolve(settings)
        tuner = self._tuner(question)
        seen, cached = self._see(picture, question, job=job)
        views = seen.features.to(tuner.initial_text_features)
        features = _without(views, settings.dropped)
        episode = Episode(tuner, features)
        answers = []
        for done, (written, method) in enumerate(
            zip(settings.methods, question.methods, strict=True), start=1
        ):
            outcome = episode.answer(method)
            answers.append(self._answer(question, written, outcome=outcome, tuner=tuner, seen=seen))
            job.progress("methods")(done, len(question.methods))
        zero_shot = class_logits(
            features[0], tuner.initial_text_features, logit_scale=tuner.logit_scale
        )
        return PredictAnswer(
            picture=_describe(seen, question),
            model=self.name,
            fingerprint=self.model.fingerprint,
            classes=settings.classes,
            duplicates=[list(group) for group in tuner.prompts.duplicates],
            zero_shot=_choice(Answer.read(torch.softmax(zero_shot, dim=-1), settings.classes)),
            answers=answers,
            views=_views(views, question, tuner=tuner) if question.wants("views") else None,
            commands=commands(settings, model=self.name) if question.wants("commands") else None,
            cached=cached,
            seconds=time.monotonic() - started,
        )

    def sheet(self, key: str) -> bytes | None:
        """Return thumbnails by the key that an answer named; None if they are gone."""
        seen = self.seen.get(key)
        return None if seen is None or seen.sheet is None else bytes(seen.sheet)

    def _tuner(self, question: _Question) -> Tuner:
        settings = question.settings
        text = repr((settings.classes, settings.template, question.tuning))
        key = hashlib.sha256(text.encode()).hexdigest()
        tuner = self._tuners.get(key)
        if tuner is None:
            prompts = PromptSet.build(self.model, settings.classes, template=settings.template)
            tuner = Tuner(
                self.model,
                prompts,
                settings=question.tuning,
                budget_bytes=self.limits.graph_bytes,
            )
            self._tuners.put(key, tuner, size=1)
        return tuner

    def _see(self, picture: bytes | None, question: _Question, *, job: Job) -> tuple[Seen, bool]:
        """Return what the model sees of a picture, and whether it was in memory."""
        if picture is None:
            known = self.seen.get(question.key(question.settings.picture_id or ""))
            if known is None:
                raise Refusal("picture_unknown", "This picture is not in the server's memory.")
            return known, True
        check_picture(picture, self.limits)
        image = open_image(picture, name="The picture", max_pixels=self.limits.pixels)
        picture_id = pixel_digest(image)
        key = question.key(picture_id)
        known = self.seen.get(key)
        if known is not None and (known.sheet is not None or not question.wants("views")):
            return known, True
        seen = self._look(image, picture_id, question=question, job=job)
        self.seen.put(key, seen, size=seen.memory)
        return seen, False

    def _look(self, image: Image.Image, picture_id: str, *, question: _Question, job: Job) -> Seen:
        job.check()
        pixels = make_views(
            image,
            recipe=question.recipe,
            seed=question.settings.seed,
            image_id=picture_id,
            preprocessing=self.model.preprocessing,
            progress=job.progress("views"),
        )
        features = self.model.encode_views(
            torch.from_numpy(pixels), progress=job.progress("features")
        )
        sheet = None
        if question.wants("views"):
            sheet = own_pages(contact_sheet(pixels, self.model.preprocessing))
        remark = unfamiliar(self.model, features[0], image=image)
        values = own_pages(features.float().cpu().numpy().tobytes())
        return Seen(picture_id, image.size, remark, values, tuple(features.shape), sheet)

    def _answer(
        self, question: _Question, written: str, *, outcome: Outcome, tuner: Tuner, seen: Seen
    ) -> MethodAnswer:
        method, prompts = outcome.method, tuner.prompts
        answer = Answer.read(outcome.probabilities, question.settings.classes)
        tuned = method.method.parameter == "context" and question.wants("words")
        return MethodAnswer(
            **_choice(answer).model_dump(),
            method=written,
            title=method_title(method.name, outcome.lambda_),
            lambda_=outcome.lambda_,
            words=moved_words(self.model, prompts, context=outcome.context) if tuned else None,
            **self._known(question, outcome, prompts=prompts, seen=seen),
        )

    def _known(
        self, question: _Question, outcome: Outcome, *, prompts: PromptSet, seen: Seen
    ) -> _Known:
        """Ask the sources; they know nothing of other views or of pictures of another kind."""
        settings = question.settings
        if not question.wants("evidence"):
            return {"evidence": None, "calibrated": None}
        if settings.dropped or seen.remark:
            return {"evidence": [], "calibrated": None}
        setup = self._setup(question, outcome, prompts=prompts)
        confidence = float(outcome.probabilities.max())
        said = [one for source in self.evidence for one in source.about(setup, confidence)]
        made = calibrated(self.calibrations, setup, outcome=outcome, classes=settings.classes)
        return {"evidence": said, "calibrated": made}

    def _setup(self, question: _Question, outcome: Outcome, *, prompts: PromptSet) -> Setup:
        """Return the setup, as a `Classifier` of the same settings would."""
        recipe = question.recipe.model_copy(update={"count": question.settings.views})
        return Setup(
            model=self.name,
            fingerprint=self.model.fingerprint,
            precision=self.model.precision,
            method=outcome.method.name,
            lambda_=outcome.lambda_,
            learning_rate=outcome.method.learning_rate,
            template=prompts.template,
            context=None,
            classes=prompts.names,
            views=recipe.model_dump(mode="json"),
            tuning=question.tuning.model_dump(mode="json"),
        )


def _resolve(settings: PredictSettings) -> _Question:
    methods = tuple(resolve_method(name) for name in settings.methods)
    needed = views_needed(methods, settings.views)
    count = settings.views if "views" in settings.show else needed
    recipe = ViewRecipe(count=count, augmix=settings.augmix)
    return _Question(settings, methods, recipe, TuningSettings(steps=settings.steps))


def _without(features: Tensor, dropped: Sequence[int]) -> Tensor:
    """Leave out views; methods that look at the original alone have nothing to leave out."""
    gone = set(dropped)
    return features[[view for view in range(len(features)) if view not in gone]]


def _choice(answer: Answer) -> Choice:
    return Choice(
        label=answer.label,
        index=answer.index,
        confidence=answer.confidence,
        entropy=answer.entropy,
        probabilities=answer.probabilities.tolist(),
    )


def _describe(seen: Seen, question: _Question) -> Picture:
    address = None if seen.sheet is None else f"/v1/thumbnails/{question.key(seen.picture_id)}"
    width, height = seen.size
    return Picture(
        id=seen.picture_id, width=width, height=height, remark=seen.remark, thumbnails=address
    )


def _views(features: Tensor, question: _Question, *, tuner: Tuner) -> list[View]:
    """Say what the untuned model makes of each view (N, D), and which ones methods tune on."""
    classes, dropped = question.settings.classes, set(question.settings.dropped)
    text, scale = tuner.initial_text_features, tuner.logit_scale
    logits = class_logits(features, text, logit_scale=scale)  # (N, C)
    staying = [view for view in range(len(logits)) if view not in dropped]
    kept = {staying[place] for place in select_confident(logits[staying], tuner.settings.rho)}
    found = []
    for view, probabilities in enumerate(torch.softmax(logits, dim=-1)):
        answer = Answer.read(probabilities, classes)
        found.append(
            View(
                index=view,
                label=answer.label,
                confidence=answer.confidence,
                entropy=answer.entropy,
                kept=view in kept,
                dropped=view in dropped,
            )
        )
    return found
