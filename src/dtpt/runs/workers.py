"""Decoding and views, here or in processes beside the encoder; this module never imports torch.

Every worker has its own pipe and two places in a block of shared memory that has no name, so
nothing is left behind when the main process is killed. The block also bounds memory: no picture is
decoded before there is a place for its views. While the views in one place are encoded, the next
ones are made in the other.
"""

import mmap
import os
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from dtpt.data.dataset import ImageRef, Sample
from dtpt.errors import ImageError, RunError
from dtpt.processes import Companion, start, stop

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dtpt.clip.preprocess import Preprocess
    from dtpt.views import ViewRecipe

Pixels = npt.NDArray[np.float32]
PLACES_PER_WORKER = 2
SECONDS_TO_END = 5.0
DEATHS_AT_START = 3
READY = "ready"


@dataclass(frozen=True)
class Job:
    """One image under one seed.

    Attributes:
        sample: The sample.
        seed: Seed of the views.
        recipe: How its views are made, and how many.
        image_key: Its content key.
        stamp: How its file looked just before that was read.
        ticket: Anything by which the caller knows the job again.
    """

    sample: Sample
    seed: int
    recipe: "ViewRecipe"
    image_key: str = ""
    stamp: str = ""
    ticket: object = None


@dataclass(frozen=True)
class Rendered:
    """The views of a job, or why there are none.

    Attributes:
        job: The job.
        pixels: (N, 3, S, S), valid until the renderer is asked for the next one.
        failure: Why the image cannot be read.
        death: How the process ended that worked on it; it may succeed in another one.
    """

    job: Job
    pixels: Pixels | None = None
    failure: str = ""
    death: str = ""


def render(
    image: ImageRef,
    *,
    seed: int,
    recipe: "ViewRecipe",
    preprocessing: "Preprocess",
    out: Pixels | None = None,
) -> Pixels:
    """Decode a picture and make its views; they depend on pixels, recipe and seed alone."""
    from dtpt.images import pixel_digest
    from dtpt.views import make_views

    picture = image.open()
    return make_views(
        picture,
        recipe=recipe,
        seed=seed,
        image_id=pixel_digest(picture),
        preprocessing=preprocessing,
        out=out,
    )


class Renderer(Protocol):
    """Takes jobs while it has room and gives their views back, in any order."""

    @property
    def has_room(self) -> bool:
        """Whether another job can be taken now."""
        ...

    @property
    def pending(self) -> int:
        """Jobs whose result has not been collected."""
        ...

    def submit(self, job: Job) -> None:
        """Start a job."""
        ...

    def release(self) -> None:
        """Say that the views collected last are not needed any more."""
        ...

    def collect(self) -> Rendered:
        """Wait for any result."""
        ...

    def close(self) -> None:
        """End all work at once."""
        ...


class InlineRenderer:
    """Makes the views in the calling process, one image at a time."""

    def __init__(self, preprocessing: "Preprocess") -> None:
        self._preprocessing = preprocessing
        self._jobs: deque[Job] = deque()

    @property
    def has_room(self) -> bool:
        """One image is enough: nobody works on a second."""
        return not self._jobs

    @property
    def pending(self) -> int:
        """Jobs whose result has not been collected."""
        return len(self._jobs)

    def submit(self, job: Job) -> None:
        """Remember a job until it is collected."""
        self._jobs.append(job)

    def release(self) -> None:
        """Do nothing: every image has memory of its own."""

    def collect(self) -> Rendered:
        """Make the views of the oldest job."""
        job = self._jobs.popleft()
        try:
            pixels = render(
                job.sample.image,
                seed=job.seed,
                recipe=job.recipe,
                preprocessing=self._preprocessing,
            )
        except ImageError as error:
            return Rendered(job, failure=str(error) or "unreadable")
        return Rendered(job, pixels)

    def close(self) -> None:
        """Forget what was not collected."""
        self._jobs.clear()


@dataclass
class _Worker:
    companion: Companion
    places: tuple[int, ...]
    free: list[int]
    busy: dict[int, Job] = field(default_factory=dict)  # the oldest first
    is_ready: bool = False


class WorkerPool:
    """Makes views in `count` processes; one that dies is replaced.

    Args:
        preprocessing: Size and normalisation of the views.
        count: Number of processes.
        views: Largest number of views of a job.
    """

    def __init__(self, preprocessing: "Preprocess", count: int, *, views: int) -> None:
        self._preprocessing = preprocessing
        self._shape = (count * PLACES_PER_WORKER, views, 3, *(preprocessing.size,) * 2)
        self._file = _nameless_file(4 * int(np.prod(self._shape)))
        self._buffer = _map(self._file, self._shape)
        self._held: tuple[_Worker, int] | None = None
        self._again: deque[Job] = deque()
        self._early_deaths = 0
        self._workers: list[_Worker] = []
        try:
            for index in range(count):
                places = range(index * PLACES_PER_WORKER, (index + 1) * PLACES_PER_WORKER)
                self._workers.append(self._start(tuple(places)))
        except BaseException:
            self.close()
            raise

    def _start(self, places: tuple[int, ...]) -> _Worker:
        companion = start("dtpt.runs.workers:serve", files=(self._file,))
        companion.pipe.send((self._file, self._shape, self._preprocessing))
        return _Worker(companion, places, list(places))

    @property
    def has_room(self) -> bool:
        """Whether a worker has a free place."""
        return any(worker.free for worker in self._workers)

    @property
    def pending(self) -> int:
        """Jobs whose result has not been collected."""
        return len(self._again) + sum(len(worker.busy) for worker in self._workers)

    def submit(self, job: Job) -> None:
        """Give a job to the worker with the most free places."""
        worker = max(self._workers, key=lambda candidate: len(candidate.free))
        place = worker.free.pop()
        worker.busy[place] = job
        with suppress(OSError):  # it died; `collect` finds out
            worker.companion.pipe.send((place, job.sample.image, job.seed, job.recipe))

    def release(self) -> None:
        """Let the place of the views collected last be used again."""
        if self._held is not None:
            worker, place = self._held
            worker.free.append(place)
            self._held = None

    def collect(self) -> Rendered:
        """Wait for any worker; the views stay valid until `release` or the next call."""
        self.release()
        while self._again and self.has_room:
            self.submit(self._again.popleft())
        worker, message = self._receive()
        if message is None:
            return self._replace(worker)
        place, failure, crash = message
        job = worker.busy.pop(place)
        if crash:
            raise RunError(f"Making the views of {job.sample.id!r} failed: {crash}")
        self._held = (worker, place)
        if failure:
            return Rendered(job, failure=failure)
        return Rendered(job, self._buffer[place, : job.recipe.count])

    def _receive(self) -> tuple[_Worker, tuple[int, str, str] | None]:
        """Return a worker with what it says about a place; None when it died."""
        while True:
            ready = wait([worker.companion.pipe for worker in self._workers if worker.busy])
            worker = next(worker for worker in self._workers if worker.companion.pipe in ready)
            try:
                message = worker.companion.pipe.recv()
            except (EOFError, OSError):
                return worker, None
            if message != READY:
                return worker, message
            worker.is_ready = True

    def _replace(self, worker: _Worker) -> Rendered:
        """Blame the job that a dead worker was working on; its other ones are done again."""
        ending = worker.companion.describe_end()
        stop([worker.companion])
        self._early_deaths += not worker.is_ready
        if self._early_deaths >= DEATHS_AT_START:
            raise RunError(
                f"Processes that make views die as soon as they start ({ending}); often memory ran "
                "out. Every finished image is kept: run the same command again, with fewer "
                "--workers."
            )
        blamed, *others = worker.busy.values()
        self._again.extend(others)
        self._workers[self._workers.index(worker)] = self._start(worker.places)
        return Rendered(blamed, death=ending)

    def close(self) -> None:
        """End all workers; one that is busy is not waited for."""
        seconds = 0.2 if any(worker.busy for worker in self._workers) else SECONDS_TO_END
        stop([worker.companion for worker in self._workers], seconds)
        self._workers = []
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def make_renderer(
    preprocessing: "Preprocess", workers: int, *, views: int
) -> InlineRenderer | WorkerPool:
    """Return a renderer with that many processes beside this one."""
    if workers == 0:
        return InlineRenderer(preprocessing)
    return WorkerPool(preprocessing, workers, views=views)


def _nameless_file(size: int) -> int:
    """Return a descriptor of memory that vanishes with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("dtpt-views")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _map(descriptor: int, shape: tuple[int, ...]) -> Pixels:
    memory = mmap.mmap(descriptor, 4 * int(np.prod(shape)))
    return np.frombuffer(memory, dtype=np.float32).reshape(shape)


def serve(pipe: "Connection[Any, Any]") -> None:
    """Run in a worker: answer jobs until the pipe closes."""
    import dtpt.views  # noqa: F401 - so that "ready" means ready

    descriptor, shape, preprocessing = pipe.recv()
    buffer = _map(descriptor, shape)
    pipe.send(READY)
    while True:
        place, image, seed, recipe = pipe.recv()
        out = buffer[place, : recipe.count]
        answer = _attempt(image, out, seed=seed, recipe=recipe, preprocessing=preprocessing)
        pipe.send((place, *answer))


def _attempt(
    image: ImageRef,
    out: Pixels,
    *,
    seed: int,
    recipe: "ViewRecipe",
    preprocessing: "Preprocess",
) -> tuple[str, str]:
    """Put views into shared memory; return (why the image is bad, why we are)."""
    try:
        render(image, seed=seed, recipe=recipe, preprocessing=preprocessing, out=out)
    except ImageError as error:
        return str(error) or "unreadable", ""
    except Exception as error:  # anything else is a bug, and its place is the main process
        return "", f"{type(error).__name__}: {error}"
    return "", ""
