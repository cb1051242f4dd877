"""Where data lie, and which paths from other people's files are followed."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dtpt.errors import DatasetError

ROOT_VARIABLE = "DTPT_DATA"
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".jp2", ".avif")
)


def data_root(given: Path | str | None) -> Path | None:
    """Return the folder of all data sets: the argument, or else `$DTPT_DATA`, or None."""
    chosen = given if given is not None else os.environ.get(ROOT_VARIABLE)
    return Path(chosen).expanduser() if chosen else None


def inside(folder: Path, relative: str, *, listed_in: str) -> Path:
    """Join a path from a file onto its folder, refusing everything that leads out of it.

    The check is on the spelling, not on the file system: links that the user has put into the
    folder (as CoOp's instructions advise) are followed.

    Args:
        folder: The folder that the path must stay in.
        relative: Path with forward slashes, as it stands in the file.
        listed_in: The file that names the path, for the message.
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
            f"{listed_in} lists the path {relative!r}, which does not stay inside {folder}; "
            "paths must be relative, with forward slashes and without '..'."
        )
    return folder.joinpath(*parts)


def is_image_name(name: str) -> bool:
    """Tell from the suffix whether a file is meant as an image; hidden files never are."""
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


def subfolders(folder: Path) -> list[str]:
    """Return the names of the visible folders inside `folder`, sorted by code point."""
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    except OSError as error:
        raise DatasetError(f"Cannot list {folder}: {error.strerror or error}.") from error


def image_files(folder: Path) -> Iterator[str]:
    """Yield the images below `folder` as relative paths with forward slashes, sorted."""
    found: list[str] = []
    for parent, names, leaves in os.walk(folder):
        names[:] = [name for name in names if not name.startswith(".")]
        found.extend(
            Path(parent, leaf).relative_to(folder).as_posix()
            for leaf in leaves
            if is_image_name(leaf)
        )
    yield from sorted(found)


def stray_files(folder: Path) -> int:
    """Count visible images that lie in `folder` itself, where only class folders belong."""
    with os.scandir(folder) as entries:
        return sum(1 for entry in entries if entry.is_file() and is_image_name(entry.name))
