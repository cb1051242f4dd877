"""Unpacking an archive that somebody else made, without leaving the folder that is given.

Zip and tar (plain or gzip). Refused as a whole: absolute paths, `..`, links, devices, encrypted
members, a file twice, and more bytes than are allowed, which are counted while they are written.
"""

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

from dtpt.data.layouts import inside
from dtpt.errors import DatasetError, os_error
from dtpt.files import open_regular, printable

MOST_MEMBERS = 3_000_000
MOST_HEADER = 1 << 24  # bytes that a tar file may ask for at once
CHUNK = 1 << 20
JUNK = ("__MACOSX", ".DS_Store")  # what archivers add
GZIP = b"\x1f\x8b"
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError)

Member = tuple[str, IO[bytes]]
Place = Callable[[str], str]
"""From a member's name to its path below the folder; empty leaves it out."""


class DamagedArchive(DatasetError):
    """An archive that ends early, or is none."""


def unpack(
    archive: Path, folder: Path, *, most_bytes: int, place: Place = lambda name: name
) -> int:
    """Unpack the files of an archive below a folder and return their number.

    Raises:
        DatasetError: The archive is damaged, hostile, or needs more than `most_bytes`.
    """
    where, left, count = printable(archive), most_bytes, 0
    try:
        with ExitStack() as stack:
            stream = stack.enter_context(open_regular(archive))
            is_zip = zipfile.is_zipfile(stream)
            stream.seek(0)
            for name, content in (_zip if is_zip else _tar)(stream, where, most_bytes=most_bytes):
                target = inside(folder, name, listed_in=archive)
                if any(part in JUNK or part.startswith("._") for part in Path(name).parts):
                    continue
                if relative := place(name):
                    target = inside(folder, relative, listed_in=archive)
                    left -= _write(target, content, most=left, where=where)
                    count += 1
    except _BROKEN as error:
        raise DamagedArchive(f"{where} is damaged, or no zip or tar file: {error}.") from error
    except OSError as error:
        raise DatasetError(f"{where} cannot be unpacked: {os_error(error)}.") from error
    return count


def _write(target: Path, content: IO[bytes], *, most: int, where: str) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    try:
        stream = target.open("xb")
    except FileExistsError:
        raise DatasetError(f"{where} has {printable(target.name)} twice.") from None
    with stream:
        while data := content.read(CHUNK):
            written += len(data)
            if written > most:
                raise DatasetError(f"{where} unpacks to more than its size allows; not unpacked.")
            stream.write(data)
    return written


def _zip(stream: IO[bytes], where: str, *, most_bytes: int) -> Iterator[Member]:
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        size = sum(member.file_size for member in members)
        _check_size(where, len(members), size=size, most_bytes=most_bytes)
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or member.flag_bits & 1:
                raise DatasetError(f"{where} has a link or an encrypted file: {member.filename!r}.")
            if not member.is_dir():
                with archive.open(member) as content:
                    yield member.filename, content


def _tar(stream: IO[bytes], where: str, *, most_bytes: int) -> Iterator[Member]:
    is_packed = stream.read(2) == GZIP
    stream.seek(0)
    with ExitStack() as stack:
        packed = stack.enter_context(gzip.GzipFile(fileobj=stream)) if is_packed else None
        bounded = _Bounded(cast("IO[bytes]", packed or stream), where)
        archive = stack.enter_context(tarfile.open(fileobj=bounded, mode="r:"))
        size = 0
        for count, member in enumerate(archive, start=1):
            size += member.size
            _check_size(where, count, size=size, most_bytes=most_bytes)
            if member.isdir():
                continue
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                raise DatasetError(f"{where} has a link or a device: {printable(member.name)!r}.")
            yield member.name.removeprefix("./"), content


def _check_size(where: str, members: int, *, size: int, most_bytes: int) -> None:
    if members > MOST_MEMBERS or size > most_bytes:
        raise DatasetError(
            f"{where} declares {members:,} files of {size / 1e9:.1f} GB, more than the "
            f"{most_bytes / 1e9:.1f} GB that its size allows; not unpacked."
        )


class _Bounded(io.RawIOBase):
    """A stream of which no header can ask for much at once."""

    def __init__(self, inner: IO[bytes], where: str) -> None:
        self._inner, self._where = inner, where

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MOST_HEADER:
            raise DatasetError(f"{self._where} has a header that is too large; not unpacked.")
        return self._inner.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()
