"""Companions: Python processes of our own that run one function, connected to us by a pipe.

They are started as programs, not by `multiprocessing`: nothing of the caller's script is imported
in them, so a script needs no `if __name__ == "__main__"`, and a process may start others. When we
die, however that happens, the pipe closes and the companion ends; nothing is left behind.

This module imports neither NumPy nor torch.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
CAN_START = os.name == "posix" and bool(sys.executable)
"""Whether companions can be started here; elsewhere all work is done in one process."""


@dataclass(frozen=True)
class Companion:
    """A process and our end of the pipe to it."""

    process: "subprocess.Popen[bytes]"
    pipe: "Connection[Any, Any]"

    def describe_end(self) -> str:
        """Say how the process ended, which it has or is about to."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        code = self.process.returncode
        if code is not None and code < 0:
            return f"killed by signal {-code}"
        return f"exit code {code}"


def start(
    target: str, *, files: Sequence[int] = (), environment: Mapping[str, str] | None = None
) -> Companion:
    """Start a process that calls `target` ("module:function") with its end of a pipe.

    Args:
        target: The function; it is called with a `Connection` and ends when that is closed.
        files: File descriptors that the process inherits under the same numbers.
        environment: Variables that differ from ours.

    Raises:
        OSError: The system does not start another process.
    """
    ours, theirs = Pipe()
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from dtpt.processes import run; "
        f"run({theirs.fileno()}, {target!r})"
    )
    flags = [f"-W{option}" for option in sys.warnoptions]
    try:
        with _without_interrupts():
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [sys.executable, *flags, "-c", code],
                pass_fds=(theirs.fileno(), *files),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a library may print must not mix with our results
                env={**os.environ, **(environment or {})},
            )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()  # then a dead companion, or our death, closes the pipe
    return Companion(process, ours)


def stop(companions: Iterable[Companion], seconds: float = 0.0) -> None:
    """Close the pipes, on which the processes end; those that do not end in time are killed."""
    ending = list(companions)
    for companion in ending:
        companion.pipe.close()
    deadline = time.monotonic() + seconds
    for companion in ending:
        try:
            companion.process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            companion.process.kill()
            companion.process.wait()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let a process start with interrupts blocked: terminals and Slurm send them to all processes.

    In this process an interrupt that arrives meanwhile is only delayed.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(descriptor: int, target: str) -> None:
    """Run in a companion: call the function until the pipe is closed."""
    for number in INTERRUPTS:  # who started us answers them and then closes the pipe
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    module, _, name = target.partition(":")
    with Connection(descriptor) as pipe, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        getattr(import_module(module), name)(pipe)
