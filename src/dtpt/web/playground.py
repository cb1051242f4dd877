"""From an image and settings to predictions: a `Predictor`, and what is kept between requests.

Features of views depend on the image and the view recipe, text features on the class list. Each is
kept by itself, so that another λ, another method or one view less costs one tuning step and no pass
through the image encoder.
"""

import hashlib
import mmap
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dtpt.calibration import CalibratedPrediction, Calibration, Setup
from dtpt.clip.ensembles import is_ensemble
from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.commands import predict_lines
from dtpt.errors import OptionError
from dtpt.images import open_image, pixel_digest
from dtpt.methods import ResolvedMethod, method_title, recipe_groups, resolve_method
from dtpt.prediction.prediction import Prediction
from dtpt.prediction.predictor import Predictor, may_stop_early
from dtpt.tuning import Outcome, TuningSettings
from dtpt.views import ViewRecipe, contact_sheet
from dtpt.web import schemas
from dtpt.web.deadline import CheckedOperations
from dtpt.web.evidence import CellEvidence, RecordedEvidence, calibrated
from dtpt.web.guard import Refusal, check_image
from dtpt.web.monitoring import Monitor
from dtpt.web.options import Limits
from dtpt.web.queue import Job
from dtpt.web.schemas import ImageInfo, PredictResponse, PredictSettings, Word

IMAGE_NAME = "image.png"  # in command lines; the server does not know the file's name
CLASS_LISTS = 4  # that are kept
GRAPH_BYTES = 200_000_000  # of memory for each of them
NEAREST_WORDS = 3


class ImageCache:
    """Encoded images with a total size of at most `most` bytes, for several threads."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self._entries: OrderedDict[str, EncodedImage] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> "EncodedImage | None":
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: str, image: "EncodedImage") -> None:
        if image.size > self.most:  # it would displace everything else
            return
        with self._lock:
            replaced = self._entries.pop(key, None)
            self._entries[key] = image
            self.size += image.size - (replaced.size if replaced else 0)
            while self.size > self.most:
                self.size -= self._entries.popitem(last=False)[1].size


def _own_pages(data: bytes) -> mmap.mmap:
    """Copy bytes into memory pages of their own, which return to the system when freed.

    Small values that stay between large ones that come and go keep the allocator from returning
    memory: the process would grow to many times the size of the cache.
    """
    pages = mmap.mmap(-1, max(1, len(data)))
    pages[: len(data)] = data
    return pages


@dataclass(frozen=True)
class EncodedImage:
    """What is kept of an image: features and thumbnails of its views, not the image."""

    info: ImageInfo
    values: mmap.mmap  # of the features, float32
    shape: tuple[int, ...]  # (N, D)
    sheet: mmap.mmap | None  # thumbnails of the views, a JPEG

    @property
    def size(self) -> int:
        """Bytes in memory; pages are rounded up."""
        return len(self.values) + len(self.sheet or b"") + 3 * mmap.PAGESIZE

    @property
    def features(self) -> Tensor:
        """(N, D) of the views, on the CPU."""
        return torch.from_numpy(np.frombuffer(self.values, np.float32).reshape(self.shape))


@dataclass(frozen=True)
class _Query:
    """Settings with what they resolve to, for methods that share views."""

    settings: PredictSettings
    methods: dict[int, ResolvedMethod]  # by their index in the settings
    predictor: Predictor
    is_shown: bool  # whether these are the views that a page shows

    @property
    def rendered_for(self) -> tuple[ResolvedMethod, ...] | None:
        """The methods that decide which views are rendered; None for all views."""
        is_shown = self.is_shown and "views" in self.settings.show
        return None if is_shown else tuple(self.methods.values())

    @property
    def may_stop_early(self) -> bool:
        return may_stop_early(self.rendered_for)

    def key(self, image_id: str, *, early: bool = False) -> str:
        """Return the cache key of an image's features: views depend on recipe and seed.

        Where encoding stops `early` depends on methods and classes, too.
        """
        recipe = self.predictor.recipe_for(self.rendered_for)
        text = f"{image_id} {recipe.fingerprint} {self.settings.seed}"
        if early:
            text += repr((self.settings.classes, self.settings.template, self.settings.methods))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class Playground:
    """One model, with the class lists and images that were used last.

    Predictions are those of `dtpt.Classifier` with the same settings: both use `Predictor`.
    """

    def __init__(
        self,
        model: Clip,
        *,
        name: str,
        limits: Limits,
        evidence: Sequence[CellEvidence | RecordedEvidence] = (),
        calibrations: Sequence[Calibration] = (),
    ) -> None:
        self.model = model
        self.name = name
        self.limits = limits
        self.evidence = tuple(evidence)
        self.calibrations = tuple(calibrations)
        self.monitor = Monitor()
        self.images = ImageCache(limits.cache_mb * 1_000_000)
        self._cached_predictor = lru_cache(CLASS_LISTS)(self._make_predictor)

    def predict(
        self, image: bytes | None, settings: PredictSettings, *, job: Job
    ) -> PredictResponse:
        """Predict one encoded image (None: the one that `settings.image_id` names).

        Runs in the worker's thread; the job receives the progress, and ends the work by raising.
        """
        with CheckedOperations(job.check):
            return self._predict(image, settings, job=job)

    def _predict(
        self, image: bytes | None, settings: PredictSettings, *, job: Job
    ) -> PredictResponse:
        started = time.monotonic()
        query, *others = self._queries(settings)
        encoded, is_cached = self._encoded(image, query, job=job)
        outcomes = _answer(query, encoded.features, job=job)
        for other in others:
            more, was_cached = self._encoded(image, other, job=job)
            outcomes |= _answer(other, more.features, job=job)
            is_cached = is_cached and was_cached
        self.monitor.add_image(has_warning=encoded.info.warning is not None)
        predictor = query.predictor
        zero_shot = predictor.prediction(outcomes[0]).zero_shot
        views = _views(query, encoded.features) if "views" in settings.show else None
        commands = None
        if "commands" in settings.show:
            commands = predict_lines(
                IMAGE_NAME,
                settings.classes,
                model=self.name,
                methods=settings.methods,
                settings=settings,
                dropped=settings.dropped,
            )
        return PredictResponse(
            image=encoded.info,
            model=self.name,
            fingerprint=self.model.fingerprint,
            classes=list(settings.classes),
            duplicates=[list(group) for group in predictor.duplicates],
            zero_shot=_record(zero_shot, "zero-shot"),
            predictions=[
                self._prediction(name, outcomes[index], query=query, info=encoded.info)
                for index, name in enumerate(settings.methods)
            ],
            views=views,
            commands=commands,
            cached=is_cached,
            seconds=time.monotonic() - started,
        )

    def _queries(self, settings: PredictSettings) -> list[_Query]:
        """Return one query for each kind of views, those of the settings first."""
        classes, template = settings.classes, settings.template
        if is_ensemble(template):
            raise OptionError("The playground takes one template.")
        predictor = self._cached_predictor(classes, template, settings=settings.tuning)
        methods = [resolve_method(name) for name in settings.methods]
        recipe = ViewRecipe(count=settings.views, augmix=settings.augmix)
        groups = recipe_groups(methods, recipe).items()
        return [
            _Query(settings, {k: methods[k] for k in members}, predictor.with_recipe(own), i == 0)
            for i, (own, members) in enumerate(groups)
        ]

    def _make_predictor(
        self, classes: tuple[str, ...], template: str, *, settings: TuningSettings
    ) -> Predictor:
        return Predictor(
            self.model, classes, template=template, settings=settings, budget_bytes=GRAPH_BYTES
        )

    def _encoded(
        self, image: bytes | None, query: _Query, *, job: Job
    ) -> tuple[EncodedImage, bool]:
        """Return an encoded image, and whether it was in memory."""
        if image is None:
            known = self._known(query.settings.image_id or "", query)
            if known is None:
                raise Refusal("image_unknown", "This image is not in the server's memory.")
            return known, True
        check_image(image, self.limits)
        decoded = open_image(image, name="The image", max_pixels=self.limits.max_pixels)
        job.check()
        image_id = pixel_digest(decoded)
        known = self._known(image_id, query)
        if known is not None and (known.sheet is not None or query.rendered_for is not None):
            return known, True
        encoded = self._encode(decoded, image_id, query=query, job=job)
        self.images.put(query.key(image_id, early=query.may_stop_early), encoded)
        return encoded, False

    def _known(self, image_id: str, query: _Query) -> EncodedImage | None:
        """Return an image that is in memory with all its views, or with as many as are needed."""
        known = self.images.get(query.key(image_id))
        if known is None and query.may_stop_early:
            known = self.images.get(query.key(image_id, early=True))
        return known

    def _encode(
        self, image: Image.Image, image_id: str, *, query: _Query, job: Job
    ) -> EncodedImage:
        job.check()
        predictor, sheet, address = query.predictor, None, None
        rendered = predictor.render(
            image,
            methods=query.rendered_for,
            seed=query.settings.seed,
            progress=job.progress("views"),
        )
        features = predictor.features(
            rendered,
            methods=query.rendered_for,
            seed=query.settings.seed,
            progress=job.progress("features"),
        )
        if query.rendered_for is None:
            sheet = _own_pages(contact_sheet(rendered.pixels, self.model.preprocessing))
            address = f"/v1/thumbnails/{query.key(image_id)}"
        info = ImageInfo(
            id=image_id,
            width=image.width,
            height=image.height,
            warning=predictor.ood_warning(image, features),
            thumbnails=address,
        )
        values = _own_pages(features.float().cpu().numpy().tobytes())
        return EncodedImage(info, values, tuple(features.shape), sheet)

    def _prediction(
        self, name: str, outcome: Outcome, *, query: _Query, info: ImageInfo
    ) -> schemas.MethodPrediction:
        settings, predictor = query.settings, query.predictor
        prediction = predictor.prediction(outcome)
        setup = predictor.setup(outcome.method, outcome.lambda_, model=self.name)
        # chosen views are covered neither by runs nor by calibrations
        found = None if settings.dropped else self._calibrated(setup, outcome)
        self.monitor.add(outcome.method.method.name, prediction.confidence)
        words = evidence = calibration = None
        if "words" in settings.show and outcome.method.method.parameter == "context":
            words = moved_words(self.model, predictor.prompts, context=outcome.context)
        if "evidence" in settings.show:
            evidence = []
            # and neither are out-of-distribution images
            if not settings.dropped and info.warning is None:
                cells = [cell for cell in self.evidence if cell.applies_to(setup)]
                evidence = [cell.near(prediction.confidence) for cell in cells]
                calibration = found and calibrated(*found, classes=predictor.classes)
        parts = {"words": words, "evidence": evidence, "calibrated": calibration}
        return _record(prediction, name).model_copy(update=parts)

    def _calibrated(
        self, setup: Setup, outcome: Outcome
    ) -> tuple[Calibration, CalibratedPrediction] | None:
        """Apply the first calibration that is for this setup; None if none is."""
        for calibration in self.calibrations:
            if not calibration.setup.differences(setup):
                index = int(outcome.probabilities.argmax())
                applied = calibration.apply_one(outcome.logits, index=index)
                self.monitor.add_calibrated(calibration, applied)
                return calibration, applied
        return None


def _record(prediction: Prediction, name: str) -> schemas.MethodPrediction:
    return schemas.MethodPrediction(
        method=name,
        title=method_title(prediction.method, prediction.lambda_),
        lambda_=prediction.lambda_,
        label=prediction.label,
        index=prediction.index,
        confidence=prediction.confidence,
        entropy=prediction.entropy,
        probabilities=prediction.probabilities.tolist(),
    )


def _kept(query: _Query, features: Tensor) -> list[int]:
    return [view for view in range(len(features)) if view not in query.settings.dropped]


def _answer(query: _Query, features: Tensor, *, job: Job) -> dict[int, Outcome]:
    """Run the methods of a query on the (N, D) views that are kept."""
    kept, methods = features[_kept(query, features)], list(query.methods.values())
    outcomes = query.predictor.answer(kept, methods, progress=job.progress("methods"))
    return dict(zip(query.methods, outcomes, strict=True))


def _views(query: _Query, features: Tensor) -> list[schemas.View]:
    """Return the zero-shot prediction of every view (N, D), and which ones are tuned on."""
    predictor, kept = query.predictor, _kept(query, features)
    logits = predictor.view_logits(features)  # (N, C)
    confident = {kept[k] for k in predictor.confident_views(logits[kept])}
    views = []
    for index, probabilities in enumerate(torch.softmax(logits, dim=-1)):
        prediction = Prediction.read(probabilities, predictor.classes)
        views.append(
            schemas.View(
                index=index,
                label=prediction.label,
                confidence=prediction.confidence,
                entropy=prediction.entropy,
                kept=index in confident,
                dropped=index not in kept,
            )
        )
    return views


def moved_words(model: Clip, prompts: PromptSet, *, context: Tensor) -> list[Word]:
    """Describe a tuned context (n, W) token by token, by distances between token embeddings."""
    table = model.require_text().token_embedding.weight.detach().float().cpu()  # (V, W)
    before, after = prompts.context.float().cpu(), context.float().cpu()  # (n, W)
    exact = "donot_use_mm_for_euclid_dist"
    start = torch.cdist(before, table, compute_mode=exact)  # (n, V)
    end = torch.cdist(after, table, compute_mode=exact)  # (n, V)
    padded = prompts.padded(model.tokenizer.context_length)
    tokens = padded.tokens[0, padded.context[0]].tolist()  # (n,) of the tuned words
    end[range(len(tokens)), tokens] = torch.inf  # a token is not its own neighbour
    return [
        Word(
            token=model.tokenizer.spell(token),
            moved=float((after[row] - before[row]).norm()),
            norm=float(before[row].norm()),
            nearest=_smallest(end[row], model),
            towards=_smallest(end[row] - start[row], model),
        )
        for row, token in enumerate(tokens)
    ]


def _smallest(values: Tensor, model: Clip) -> list[str]:
    """Return the tokens with the smallest values, of those that are whole characters."""
    special = {model.tokenizer.start_id, model.tokenizer.end_id}
    order = values.topk(10 * NEAREST_WORDS, largest=False).indices.tolist()
    spelled = [model.tokenizer.spell(token) for token in order if token not in special]
    return [text for text in spelled if "\ufffd" not in text][:NEAREST_WORDS]
