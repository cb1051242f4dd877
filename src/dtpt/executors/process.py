"""Worker processes: Python processes that run one function, connected to this one by a pipe.

They are started as programs, not by `multiprocessing`: nothing of the caller's script is imported
in them, so a script needs no `if __name__ == "__main__"`, and a worker may start others. When the
parent dies, however that happens, the pipe closes and the worker ends; nothing is left behind.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
CAN_START = os.name == "posix" and bool(sys.executable)  # elsewhere all work is done in one process


@dataclass(frozen=True)
class WorkerProcess:
    """A process and our end of the pipe to it."""

    process: "subprocess.Popen[bytes]"
    pipe: "Connection[Any, Any]"

    def exit_reason(self) -> str:
        """Describe how the process ended, which it has or is about to."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1.0)
        code = self.process.returncode
        return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def start(
    target: str, *, files: Sequence[int] = (), environment: Mapping[str, str] | None = None
) -> WorkerProcess:
    """Start a process that calls `target` ("module:function") with its end of a pipe.

    It inherits the file descriptors `files`, and our environment with some other variables.
    """
    ours, theirs = Pipe()
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from dtpt.executors.process import run; "
        f"run({theirs.fileno()}, {target!r})"
    )
    flags = [f"-W{option}" for option in sys.warnoptions]
    # terminals and Slurm send interrupts to all processes; here one that arrives is only delayed
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
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
        theirs.close()  # then a dead worker, or our death, closes the pipe
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    return WorkerProcess(process, ours)


def stop(processes: Iterable[WorkerProcess], seconds: float = 0.0) -> None:
    """Close the pipes, on which the processes end; kill those that do not end in time."""
    ending = list(processes)
    for worker in ending:
        worker.pipe.close()
    deadline = time.monotonic() + seconds
    for worker in ending:
        try:
            worker.process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def run(descriptor: int, target: str) -> None:
    """Run in the worker process: call the function until the pipe is closed."""
    for number in INTERRUPTS:  # the parent handles them and then closes the pipe
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    from dtpt.terminal import guarded

    module, _, name = target.partition(":")
    with (
        guarded(),
        Connection(descriptor) as pipe,
        suppress(EOFError, BrokenPipeError, ConnectionResetError),
    ):
        getattr(import_module(module), name)(pipe)
