"""How a command ends: the exit codes, and one line instead of a traceback."""

import contextlib
import errno
import os
import sys
from typing import NoReturn

from cyclopts import CycloptsError

from dtpt.errors import DtptError, os_error
from dtpt.errors import explain as explain_invalid

PARTLY = 1  # part of the work succeeded: some pictures could not be read
REFUSED = 2  # nothing was done, or not to its end; the message says what to change
INTERRUPTED = 130  # Ctrl-C (SIGTERM: 143); what was finished is stored
NOBODY_READS = 141  # the output was closed, as `| head` does

REMEDIES = {
    errno.ENOSPC: " Free some space and try again.",
    errno.EMFILE: " Allow more open files (`ulimit -n 1024`), or use fewer --workers.",
}


def explain(error: Exception) -> str | None:
    """Return one sentence for an error of the user's or of the machine; None for a bug of ours.

    Example:
        >>> explain(OSError(28, "No space left on device"))
        'the system refuses: No space left on device. Free some space and try again.'
        >>> explain(ZeroDivisionError("a bug"))
    """
    if isinstance(error, DtptError):
        return str(error)
    if isinstance(error, CycloptsError):
        error.verbose = False
        return f"{' '.join(str(error).split())} See --help."
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        remedy = REMEDIES.get(error.errno or 0, "")
        return f"the system refuses: {os_error(error)}{where}.{remedy}"
    if isinstance(error, ImportError):
        return f"a part of the installation cannot be loaded: {error}."
    if isinstance(error, MemoryError):
        return "there is not enough memory."
    return _explain_value(error)


def _explain_value(error: Exception) -> str | None:
    """Explain a value that a record of ours refused, if that is what happened."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(error, pydantic.ValidationError):
        return None
    return f"{explain_invalid(error)}."


def end(message: str, code: int) -> NoReturn:
    """Say why the command ends, and never let a broken output end it with a traceback."""
    with contextlib.suppress(OSError):
        print(f"dtpt: {message}", file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):  # Python flushes them once more when it ends
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
