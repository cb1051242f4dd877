"""Ctrl-C and SIGTERM: stop at the next safe place, with what is needed to go on."""

import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; treated like Ctrl-C, but with its own exit code."""


EXIT_CODES = {KeyboardInterrupt: 130, Terminated: 143}


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM raise `Terminated` in the main thread while the block runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not break the clean-up
    raise Terminated


def resume_command(arguments: list[str] | None = None) -> str:
    """Return what to type to go on: the same command, without `--fresh`."""
    given = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["dtpt", *(part for part in given if part != "--fresh")])
