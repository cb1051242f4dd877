"""One thread that computes, and a bounded number of requests that wait for it.

A request takes a *slot* before its body is read, so that the memory of all requests together is
bounded; without a free slot it gets 503 and a time to try again. Work ends early when its client
disconnects, when its deadline passes, or when the server stops. A thread cannot be stopped from
outside, so the work checks for this itself: before every operation of torch (`deadline.py`),
between views, and between the stages of a request.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

from dtpt.web.guard import Refusal

Result = TypeVar("Result")
Step = dict[str, str | int]  # stage ("views", "features", "methods"), done, total


@dataclass(eq=False)
class Job:
    """What the work knows about its request."""

    deadline: float  # on the clock of `time.monotonic`
    listener: Callable[[Step], None] | None = None  # called in the worker's thread
    cancelled: Event = field(default_factory=Event)  # set to end the work
    is_submitted: bool = False

    def check(self) -> None:
        """Raise a `Refusal` if the result is no longer needed, or the deadline has passed."""
        if self.cancelled.is_set():
            raise Refusal("cancelled", "The request was cancelled.")
        if time.monotonic() > self.deadline:
            raise Refusal("deadline", "The computation took longer than the server allows.")

    def progress(self, stage: str) -> Callable[[int, int], None]:
        """Return a function that reports the progress of a stage, then checks as `check` does."""

        def report(done: int, total: int) -> None:
            if self.listener is not None:
                self.listener({"stage": stage, "done": done, "total": total})
            self.check()

        return report


class Worker:
    """A thread with a bounded queue; all methods are called in the event loop's thread."""

    def __init__(self, name: str, *, waiting: int) -> None:
        self.slots = waiting + 1
        self.taken = 0
        self._seconds = 0.5  # that one job takes, smoothed
        self._jobs: set[Job] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)

    @contextmanager
    def slot(self, job: Job) -> Iterator[None]:
        """Take a slot until the job has really ended, or the block without submitting it."""
        if self.taken >= self.slots:
            seconds = min(60, max(1, math.ceil(self.taken * self._seconds)))  # an estimate
            message = f"All {self.slots} slots of this server are taken."
            raise Refusal("busy", message, {"Retry-After": str(seconds)})
        self.taken += 1
        try:
            yield
        finally:
            if not job.is_submitted:  # otherwise `_release` frees it
                self.taken -= 1

    def submit(self, work: Callable[[], Result], job: Job) -> "asyncio.Future[Result]":
        job.is_submitted = True
        future = self._thread.submit(self._run, work, job)
        self._jobs.add(job)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release, job))
        wrapped = asyncio.wrap_future(future)
        wrapped.add_done_callback(_retrieve)
        return wrapped

    def _run(self, work: Callable[[], Result], job: Job) -> Result:
        job.check()
        started = time.monotonic()
        result = work()
        self._seconds += 0.2 * (time.monotonic() - started - self._seconds)
        return result

    def _release(self, job: Job) -> None:
        self._jobs.discard(job)
        self.taken -= 1

    def close(self) -> None:
        """Cancel all jobs and wait for the thread."""
        for job in list(self._jobs):
            job.cancelled.set()
        self._thread.shutdown(wait=True, cancel_futures=True)


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Look at an error that nobody waits for after a deadline; asyncio would print it."""
    if not future.cancelled():
        future.exception()
