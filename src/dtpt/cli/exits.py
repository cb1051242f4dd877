"""How a command ends: exit codes, one line instead of a traceback, signals."""

import contextlib
import errno
import io
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cyclopts import CycloptsError

from dtpt.cli.flags import explain_usage
from dtpt.errors import DtptError, os_error
from dtpt.files import printable

PARTIAL = 1  # part of the work succeeded: some images could not be read
FAILED = 2  # nothing was done, or not to its end; the message says what to change
INTERRUPTED = 130  # Ctrl-C; what was finished is stored
BROKEN_PIPE = 141  # the output was closed, as `| head` does
TERMINATED = 143  # SIGTERM

REMEDIES = {
    errno.ENOSPC: " Free some space and try again.",
    errno.EMFILE: " Allow more open files (`ulimit -n 1024`), or use fewer --workers.",
}


def explain(error: Exception) -> str | None:
    """Return one line for an error of the user's or of the machine; None for a bug of ours.

    Example:
        >>> explain(OSError(28, "No space left on device"))
        'OS error: No space left on device. Free some space and try again.'
        >>> explain(ZeroDivisionError("a bug"))
    """
    if isinstance(error, DtptError):
        return error.with_flags()
    if isinstance(error, CycloptsError):
        return explain_usage(error)
    if isinstance(error, OSError):
        where = f" ({printable(error.filename)})" if isinstance(error.filename, str) else ""
        return f"OS error: {os_error(error)}{where}.{REMEDIES.get(error.errno or 0, '')}"
    if isinstance(error, ImportError):
        return f"A package cannot be imported: {error}."
    if isinstance(error, MemoryError):
        return "Out of memory."
    return None


def open_streams() -> None:
    """Refuse a closed standard output; make any text printable on the streams that are open."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        # the next file that is opened would get the free number, and what others print with it
        for number in range(3):
            with contextlib.suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        end("The standard output is closed: redirect it to a file or to /dev/null.", FAILED)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # file names are bytes; any of them can be printed
            stream.reconfigure(errors="backslashreplace")


def end(message: str, code: int) -> NoReturn:
    """Print why the command ends, in one line; a broken output must not end it with a traceback."""
    if message:
        with contextlib.suppress(OSError):
            print(f"dtpt: {' '.join(message.splitlines())}", file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):  # Python flushes them once more when it ends
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


class Terminated(KeyboardInterrupt):
    """SIGTERM; handled like Ctrl-C, with its own exit code."""


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """End with the command that resumes when Ctrl-C or SIGTERM interrupts the block."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt as interruption:
        words = shlex.join(["dtpt", *(word for word in sys.argv[1:] if word != "--fresh")])
        print(
            f"\nInterrupted; what was finished is stored in {folder}. Resume with:\n  {words}",
            file=sys.stderr,
        )
        sys.exit(TERMINATED if isinstance(interruption, Terminated) else INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not break the clean-up
    raise Terminated
