"""Every error that dtpt raises on purpose, and how foreign errors become text.

One base class lets callers catch "what dtpt refuses" without catching bugs. A message names the
file or value at fault and the remedy; the command line prints it in one line, without a traceback.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

LONGEST_VALUE = 80

# Pydantic's messages in our words: pattern, replacement. The first pattern that matches counts.
_REASONS = (
    (r"^Field required$", "is missing"),
    (r"^Extra inputs are not permitted$", "is not a known field"),
    (r"^(?:Value error|Assertion failed), (.*)$", r"\1"),
    (r"^Input should be a valid integer\b.*$", "must be a whole number"),
    (r"^Input should be a valid dictionary\b.*$", "must be an object"),
    (r"^Input should be (an? )valid (\w+)(?:,.*)?$", r"must be \1\2"),
    (r"^\w+ should (.*?)(?: after validation)?(?:, not \d+)?$", r"must \1"),
)
# There is no value, or it is the whole document, or the validator's own message names it.
_WITHOUT_VALUE = {"missing", "extra_forbidden", "json_invalid", "value_error", "assertion_error"}
# Where a field has several types, pydantic adds the one it tried to the path.
_UNION_BRANCH = re.compile(r"^(constrained-)?(int|float|str|bool|none)$|\[")


class _Invalid(Protocol):
    """Pydantic's `ValidationError`; FastAPI's `RequestValidationError` has the same method."""

    def errors(self) -> Sequence[Any]: ...


def short_repr(value: object) -> str:
    """Return a value as one short line for a message.

    Example:
        >>> short_repr("cat"), short_repr([0] * 99)[-7:]
        ("'cat'", '0, 0, …')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def explain(error: _Invalid, *, names: Mapping[str, str] | None = None) -> str:
    """Return the first error of a pydantic validation as "field: reason", one line, no full stop.

    Args:
        error: The error.
        names: What fields are called where their values come from, such as --views for views.

    Example:
        >>> import pydantic
        >>> try:
        ...     pydantic.TypeAdapter(dict[str, int]).validate_python({"views": "many"})
        ... except pydantic.ValidationError as error:
        ...     explain(error)
        "views: must be a whole number, got 'many'"
    """
    errors = error.errors()
    first, path = errors[0], _path(errors[0])
    reasons = dict.fromkeys(_reason(other["msg"]) for other in errors if _path(other) == path)
    reason = " or ".join(reasons).replace(" or must be ", " or ")
    if first["type"] not in _WITHOUT_VALUE:
        reason += f", got {short_repr(first['input'])}"
    name = (names or {}).get(path.partition(".")[0], path)
    return f"{name}: {reason}" if name else reason


def _path(error: Mapping[str, Any]) -> str:
    parts = [str(part) for part in error["loc"]]
    return ".".join(part for part in parts if not _UNION_BRANCH.search(part))


def _reason(message: str) -> str:
    for pattern, replacement in _REASONS:
        if re.match(pattern, message, re.DOTALL):
            message = re.sub(pattern, replacement, message, flags=re.DOTALL)
            break
    return " ".join(message.split()).rstrip(".")


def os_error(error: Exception) -> str:
    """Return the system's reason alone, such as "No space left on device", without a full stop.

    Example:
        >>> os_error(FileNotFoundError(2, "No such file or directory", "runs/a"))
        'No such file or directory'
    """
    return str(getattr(error, "strerror", None) or error).rstrip(".")


class DtptError(Exception):
    """Base class of all errors that dtpt raises on purpose.

    A message names arguments as Python takes them, in backticks: `` `activation='gelu'` ``.
    """

    def with_flags(self) -> str:
        """Return the message with arguments as the command line takes them.

        Example:
            >>> DtptError("Pass `max_model_size=20` or `trust=True`.").with_flags()
            'Pass --max-model-size 20 or --trust.'
        """
        return _ARGUMENT.sub(_as_flag, str(self))


_ARGUMENT = re.compile(r"`([a-z_]+)=('?)([^`']*)\2`")


def _as_flag(argument: re.Match[str]) -> str:
    name, value = flag(argument[1]), argument[3]
    return name if value in ("", "True") else f"{name} {value}"


def flag(name: str) -> str:
    """Return the flag of an option.

    Example:
        >>> flag("lambda_"), flag("data_root")
        ('--lambda', '--data-root')
    """
    return "--" + name.rstrip("_").replace("_", "-")


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


class ModelError(DtptError):
    """A model that lacks what an operation needs, such as a text tower."""


class DeviceError(DtptError):
    """A device that this machine does not have."""


class TokenizerError(DtptError):
    """A text that cannot be tokenised within the model's context."""


class ImageError(DtptError):
    """An image that cannot be read: damaged, too large, or not an image."""


class WorkerError(DtptError):
    """A worker process that ended, or failed for a reason that is not the caller's."""


class PromptError(DtptError):
    """A class list, template or context from which no prompt can be made."""


class PromptWarning(UserWarning):
    """Prompts that can be made but are probably not what the caller wants."""


class MethodError(DtptError):
    """A method, option or lambda that makes no sense."""


class MetricError(DtptError):
    """Numbers from which no metric can be computed."""


class CalibrationError(DtptError):
    """A calibration that cannot be fitted or read, or is for another setup."""


class DatasetError(DtptError):
    """A data set that is missing, incomplete or contradicts its catalogue entry."""


class RunError(DtptError):
    """A run that cannot start, continue, be saved or be merged."""


class ReportError(DtptError):
    """Runs from which no honest report can be made."""
