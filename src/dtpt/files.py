"""Files: reading that never blocks, atomic writing, printable paths, canonical JSON.

Reading. A path from a user may lead to a named pipe, a device or a socket, and reading those can
block for ever. `open_regular` and `read_limited` take regular files only.

Writing. After `write_atomically` or `open_atomically` a reader, or a crash, sees the old content or
the new, never a mixture. Accepted trade-offs:

* The new file replaces the old one, so hard links to the old one keep the old content. A symbolic
  link is followed, and its target is replaced.
* The file gets the permissions of a newly made file (umask), not those of the one it replaces.
* Two writers do not corrupt each other; the last rename wins.
* A process that is killed outright (SIGKILL, power cut) can leave a `.name.*.tmp` file behind.
* Where a folder cannot be synced (some network file systems) the rename itself may not survive a
  power cut; the content is still whole.
"""

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from dtpt.errors import OptionError, short_repr

DEEPEST = 64  # levels of JSON
LONGEST_NAME = 255  # bytes, of one part of a path
AnyPath = str | os.PathLike[str]

# Neither waits for the other end of a pipe nor makes a terminal ours; absent on some systems.
_READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# strings, and everything else that is no bracket
_BESIDE_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[^]["{}]++', re.DOTALL)
# Bytes that are not UTF-8; control characters, which terminals obey; marks that reorder a line.
_UNPRINTABLE = re.compile(
    "[\ud800-\udfff\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


class NotARegularFile(OSError):
    """A path to a folder, named pipe, device or socket; `strerror` names the kind."""


class FileTooLarge(OSError):
    """A file with more bytes than its reader takes; `strerror` names the limit."""


def as_path(value: object, what: str) -> Path:
    """Return a value from a caller as a path; errors call it `what`.

    Raises:
        OptionError: It is neither text nor a path object, or no file can have such a path.

    Example:
        >>> as_path("runs/pets", "folder").name
        'pets'
    """
    if not isinstance(value, str | os.PathLike) or "\0" in os.fsdecode(value):
        raise OptionError(f"The {what} must be a path, got {short_repr(value)}.")
    path = Path(os.fsdecode(value))
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts):
        raise OptionError(
            f"The {what} has a name that is too long for a file: {short_repr(value)}."
        )
    return path


def open_regular(path: AnyPath) -> io.BufferedReader:
    """Open a regular file for reading without blocking; symbolic links are followed.

    Raises:
        OSError: As `open`; `NotARegularFile` for a folder, named pipe, device or socket.

    Example:
        >>> open_regular("/")
        Traceback (most recent call last):
        dtpt.files.NotARegularFile: [Errno 22] is a folder, not a regular file: '/'
    """
    try:
        _require_regular(os.stat(path), path)  # first: merely opening some devices has effects
        descriptor = os.open(path, _READ_FLAGS)
    except ValueError as error:  # a NUL, or characters that no file name has
        raise OSError(errno.EINVAL, "no file can have this path", os.fspath(path)) from error
    try:
        _require_regular(os.fstat(descriptor), path)  # again: the path may lead elsewhere by now
        return os.fdopen(descriptor, "rb")
    except BaseException:
        with contextlib.suppress(OSError):  # a signal after fdopen has closed it already
            os.close(descriptor)
        raise


def read_limited(path: AnyPath, most_bytes: int) -> bytes:
    """Read a whole regular file; `FileTooLarge`, before more is held in memory, if it has more."""
    with open_regular(path) as stream:
        data = stream.read(most_bytes + 1)
    if len(data) > most_bytes:
        reason = f"has more than {most_bytes:,} bytes, the most that is read here"
        raise FileTooLarge(errno.EFBIG, reason, os.fspath(path))
    return data


def printable(path_or_text: AnyPath | bytes, *, keep: str = "") -> str:
    r"""Return a path or a text so that it can always be printed in one line, and stored.

    Bytes of a file name that are not UTF-8 come as `\xNN`, control characters and marks that
    reorder a line as `\uNNNN`; any other text stays as it is, so doing it twice does no harm.

    Args:
        path_or_text: The path or text.
        keep: Control characters that stay, such as newlines in a text of several lines.

    Example:
        >>> print(printable(b"caf\xe9.jpg"), printable("café.jpg"), printable("cat\33[2J"))
        caf\xe9.jpg café.jpg cat\u001b[2J
    """

    def escape(match: re.Match[str]) -> str:
        code = ord(match[0])  # Python decodes the byte 0xNN of a name, if not UTF-8, as U+DCNN
        if match[0] in keep:
            return match[0]
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"

    return _UNPRINTABLE.sub(escape, os.fsdecode(path_or_text))


def is_utf8(text: str) -> bool:
    """Return whether a text can be stored as UTF-8: it has no bytes of another encoding."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _require_regular(status: os.stat_result, path: AnyPath) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        reason = f"is {kind}, not a regular file"
        raise NotARegularFile(errno.EINVAL, reason, os.fspath(path))


def write_atomically(path: AnyPath, data: bytes) -> None:
    """Write the whole content of a file, as `open_atomically` does."""
    with open_atomically(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def open_atomically(path: AnyPath) -> Iterator[io.BufferedWriter]:
    """Open a file to be made or replaced when the block ends: fsync, rename, fsync of the folder.

    Raises:
        OSError: The disk is full, the folder is missing or not writable. Then, and after any other
            error in the block, `path` is untouched and the temporary file is removed.

    Example:
        >>> with open_atomically("rows.csv") as stream:
        ...     size = stream.write(b"a,b")
        >>> Path("rows.csv").read_bytes()
        b'a,b'
    """
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    # Makes the rename durable; some systems can neither open nor sync a folder.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def parse_json(data: bytes, *, most_values: int = 1_000_000) -> Any:
    """Parse JSON that somebody else wrote, in bounded memory (about 100 bytes for each value).

    Raises:
        ValueError: It is not JSON (nor are NaN, Infinity and 1e999), is nested deeper than
            `DEEPEST`, or has too many values.

    Example:
        >>> parse_json(b'{"id": Infinity}')
        Traceback (most recent call last):
        ValueError: Infinity is not a number
    """
    values = sum(data.count(mark) for mark in (b",", b"[", b"{"))  # before anything is allocated
    if values > most_values:
        raise ValueError(f"{values:,} values, of which {most_values:,} are allowed")
    if json_depth(data) > DEEPEST:
        raise ValueError("nested too deep")
    return json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)


def json_depth(data: bytes) -> int:
    """Return how deep lists and objects in JSON are nested, without parsing it.

    Example:
        >>> json_depth(b'{"a": [1, "[["]}')
        2
    """
    brackets = _BESIDE_BRACKETS.sub(b"", data)
    return max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets), default=0)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def canonical_json(content: Any) -> str:
    """Serialise JSON content so that equal content gives equal text, whatever its order."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(content: Any) -> str:
    """Return the sha256 (hex) of JSON content.

    Example:
        >>> digest({"a": 1, "b": [2]}) == digest({"b": (2,), "a": 1})
        True
    """
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
