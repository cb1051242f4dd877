"""Writes a file so that a reader, or a crash, sees the old content or the new, never a mixture.

Trade-offs, accepted knowingly:

* The new file replaces the old one, so hard links to the old one keep the old content. A symbolic
  link is followed, and its target is replaced.
* The file gets the permissions of a newly made file (umask), not those of the one it replaces.
* Two writers do not corrupt each other; the last rename wins.
* A process that is killed outright (SIGKILL, power cut) can leave a `.name.*.tmp` file behind.
* Where a folder cannot be synced (some network file systems) the rename itself may not survive a
  power cut; the content is still whole.
"""

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: temporary file beside it, fsync, rename, fsync of the folder.

    Args:
        path: The file to make or replace; its folder must exist.
        data: The whole content.

    Raises:
        OSError: The disk is full, the folder is missing or not writable; `path` is untouched and
            the temporary file removed.
    """
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        _write_and_sync(temporary, data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(target.parent)


def _write_and_sync(path: Path, data: bytes) -> None:
    """Makes `path` (which must not exist) with `data` and waits until it is on the disk."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Makes the rename durable; where folders cannot be opened or synced, it does nothing."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
