"""A replica: one process's copy of the model, which answers batches of pictures.

cache → views → image tower → tuning → rows. It keeps a tuner per data set, nothing from picture to
picture, and gives back rows alone. The same class works in the driver's own process, in local
processes and on other machines.
"""

import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from dtpt.clip.loading import load_model
from dtpt.clip.prompts import PromptSet
from dtpt.data import Sample
from dtpt.errors import DtptError, ImageError, RunError
from dtpt.methods import ResolvedMethod
from dtpt.runs.answers import to_answer
from dtpt.runs.features import Features
from dtpt.runs.orders import (
    Answered,
    Batch,
    Event,
    Found,
    Item,
    Place,
    Ready,
    Search,
    Stopped,
    Struck,
    WorkOrder,
)
from dtpt.runs.pipeline import FeatureCaches, FeaturePipeline, Seen, as_tensor, encode_views
from dtpt.runs.workers import Job, make_renderer, render
from dtpt.tuning import Outcome, Tuner, views_needed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dtpt.clip.model import Clip

TUNERS_KEPT = 2  # at the border between two data sets pictures of both are in work


@dataclass(frozen=True)
class _Ticket:
    """Where a job belongs."""

    batch: Batch
    item: Item

    @property
    def place(self) -> Place:
        return Place(self.batch.number, self.item.sample.id)


class Replica:
    """Answers batches of pictures.

    Args:
        order: What it needs to know.
        model: Used instead of loading the one that the order names.
        working_on: Told which picture is worked on, before anything that could kill the process.

    Raises:
        RunError: The model here is not the one that the driver means.
    """

    def __init__(
        self,
        order: WorkOrder,
        *,
        model: "Clip | None" = None,
        working_on: Callable[[Place], None] | None = None,
    ) -> None:
        self.order = order
        self.model = load(order) if model is None else model
        self._working_on = working_on
        self._caches = FeatureCaches(self.model, threads=order.threads) if order.cache else None
        most = max((task.recipe.count for task in order.tasks), default=1)
        self.pipeline = FeaturePipeline(
            self.model,
            make_renderer(self.model.preprocessing, order.workers, views=most),
            caches=self._caches,
            working_on=self._tell,
        )
        self._tuners: OrderedDict[int, Tuner] = OrderedDict()
        self._searches: deque[Search] = deque()

    def _tell(self, job: Job) -> None:
        if self._working_on is not None and isinstance(job.ticket, _Ticket):
            self._working_on(job.ticket.place)

    def add(self, batch: Batch | Search) -> None:
        """Take a batch, or a search for λ."""
        if isinstance(batch, Search):
            self._searches.append(batch)
            return
        task = self.order.tasks[batch.task]
        for item in batch.items:
            methods = [task.methods[index] for index in item.methods]
            count = views_needed(methods, task.recipe.count)
            recipe = task.recipe.model_copy(update={"count": count})
            self.pipeline.add(Job(item.sample, batch.seed, recipe, ticket=_Ticket(batch, item)))

    @property
    def pending(self) -> int:
        """Events that are still to come, at least."""
        return len(self._searches) + self.pipeline.pending

    def next(self) -> list[Event]:
        """Work until there is something to tell; a batch must have been added."""
        if self._searches:
            return [self._find(self._searches.popleft())]
        seen = [self.pipeline.next()]
        while len(seen) < self.order.batch and self.pipeline.pending:
            seen.append(self.pipeline.next())
        return list(self._answer(seen))

    def _answer(self, seen: Sequence[Seen]) -> Iterator[Event]:
        """Say what became of some pictures; those that can share forward passes do."""
        groups: dict[tuple[int, int, tuple[int, ...]], list[tuple[Seen, _Ticket]]] = {}
        for one in seen:
            ticket = one.job.ticket
            if not isinstance(ticket, _Ticket):
                raise TypeError("a job without a ticket")
            if one.death:
                yield Struck(ticket.place, one.death)
            elif one.features is None:
                yield Answered(ticket.place, failure=one.failure)
            else:
                key = (ticket.batch.task, ticket.batch.seed, ticket.item.methods)
                groups.setdefault(key, []).append((one, ticket))
        for (task, _, chosen), members in groups.items():
            known = with_weights(self.order.tasks[task].methods, members[0][1].batch.weights)
            methods = [known[index] for index in chosen]
            yield from self._tune(self.tuner(task), members, methods=methods)

    def _tune(
        self,
        tuner: Tuner,
        members: Sequence[tuple[Seen, _Ticket]],
        *,
        methods: Sequence[ResolvedMethod],
    ) -> Iterator[Event]:
        for seen, _ in members:
            self._tell(seen.job)
        pictures = [
            as_tensor(seen.features, self.model.device)
            for seen, _ in members
            if seen.features is not None
        ]
        if len(pictures) == 1:
            outcomes = [tuner.predict(pictures[0], methods)]
        else:
            outcomes = tuner.predict_many(pictures, methods)
        for (seen, ticket), found in zip(members, outcomes, strict=True):
            yield self._answered(seen, ticket.place, outcomes=found)

    def _answered(self, seen: Seen, place: Place, *, outcomes: Sequence[Outcome]) -> Answered:
        label, keep_all = seen.job.sample.label, self.order.keep == "all"
        return Answered(
            place,
            image_key=seen.job.image_key,
            stamp=seen.job.stamp,
            answers=tuple(to_answer(outcome, label, keep_all=keep_all) for outcome in outcomes),
            is_new=seen.is_new,
        )

    def tuner(self, task: int) -> Tuner:
        """Return the tuner of a data set, made at first need; few are kept."""
        if task not in self._tuners:
            prompts = PromptSet.build(
                self.model,
                self.order.tasks[task].classes,
                template=self.order.template,
                context=None if self.order.context is None else torch.tensor(self.order.context),
            )
            self._tuners[task] = Tuner(self.model, prompts, settings=self.order.settings)
        self._tuners.move_to_end(task)
        while len(self._tuners) > TUNERS_KEPT:
            self._tuners.popitem(last=False)
        return self._tuners[task]

    def _find(self, search: Search) -> Found:
        """Find λ from the pictures of a search, those that can be read."""
        task = self.order.tasks[search.task]
        read: list[Features] = []
        for sample in search.samples:
            if self._working_on is not None:
                self._working_on(Place(search.number, sample.id))
            features = self._features(sample, search.task, seed=search.seed)
            read += [] if features is None else [features]
        views = (as_tensor(features, self.model.device) for features in read)
        methods = [task.methods[index] for index in search.methods]
        found = self.tuner(search.task).select_lambdas(methods, views)
        weights = tuple(m.lambda_ for m in found if m.lambda_ is not None)
        return Found(search.number, weights, pictures=len(read))

    def _features(self, sample: Sample, task: int, *, seed: int) -> Features | None:
        """Return the features of one picture, at once; None when it cannot be read."""
        recipe = self.order.tasks[task].recipe
        cache = None if self._caches is None else self._caches.of(recipe, seed)
        try:
            key = sample.image.key()
            found = None if cache is None else cache.get(key, views=recipe.count)
            if found is None:
                preprocessing = self.model.preprocessing
                pixels = render(sample.image, seed=seed, recipe=recipe, preprocessing=preprocessing)
                found = encode_views(self.model, pixels)
        except ImageError:
            return None
        if cache is not None:
            cache.put(key, found)
        return found

    def close(self) -> None:
        """End the processes that make views, and write what the cache holds."""
        self.pipeline.close()


def with_weights(
    methods: Sequence[ResolvedMethod], weights: Sequence[float | None]
) -> list[ResolvedMethod]:
    """Return methods with the λ that were found for them; nothing changes where there are none."""
    if not weights:
        return list(methods)
    pairs = zip(methods, weights, strict=True)
    return [m if found is None else replace(m, lambda_=found) for m, found in pairs]


def load(order: WorkOrder) -> "Clip":
    """Load the model that an order names, and check that it is the one that is meant."""
    model = load_model(
        order.model,
        device=order.device,
        activation=order.activation,
        precision=order.precision,
    )
    if model.fingerprint != order.fingerprint:
        raise RunError(
            f"{order.model} is another model here than where the run was started: "
            f"{model.fingerprint[:12]}… instead of {order.fingerprint[:12]}…"
        )
    return model


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with a fixed number of threads, because sums depend on it in the last bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def serve(pipe: "Connection[Any, Any]") -> None:
    """Run in a process of its own: answer batches until the pipe closes."""
    order: WorkOrder = pipe.recv()
    torch.set_num_threads(order.threads)
    working_on: list[Place] = []

    def tell(place: Place) -> None:
        working_on[:] = [place]
        pipe.send(place)

    try:
        replica = Replica(order, working_on=tell)
        try:
            pipe.send(Ready())
            _answer_all(replica, pipe)
        finally:
            replica.close()
    except DtptError as error:
        pipe.send(Stopped(str(error)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        traceback.print_exc()  # it is a bug of ours
        where = f" on {working_on[0].sample!r}" if working_on else ""
        with suppress(OSError):
            pipe.send(Stopped(f"A replica failed{where}: {type(error).__name__}: {error}."))


def _answer_all(replica: Replica, pipe: "Connection[Any, Any]") -> None:
    while True:
        while not replica.pending or pipe.poll():
            replica.add(pipe.recv())
        for event in replica.next():
            pipe.send(event)
