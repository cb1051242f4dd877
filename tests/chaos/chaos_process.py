"""One command in a child process that is warm already, on which faults act.

Importing torch takes seconds, so children are forked from a process in which it is loaded; no
thread has been started there.
"""

import atexit
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

LONG = 600.0  # seconds; a loaded machine takes its time


@dataclass
class Process:
    """A running or ended command."""

    pid: int
    pipes: list[int]  # standard output and standard error; -1 where closed
    printed: list[bytes] = field(default_factory=lambda: [b"", b""])
    started: float = field(default_factory=time.monotonic)
    code: int | None = None  # negative: the signal that ended it

    @property
    def stdout(self) -> str:
        return self.printed[0].decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.printed[1].decode("utf-8", "replace")

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def is_left(self) -> bool:
        """Whether any process of its group is still there."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def start(
    words: Sequence[object], folder: Path, *, before: Callable[[], object] = lambda: None
) -> Process:
    """Start a command in a folder; `before` is called in its process."""
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        for number, end in ((1, out_write), (2, err_write)):
            os.dup2(end, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, 100)
        _command([str(word) for word in words], folder, before)
    with contextlib.suppress(OSError):  # whoever is first
        os.setpgid(pid, pid)
    os.close(out_write)
    os.close(err_write)
    return Process(pid, [out_read, err_read])


def _command(words: list[str], folder: Path, before: Callable[[], object]) -> NoReturn:
    code = 99
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # the parent's streams remember what they wrote to
        sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115
        os.chdir(folder)
        os.environ.update({"DTPT_CACHE": "cache", "DTPT_CONFIG": "config", "OMP_NUM_THREADS": "1"})
        sys.argv = ["dtpt", *words]
        atexit._clear()
        from dtpt.cli.main import run

        before()
        try:
            run()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
    finally:
        os._exit(code)


def wait(*processes: Process, until: Callable[[], bool] = lambda: False) -> None:
    """Read what processes print until all have ended, or a condition holds."""
    deadline = time.monotonic() + LONG
    while any(process.code is None for process in processes) and not until():
        if time.monotonic() > deadline:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"hang: {[process.stderr[-500:] for process in processes]}")
        for process in processes:
            _step(process)


def _step(process: Process) -> None:
    if process.code is None:
        ended, status = os.waitpid(process.pid, os.WNOHANG)
        if ended:
            process.code = os.waitstatus_to_exitcode(status)
    open_ends = [number for number in process.pipes if number >= 0]
    ready, _, _ = select.select(open_ends, [], [], 0.01 if process.code is None else 0)
    for number in ready:
        os.set_blocking(number, False)  # helpers that are left may still hold the other end
        with contextlib.suppress(BlockingIOError):
            while part := os.read(number, 1 << 16):
                process.printed[process.pipes.index(number)] += part
    if process.code is not None:
        close_pipe(process, 0)
        close_pipe(process, 1)


def close_pipe(process: Process, index: int) -> None:
    if process.pipes[index] >= 0:
        os.close(process.pipes[index])
    process.pipes[index] = -1


def until_alone(process: Process) -> bool:
    """Wait for what a dead process started; return whether it has ended."""
    deadline = time.monotonic() + LONG
    while process.is_left() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not process.is_left()
