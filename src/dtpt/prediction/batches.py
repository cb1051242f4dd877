"""Several pictures at once, in processes beside this one, answered in order.

Every process gets a copy of the function that answers (of the whole classifier on a CPU, of the
maker of views where an accelerator does the rest) and one picture at a time. Here one thread talks
to each process, so that none waits for another one or for whoever reads the answers.
"""

import os
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dtpt.errors import (
    DtptError,
    ImageError,
    MethodError,
    OptionError,
    WorkerError,
    os_error,
    short_repr,
)
from dtpt.images import ImageSource, open_image
from dtpt.machine import usable_cores
from dtpt.processes import CAN_START, Companion, start, stop

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
Answers = Generator[T | ImageError, None, None]
MOST_WORKERS = 256
AHEAD = 2  # pictures per process that are begun before the answer in front is taken


def check_images(images: object) -> None:
    """Refuse what is not several pictures; one picture is for `predict`.

    Example:
        >>> check_images("cat.jpg")
        Traceback (most recent call last):
        dtpt.errors.OptionError: ...
    """
    if isinstance(images, str | bytes | os.PathLike) or not isinstance(images, Iterable):
        raise OptionError(
            f"Expected several pictures, for example a list, got {short_repr(images)}."
        )


def count_workers(workers: object, *, threads: int) -> int:
    """Return how many processes are meant; "auto" fills the cores that this process may use.

    Example:
        >>> count_workers(3, threads=1)
        3
    """
    if workers == "auto":
        return max(1, usable_cores() // threads) if CAN_START else 1
    if isinstance(workers, bool) or not isinstance(workers, int | np.integer):
        raise OptionError(f"workers must be a whole number or 'auto', got {short_repr(workers)}.")
    if not 1 <= workers <= MOST_WORKERS:
        raise OptionError(f"workers must lie between 1 and {MOST_WORKERS}, got {workers}.")
    return int(workers) if CAN_START else 1


def answer_here(function: Callable[[ImageSource], T], images: Iterable[ImageSource]) -> Answers[T]:
    """Answer pictures one after the other in this process."""
    for image in images:
        try:
            yield function(image)
        except ImageError as error:
            yield error


def answer_in_processes(
    function: Callable[[ImageSource], T],
    images: Iterable[ImageSource],
    *,
    workers: int,
    threads: int,
) -> Answers[T]:
    """Answer pictures in other processes, in the order in which they come.

    Args:
        function: answers one picture; it is copied.
        images: taken as they are needed, a few ahead.
        workers: number of processes.
        threads: torch threads of each.

    Raises:
        MethodError: the function cannot be copied, because it was made in the caller's script.
        WorkerError: a process ended.
    """
    crew = _Crew(packed(function), workers, threads=threads)
    talkers = ThreadPoolExecutor(workers, thread_name_prefix="dtpt-batch")
    waiting: deque[Future[T | ImageError]] = deque()
    try:
        for image in images:
            waiting.append(talkers.submit(crew.ask, image))
            if len(waiting) > AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        crew.end()  # then nobody waits for an answer any more
        talkers.shutdown(cancel_futures=True)
        crew.close()


def packed(function: Callable[..., Any]) -> bytes:
    """Return a function as bytes that a process can unpack which knows nothing of our script."""
    try:
        data = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _immovable() from error
    if b"__main__" in data:
        raise _immovable()
    return data


def _immovable() -> MethodError:
    return MethodError(
        "The method has functions that no other process could find: put them into a module of "
        "their own, or use workers=1."
    )


@dataclass
class _Worker:
    companion: Companion
    is_ready: bool = False


class _Crew:
    """Processes of which each holds the function and answers one picture at a time."""

    def __init__(self, function: bytes, count: int, *, threads: int) -> None:
        self._function, self._threads = function, threads
        self._workers: list[_Worker] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        try:
            for _ in range(count):
                environment = {"OMP_NUM_THREADS": str(threads)}
                companion = start("dtpt.prediction.batches:serve", environment=environment)
                self._workers.append(_Worker(companion))
                self._idle.put(self._workers[-1])
        except OSError as error:
            self.close()
            raise WorkerError(f"No further process can be started: {os_error(error)}.") from error

    def ask(self, image: ImageSource) -> Any:
        """Return the answer of whichever process is free; runs in a thread of its own."""
        try:
            sent = _sendable(image)
        except ImageError as error:
            return error
        worker = self._idle.get()
        try:
            answer = self._answer(worker, sent)
        except (EOFError, OSError) as error:
            ending = worker.companion.describe_end()
            raise WorkerError(
                f"A process that answers pictures ended ({ending}); often memory ran out. Use "
                "fewer workers."
            ) from error
        finally:
            self._idle.put(worker)
        if isinstance(answer, DtptError) and not isinstance(answer, ImageError):
            raise answer
        return answer

    def _answer(self, worker: _Worker, image: ImageSource) -> Any:
        pipe = worker.companion.pipe
        if not worker.is_ready:
            pipe.send(self._threads)
            pipe.send_bytes(self._function)
            worker.is_ready = True
        pipe.send(image)
        return pipe.recv()

    def end(self) -> None:
        """End the processes at once; whoever waits for one hears of it."""
        for worker in self._workers:
            worker.companion.process.kill()

    def close(self) -> None:
        """Give back what the processes held."""
        stop(worker.companion for worker in self._workers)


def _sendable(image: ImageSource) -> ImageSource:
    """Return what can be sent; Pillow images are decoded here, because they may hold open files."""
    if isinstance(image, str | bytes | np.ndarray):
        return image
    if isinstance(image, os.PathLike):
        return os.fspath(image)
    return open_image(image)


def serve(pipe: "Connection[Any, Any]") -> None:
    """Run in a process beside: answer pictures until the pipe closes."""
    import torch

    torch.set_num_threads(pipe.recv())
    function = pipe.recv()
    while True:
        pipe.send(_attempt(function, pipe.recv()))


def _attempt(function: Callable[[ImageSource], Any], image: ImageSource) -> Any:
    try:
        return function(image)
    except DtptError as error:
        return error
    except Exception as error:  # a bug, or no memory: told where it can be seen
        return WorkerError(f"A picture could not be answered: {type(error).__name__}: {error}")
