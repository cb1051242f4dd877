"""Where data lie, which paths from other people's files are followed, and how lists are read.

A file name is bytes, and Python keeps those that are not UTF-8 as lone surrogates. So do paths
here, because the file must be opened; ids and messages are made printable.
"""

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dtpt.errors import DatasetError, os_error
from dtpt.files import printable, read_limited

ROOT_VARIABLE = "DTPT_DATA"
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".jp2", ".avif")
)
_MOST_LIST_BYTES = 1 << 28  # 256 MiB: a list of some millions of pictures


def data_root(given: Path | str | None) -> Path | None:
    """Return the folder of all data sets: the argument, or else `$DTPT_DATA`, or None."""
    chosen = given if given is not None else os.environ.get(ROOT_VARIABLE)
    return user_path(chosen) if chosen else None


def user_path(text: Path | str) -> Path:
    """Return a path that a user typed, with `~` replaced.

    Example:
        >>> user_path("~nobody-of-this-name/pets")
        Traceback (most recent call last):
        dtpt.errors.DatasetError: There is no home folder for '~nobody-of-this-name/pets'.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise DatasetError(f"There is no home folder for {printable(text)!r}.") from error


def read_list(path: Path, *, what: str) -> str:
    """Read a text file that lists something (classes, pictures, data sets): UTF-8, a regular file.

    Args:
        path: The file.
        what: What it is, for messages: "class list".
    """
    try:
        return read_limited(path, _MOST_LIST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"The {what} {printable(path)} is not UTF-8 (byte {error.start}); save it as UTF-8."
        ) from error
    except OSError as error:
        reason = os_error(error)
        raise DatasetError(f"The {what} {printable(path)} cannot be read: {reason}.") from error


def inside(folder: Path, relative: str, *, listed_in: Path | str) -> Path:
    """Join a path from a file onto its folder, refusing everything that leads out of it.

    The check is on the spelling, not on the file system: links that the user has put into the
    folder (as CoOp's instructions advise) are followed.

    Args:
        folder: The folder that the path must stay in.
        relative: Path with forward slashes, as it stands in the file.
        listed_in: The file that names the path, for the message.

    Example:
        >>> inside(Path("pets"), "../secret.jpg", listed_in="list.csv")
        Traceback (most recent call last):
        dtpt.errors.DatasetError: list.csv lists the path '../secret.jpg', which does not ...
    """
    parts = PurePosixPath(relative).parts
    unsafe = (
        not parts
        or relative.startswith("/")
        or "\\" in relative
        or "\0" in relative
        or ".." in parts
        or ":" in parts[0]
    )
    if unsafe:
        raise DatasetError(
            f"{printable(listed_in)} lists the path {relative!r}, which does not stay inside "
            f"{printable(folder)}; paths must be relative, with forward slashes and without '..'."
        )
    return folder.joinpath(*parts)


def is_image_name(name: str) -> bool:
    """Tell from the suffix whether a file is meant as an image; hidden files never are.

    Example:
        >>> is_image_name("a.JPEG"), is_image_name("notes.txt"), is_image_name("._a.jpg")
        (True, False, False)
    """
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


def subfolders(folder: Path) -> list[str]:
    """Return the names of the visible folders inside `folder`, sorted by code point."""
    return sorted(e.name for e in _entries(folder) if e.is_dir() and not e.name.startswith("."))


def stray_images(folder: Path) -> list[str]:
    """Return the images that lie in `folder` itself, where only class folders belong."""
    return sorted(e.name for e in _entries(folder) if is_image_name(e.name) and not e.is_dir())


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise _unlistable(error) from error


@dataclass(frozen=True)
class FolderContent:
    """What lies below a class folder, as sorted relative paths with forward slashes.

    Attributes:
        images: Files that end like an image.
        others: Visible files that do not, and linked folders, which are not entered.
    """

    images: tuple[str, ...]
    others: tuple[str, ...]


def folder_content(folder: Path) -> FolderContent:
    """List a class folder with all folders below it; hidden files and folders do not count."""
    images, others = [], []
    for parent, names, leaves in os.walk(folder, onerror=_refuse):
        names[:] = [name for name in names if not name.startswith(".")]
        base = os.path.relpath(parent, folder)
        prefix = "" if base == "." else f"{Path(base).as_posix()}/"
        others += [f"{prefix}{n}/" for n in names if os.path.islink(os.path.join(parent, n))]
        images += [prefix + leaf for leaf in leaves if is_image_name(leaf)]
        others += [
            prefix + leaf for leaf in leaves if not is_image_name(leaf) and not leaf.startswith(".")
        ]
    return FolderContent(tuple(sorted(images)), tuple(sorted(others)))


def _refuse(error: OSError) -> None:
    raise _unlistable(error) from error


def _unlistable(error: OSError) -> DatasetError:
    reason = os_error(error)
    return DatasetError(f"The folder {printable(error.filename)} cannot be listed: {reason}.")
