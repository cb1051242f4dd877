"""One thread that computes, a bounded number of requests that wait for it.

A request takes a *place* before its body is read, so that the memory of all requests together is
bounded; whoever finds no place is told when to come again. Work is cancelled when its client goes
away, when its time is over, or when the server stops: the work itself looks at every chance that
it gets (between views, chunks of the image tower and methods), because a thread cannot be stopped
from outside.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import NamedTuple, TypeVar

from dtpt.web.refusals import Refusal

Result = TypeVar("Result")
Progress = Callable[[int, int], None]


class Step(NamedTuple):
    """How far a stage is: "views" made, "features" encoded, "methods" answered."""

    stage: str
    done: int
    total: int


Listener = Callable[[Step], None]


def _nobody(_: Step) -> None:
    """Hear nothing."""


@dataclass(eq=False)
class Job:
    """What the work knows about the request it is for.

    Attributes:
        deadline: on the clock of `time.monotonic`.
        listener: called in the worker's thread.
        cancelled: set by whoever wants the work to end.
    """

    deadline: float
    listener: Listener = _nobody
    cancelled: Event = field(default_factory=Event)

    def check(self) -> None:
        """Go on, or end the work.

        Raises:
            Refusal: nobody wants the answer any more, or the time is over.
        """
        if self.cancelled.is_set():
            raise Refusal("cancelled", "The request was cancelled.")
        if time.monotonic() > self.deadline:
            raise Refusal("deadline", "The answer took longer than the server allows.")

    def progress(self, stage: str) -> Progress:
        """Return a function that reports a stage and ends the work when nobody waits for it."""

        def report(done: int, total: int) -> None:
            self.listener(Step(stage, done, total))
            self.check()

        return report


@dataclass
class Place:
    """One request's right to be computed."""

    worker: "Worker"
    submitted: bool = False

    def submit(self, work: Callable[[Job], Result], job: Job) -> "asyncio.Future[Result]":
        """Hand work to the thread; the place stays taken until the work has really ended."""
        self.submitted = True
        return self.worker.start(work, job)


class Worker:
    """A thread with a bounded queue; all methods are called in the event loop's thread.

    Args:
        name: of the thread.
        waiting: how many requests may wait beside the one that is computed.
    """

    def __init__(self, name: str, *, waiting: int) -> None:
        self.places = waiting + 1
        self.taken = 0
        self._seconds = 0.5  # of one piece of work, smoothed
        self._running: set[Job] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Take a place until the work is done.

        Raises:
            Refusal: all are taken; Retry-After estimates when one will be free.
        """
        if self.taken >= self.places:
            seconds = min(60, max(1, math.ceil(self.taken * self._seconds)))
            message = f"All {self.places} places of this server are taken."
            headers = {"Retry-After": str(seconds), "Connection": "close"}
            raise Refusal("busy", message, headers)
        self.taken += 1
        place = Place(self)
        try:
            yield place
        finally:
            if not place.submitted:
                self.taken -= 1

    def start(self, work: Callable[[Job], Result], job: Job) -> "asyncio.Future[Result]":
        """Queue work; see `Place.submit`."""
        future = self._thread.submit(self._run, work, job)
        self._running.add(job)
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:
            loop.call_soon_threadsafe(self._release, job)

        future.add_done_callback(ended)
        return asyncio.wrap_future(future)

    def _run(self, work: Callable[[Job], Result], job: Job) -> Result:
        job.check()
        started = time.monotonic()
        result = work(job)
        self._seconds += 0.2 * (time.monotonic() - started - self._seconds)
        return result

    def _release(self, job: Job) -> None:
        self._running.discard(job)
        self.taken -= 1

    def close(self) -> None:
        """Cancel everything and wait for the thread."""
        for job in list(self._running):
            job.cancelled.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
