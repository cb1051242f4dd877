"""Answers of other processes, handled one after the other in the driver's own thread."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

Then = Callable[[Any], None]
Otherwise = Callable[[Exception], None]


class Mailbox:
    """Remembers what to do with each answer; waiting costs the same for any number of them.

    Example:
        >>> box, answer = Mailbox(), Future()
        >>> box.when(answer, then=print, otherwise=print)
        >>> answer.set_result("four")
        >>> box.take(1.0)
        four
        True
    """

    def __init__(self) -> None:
        self._arrived: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def when(self, answer: "Future[Any]", *, then: Then, otherwise: Otherwise) -> None:
        """Say what is to be done when an answer, or an error instead of it, has arrived."""
        answer.add_done_callback(partial(self._deliver, then=then, otherwise=otherwise))

    def _deliver(self, answer: "Future[Any]", *, then: Then, otherwise: Otherwise) -> None:
        """Run in a thread of Ray's: queue what the driver has to do."""
        error = answer.exception()
        if error is None:
            self._arrived.put(partial(then, answer.result()))
        else:
            self._arrived.put(partial(otherwise, error))  # type: ignore[arg-type]

    def take(self, seconds: float) -> bool:
        """Handle one answer, for which we wait at most so long; tell whether there was one."""
        try:
            handle = self._arrived.get(timeout=seconds)
        except Empty:
            return False
        handle()
        return True
