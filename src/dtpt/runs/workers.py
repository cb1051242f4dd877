"""Decoding and views in processes beside the encoder; this module never imports torch.

Every worker has its own pipe and two places in a block of shared memory that has no name, so
nothing is left behind when the main process is killed: the pipes close and the workers end. The
block also bounds memory: no picture is decoded before there is a place for its views.
"""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from dtpt.data.dataset import ImageRef, Sample
from dtpt.errors import ImageError, RunError

if TYPE_CHECKING:
    from dtpt.clip.preprocess import Preprocess
    from dtpt.views import ViewRecipe

Pixels = npt.NDArray[np.float32]
PLACES_PER_WORKER = 2
SECONDS_TO_END = 5.0
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Job:
    """One image under one seed.

    Attributes:
        sample: The sample.
        seed: Seed of the views.
        image_key: Its content key.
        stamp: How its file looked just before that was read.
    """

    sample: Sample
    seed: int
    image_key: str = ""
    stamp: str = ""


@dataclass(frozen=True)
class Rendered:
    """The views of a job, or why there are none.

    `pixels` (N, 3, S, S) is only valid until the renderer is asked for the next one.
    """

    job: Job
    pixels: Pixels | None
    failure: str = ""


@dataclass(frozen=True)
class Studio:
    """How views are made: the same for every image of a data set, and picklable."""

    recipe: "ViewRecipe"
    preprocessing: "Preprocess"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, 3, S, S) of the views of one image."""
        size = self.preprocessing.size
        return (self.recipe.count, 3, size, size)

    def views(self, image: ImageRef, seed: int) -> Pixels:
        """Decode a picture and make its views; they depend on pixels, recipe and seed alone."""
        from dtpt.images import pixel_digest
        from dtpt.views import make_views

        picture = image.open()
        return make_views(
            picture,
            recipe=self.recipe,
            seed=seed,
            image_id=pixel_digest(picture),
            preprocessing=self.preprocessing,
        )


class Renderer(Protocol):
    """Takes jobs while it is not full and gives their views back, in any order."""

    @property
    def is_full(self) -> bool:
        """Whether the next job has to wait for a result to be collected."""
        ...

    @property
    def pending(self) -> int:
        """Jobs whose result has not been collected."""
        ...

    def submit(self, job: Job) -> None:
        """Start a job."""
        ...

    def collect(self) -> Rendered:
        """Wait for any result."""
        ...

    def close(self) -> None:
        """End all work at once."""
        ...


class InlineRenderer:
    """Makes the views in the calling process, one image at a time."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._jobs: deque[Job] = deque()

    @property
    def is_full(self) -> bool:
        """One image is enough: nobody works on a second."""
        return len(self._jobs) >= 1

    @property
    def pending(self) -> int:
        """Jobs whose result has not been collected."""
        return len(self._jobs)

    def submit(self, job: Job) -> None:
        """Remember a job until it is collected."""
        self._jobs.append(job)

    def collect(self) -> Rendered:
        """Make the views of the oldest job."""
        job = self._jobs.popleft()
        try:
            return Rendered(job, self._studio.views(job.sample.image, job.seed))
        except ImageError as error:
            return Rendered(job, None, str(error))

    def close(self) -> None:
        """Forget what was not collected."""
        self._jobs.clear()


@dataclass
class _Worker:
    process: BaseProcess
    pipe: "Connection[Any, Any]"
    free: list[int]
    busy: dict[int, Job]


class WorkerPool:
    """Makes views in `count` processes.

    Args:
        studio: How views are made.
        count: Number of processes.
    """

    def __init__(self, studio: Studio, count: int) -> None:
        # spawn, because torch's threads do not survive a fork
        context = multiprocessing.get_context("spawn")
        self._shape = studio.shape
        places = count * PLACES_PER_WORKER
        size = int(np.prod(self._shape))
        memory = context.RawArray("f", places * size)
        self._buffer = np.frombuffer(memory, dtype=np.float32).reshape(places, *self._shape)
        self._workers: list[_Worker] = []
        self._held: tuple[_Worker, int] | None = None
        for index in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(theirs, memory, studio), daemon=True, name=f"views-{index}"
            )
            with _without_interrupts():
                process.start()
            theirs.close()  # then a dead worker, or a dead parent, closes the pipe
            own = list(range(index * PLACES_PER_WORKER, (index + 1) * PLACES_PER_WORKER))
            self._workers.append(_Worker(process, ours, own, {}))

    @property
    def is_full(self) -> bool:
        """Whether no worker has a free place."""
        return not any(worker.free for worker in self._workers)

    @property
    def pending(self) -> int:
        """Jobs whose result has not been collected."""
        return sum(len(worker.busy) for worker in self._workers)

    def submit(self, job: Job) -> None:
        """Give a job to the worker with the most free places."""
        worker = max(self._workers, key=lambda candidate: len(candidate.free))
        place = worker.free.pop()
        worker.busy[place] = job
        try:
            worker.pipe.send((place, job.sample.image, job.seed))
        except OSError as error:
            raise RunError(_death(worker)) from error

    def collect(self) -> Rendered:
        """Wait for any worker; the views stay valid until the next call."""
        self._release()
        ready = wait([worker.pipe for worker in self._workers if worker.busy])
        worker = next(worker for worker in self._workers if worker.pipe in ready)
        try:
            place, failure, crash = worker.pipe.recv()
        except (EOFError, OSError) as error:
            raise RunError(_death(worker)) from error
        job = worker.busy.pop(place)
        if crash:
            raise RunError(f"Making the views of {job.sample.id!r} failed: {crash}")
        self._held = (worker, place)
        return Rendered(job, None if failure else self._buffer[place], failure)

    def _release(self) -> None:
        if self._held is not None:
            worker, place = self._held
            worker.free.append(place)
            self._held = None

    def close(self) -> None:
        """Close the pipes, on which the workers end; one that does not is killed."""
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(SECONDS_TO_END if not worker.busy else 0.2)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join(SECONDS_TO_END)
            worker.process.close()
        self._workers = []


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let a process start with interrupts blocked: terminals and Slurm send them to all processes.

    In this process an interrupt that arrives meanwhile is only delayed.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would unblock the signal when it starts later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _death(worker: _Worker) -> str:
    worker.process.join(1.0)
    code = worker.process.exitcode
    jobs = ", ".join(repr(job.sample.id) for job in worker.busy.values())
    return (
        f"A worker process died (exit code {code}) while making the views of {jobs}; often memory "
        "ran out. Every finished image is kept: run the same command again, with fewer --workers."
    )


def make_renderer(studio: Studio, workers: int) -> InlineRenderer | WorkerPool:
    """Return a renderer with that many processes beside this one."""
    return WorkerPool(studio, workers) if workers > 0 else InlineRenderer(studio)


def serve(pipe: "Connection[Any, Any]", memory: Any, studio: Studio) -> None:
    """Run in a worker: answer jobs until the pipe closes."""
    for number in INTERRUPTS:  # the main process answers them and then closes the pipe
        signal.signal(number, signal.SIG_IGN)
    buffer = np.frombuffer(memory, dtype=np.float32).reshape(-1, *studio.shape)
    while True:
        try:
            place, image, seed = pipe.recv()
            pipe.send((place, *_fill(buffer[place], lambda: studio.views(image, seed))))  # noqa: B023
        except (EOFError, OSError):  # the main process closed the pipe or died
            return


def _fill(target: Pixels, make: Callable[[], Pixels]) -> tuple[str, str]:
    """Put views into shared memory; return (why the image is bad, why we are)."""
    try:
        target[:] = make()
    except ImageError as error:
        return str(error) or "unreadable", ""
    except Exception as error:  # anything else is a bug, and its place is the main process
        return "", f"{type(error).__name__}: {error}"
    return "", ""
