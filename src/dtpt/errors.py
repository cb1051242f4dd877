"""Every error that dtpt raises on purpose.

One base class lets callers catch "what dtpt refuses" without catching bugs. A message names the
file or value at fault and the remedy; the command line prints it in one line, without a traceback.
"""

import difflib
from collections.abc import Iterable

LONGEST_VALUE = 80


def shown(value: object) -> str:
    """Return a wrong value as one short line for a message.

    Example:
        >>> shown("cat"), shown([0] * 99)[-7:]
        ("'cat'", '0, 0, …')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


class DtptError(Exception):
    """Base class of all errors that dtpt raises on purpose."""


class UnknownName(DtptError):
    """A name (model, method, data set, ...) that is in none of our tables."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        nearest = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
        suggestion = f" Did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(f"Unknown {kind} {name!r}.{suggestion}{' ' + hint if hint else ''}")


class OptionError(DtptError):
    """An option with a value that makes no sense, or one that is missing."""


class CheckpointError(DtptError):
    """A checkpoint that is missing, damaged, unsafe or does not fit its config."""


class DeviceError(DtptError):
    """A device that this machine does not have."""


class TokenizerError(DtptError):
    """A text that cannot be tokenised within the model's context."""


class ImageError(DtptError):
    """An image that cannot be read: damaged, too large, or no image at all."""


class WorkerError(DtptError):
    """A process beside this one that ended, or failed for a reason that is not the caller's."""


class PromptError(DtptError):
    """A class list, template or context from which no prompt can be made."""


class PromptWarning(UserWarning):
    """Prompts that can be made but hardly mean what the caller wants."""


class MethodError(DtptError):
    """A method, option or lambda that makes no sense."""


class MetricError(DtptError):
    """Numbers from which no metric can be computed."""


class PromiseError(DtptError):
    """A promise that cannot be made, read or kept by what it is applied to."""


class DatasetError(DtptError):
    """A data set that is missing, incomplete or contradicts its catalogue entry."""


class RunError(DtptError):
    """A run that cannot start, continue, be saved or be merged."""


class ReportError(DtptError):
    """Runs from which no honest report can be made."""


class BenchmarkError(DtptError):
    """A benchmark that cannot be run as asked."""
