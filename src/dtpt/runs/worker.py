"""The worker of a run: one copy of the model, which answers images with rows.

cache → views → image tower → tuning → rows. It keeps a predictor per data set, nothing from image
to image, and returns rows only. The same class works in the driver's own process, in worker
processes and on the nodes of a cluster.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch

from dtpt.clip.ensembles import Descriptions
from dtpt.clip.loading import load_model
from dtpt.data.dataset import Sample
from dtpt.errors import RunError, WorkerError
from dtpt.executors.pool import Announce, Done, Event
from dtpt.methods import ResolvedMethod, recipe_groups, shared_recipe
from dtpt.prediction.features import FeatureCaches, Features, FeatureSource
from dtpt.prediction.predictor import Predictor
from dtpt.runs.rows import Row
from dtpt.tuning import Outcome, TuningSettings, initial_state, step_method
from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES
from dtpt.tuning.state import pack_state, unpack_state
from dtpt.views import ViewRecipe

if TYPE_CHECKING:
    from dtpt.clip.model import Clip

Lambdas = tuple[float | None, ...]

PREDICTORS_KEPT = 2  # at the border between two data sets images of both are in work


@dataclass(frozen=True)
class EvaluatedSet:
    """One data set: what a worker needs to know of it."""

    name: str
    classes: tuple[str, ...]
    methods: tuple[ResolvedMethod, ...]  # tasks point into this list
    recipe: ViewRecipe  # of methods without views of their own

    @property
    def groups(self) -> dict[ViewRecipe, tuple[int, ...]]:
        """The methods (indices) that share views."""
        return recipe_groups(self.methods, self.recipe)

    def recipe_for(self, methods: Sequence[int]) -> ViewRecipe:
        """Return the recipe of the views that a task's methods share."""
        return shared_recipe([self.methods[k] for k in methods], self.recipe)


@dataclass(frozen=True)
class WorkerSpec:
    """All that a worker needs to know before the first task; picklable, and its own factory."""

    model: str
    fingerprint: str  # of the model that the driver loaded
    device: str
    activation: Literal["gelu", "quick_gelu"] | None
    precision: Literal["float32", "bfloat16", "float16"]
    max_model_size: float
    threads: int
    template: str
    context: npt.NDArray[np.float32] | None  # (n, W)
    settings: TuningSettings
    datasets: tuple[EvaluatedSet, ...]
    view_workers: int = 0
    cache: bool = True
    keep: Literal["all", "top5"] = "all"
    batch: int = 1  # images that share forward passes of the text tower
    descriptions: Descriptions | None = None

    @property
    def depth(self) -> int:
        """Tasks that a worker should have, so that it never waits."""
        return max(2, 2 * self.view_workers + 2, 2 * self.batch)

    def __call__(self, announce: Announce) -> "RunWorker":
        torch.set_num_threads(self.threads)
        return RunWorker(self, announce)

    def load_model(self) -> "Clip":
        """Load the model; a RunError unless it is the one that the driver loaded."""
        if self.device.startswith("cuda:"):  # else pinned memory would need the first device too
            torch.cuda.set_device(self.device)
        model = load_model(
            self.model,
            device=self.device,
            activation=self.activation,
            precision=self.precision,
            max_model_size=self.max_model_size,
        )
        if model.fingerprint != self.fingerprint:
            raise RunError(
                f"{self.model} is another model here than where the run was started: fingerprint "
                f"{model.fingerprint[:12]}… instead of {self.fingerprint[:12]}…"
            )
        return model

    def feature_source(self, model: "Clip", announce: Callable[[Any], None]) -> FeatureSource:
        """Return where features come from; `announce` gets the ticket of each image."""
        return FeatureSource(
            model,
            view_workers=self.view_workers,
            views=max((entry.recipe.count for entry in self.datasets), default=1),
            caches=FeatureCaches(model, threads=self.threads) if self.cache else None,
            announce=announce,
        )

    def predictor(
        self, model: "Clip", dataset: int, *, budget_bytes: int = DEFAULT_BUDGET_BYTES
    ) -> Predictor:
        """Return the predictor of a data set (index)."""
        entry = self.datasets[dataset]
        return Predictor(
            model,
            entry.classes,
            template=self.template,
            context=None if self.context is None else torch.tensor(self.context),
            recipe=entry.recipe,
            settings=self.settings,
            descriptions=self.descriptions,
            budget_bytes=budget_bytes,
        )


@dataclass(frozen=True)
class ImageTask:
    """One image under one seed and the methods (indices) that lack a row and share views."""

    dataset: int
    seed: int
    sample: Sample
    methods: tuple[int, ...]
    lambdas: Lambdas = ()  # selected λ of the data set's methods, None for the others


@dataclass(frozen=True)
class _ManyImages:
    dataset: int
    seed: int
    samples: tuple[Sample, ...]
    methods: tuple[int, ...]
    failed: Mapping[str, str] = field(default_factory=dict)  # sample id -> reason: not tried again

    def without(self, sample_id: str, reason: str) -> Self:
        """Return the task without an image on which workers died; an error if it is not known."""
        if all(sample.id != sample_id for sample in self.samples):
            raise WorkerError(
                f"A task of {len(self.samples)} images failed: {reason} Perhaps memory ran out: "
                "use fewer --workers."
            )
        return replace(self, failed={**self.failed, sample_id: reason})


class LambdaTask(_ManyImages):
    """Images of one data set on which the λ of some methods are selected, without labels."""


@dataclass(frozen=True)
class StreamTask(_ManyImages):
    """Images that follow each other in the stream of one method that carries state."""

    start: int = 0  # position of the first one
    state: bytes = b""  # before it; empty at the start


Task = ImageTask | LambdaTask | StreamTask


@dataclass(frozen=True)
class ImageResult:
    """The rows of an image in the order of the task's methods, or why there are none."""

    rows: tuple[Row, ...] = ()
    image_key: str = ""
    stamp: str = ""
    failure: str = ""
    is_new: bool = False  # whether the image tower ran


@dataclass(frozen=True)
class LambdaResult:
    lambdas: tuple[float, ...]  # in the order of the task's methods
    images: tuple[ImageResult, ...]  # which could be read; without rows


def image_results(task: Task, result: Any) -> list[tuple[Sample, ImageResult]]:
    """Return the images of a task with what became of them."""
    if isinstance(task, ImageTask):
        return [(task.sample, result)]
    return list(zip(task.samples, result.images, strict=True))


@dataclass(frozen=True)
class StreamResult:
    images: tuple[ImageResult, ...]
    state: bytes  # after the last one


_Ticket = tuple[int, Sample, Task]


class RunWorker:
    """Answers the tasks of a run.

    `announce` is called with (task id, sample id) before anything that may crash.

    Raises:
        RunError: The model here is not the one that the driver loaded.
    """

    def __init__(
        self, spec: WorkerSpec, announce: Announce, *, model: "Clip | None" = None
    ) -> None:
        self.spec = spec
        self.model = spec.load_model() if model is None else model
        self._announce = announce
        self._source = spec.feature_source(self.model, self._announce_image)
        self._predictors: OrderedDict[int, Predictor] = OrderedDict()
        self._long_tasks: deque[tuple[int, LambdaTask | StreamTask]] = deque()

    def _announce_image(self, ticket: _Ticket) -> None:
        task_id, sample, _ = ticket
        self._announce(task_id, sample.id)

    @property
    def pending(self) -> int:
        return len(self._long_tasks) + self._source.pending

    def add(self, task_id: int, task: Task) -> None:
        if isinstance(task, ImageTask):
            recipe = self.spec.datasets[task.dataset].recipe_for(task.methods)
            ticket = (task_id, task.sample, task)
            self._source.add(ticket, task.sample.image, recipe=recipe, seed=task.seed)
        else:
            self._long_tasks.append((task_id, task))

    def next(self) -> list[Event]:
        if self._source.pending:
            return list(self._answer_images())
        task_id, task = self._long_tasks.popleft()
        if isinstance(task, LambdaTask):
            return [Done(task_id, self._select_lambdas(task_id, task))]
        return [Done(task_id, self._stream(task_id, task))]

    def _answer_images(self) -> Iterator[Event]:
        """Answer one image, or as many as share forward passes."""
        ready = [self._source.next()]
        while len(ready) < self.spec.batch and self._source.pending:
            ready.append(self._source.next())
        groups: dict[tuple[int, tuple[int, ...], Lambdas], list[tuple[_Ticket, Features]]] = {}
        for ticket, features in ready:
            task_id, _, task = ticket
            if features.values is None:
                yield Done(task_id, self._result(features))
            else:
                key = (task.dataset, task.methods, task.lambdas)
                groups.setdefault(key, []).append((ticket, features))
        for (dataset, chosen, lambdas), members in groups.items():
            known = with_lambdas(self.spec.datasets[dataset].methods, lambdas)
            methods = [known[index] for index in chosen]
            for ticket, _ in members:
                self._announce_image(ticket)
            views = [features.tensor(self.model.device) for _, features in members]
            outcomes = self._predictor(dataset).answer_many(views, methods)
            for ((task_id, sample, _), features), each in zip(members, outcomes, strict=True):
                yield Done(task_id, self._result(features, each, label=sample.label))

    def _result(
        self,
        features: Features,
        outcomes: Sequence[Outcome] = (),
        *,
        label: int = 0,
        position: int | None = None,
    ) -> ImageResult:
        keep_all = self.spec.keep == "all"
        return ImageResult(
            rows=tuple(
                Row.from_outcome(o, label, keep_all=keep_all, position=position) for o in outcomes
            ),
            image_key=features.image_key,
            stamp=features.stamp,
            failure=features.failure,
            is_new=features.is_new,
        )

    def _predictor(self, dataset: int) -> Predictor:
        if dataset not in self._predictors:
            self._predictors[dataset] = self.spec.predictor(self.model, dataset)
        self._predictors.move_to_end(dataset)
        while len(self._predictors) > PREDICTORS_KEPT:
            self._predictors.popitem(last=False)
        return self._predictors[dataset]

    def _features(self, task_id: int, task: LambdaTask | StreamTask) -> Iterator[Features]:
        recipe = self.spec.datasets[task.dataset].recipe_for(task.methods)
        for sample in task.samples:
            if sample.id in task.failed:
                yield Features(failure=task.failed[sample.id])
            else:
                ticket = (task_id, sample, task)
                yield self._source.get(ticket, sample.image, recipe=recipe, seed=task.seed)
        self._announce(task_id, "")  # what follows is about no single image

    def _select_lambdas(self, task_id: int, task: LambdaTask) -> LambdaResult:
        features = list(self._features(task_id, task))
        views = (f.tensor(self.model.device) for f in features if f.values is not None)
        entry = self.spec.datasets[task.dataset]
        methods = [entry.methods[index] for index in task.methods]
        selected = self._predictor(task.dataset).tuner.select_lambdas(methods, views)
        lambdas = tuple(m.lambda_ for m in selected if m.lambda_ is not None)
        return LambdaResult(lambdas, images=tuple(self._result(f) for f in features))

    def _stream(self, task_id: int, task: StreamTask) -> StreamResult:
        """Answer images in order; one that cannot be read leaves the state as it was."""
        tuner = self._predictor(task.dataset).tuner
        (method,) = (self.spec.datasets[task.dataset].methods[index] for index in task.methods)
        initial = initial_state(tuner, method)
        state = unpack_state(task.state, initial=initial) if task.state else initial
        features, images = self._features(task_id, task), []
        for place, (sample, each) in enumerate(zip(task.samples, features, strict=True)):
            if each.values is None:
                images.append(self._result(each))
                continue
            views = each.tensor(self.model.device)
            outcome, state = step_method(tuner, method, state=state, views=views)
            position = task.start + place
            result = self._result(each, [outcome], label=sample.label, position=position)
            images.append(result)
        return StreamResult(tuple(images), pack_state(state, initial=initial))

    def close(self) -> None:
        """End the processes that render, and write what the cache holds."""
        self._source.close()


def with_lambdas(methods: Sequence[ResolvedMethod], lambdas: Lambdas) -> list[ResolvedMethod]:
    """Return methods with the λ that were selected for them; no change where there are none."""
    if not lambdas:
        return list(methods)
    pairs = zip(methods, lambdas, strict=True)
    return [m if value is None else replace(m, lambda_=value) for m, value in pairs]


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with a fixed number of threads, because sums depend on it in the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
