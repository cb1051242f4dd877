"""The zip archives that torch writes, opened with suspicion.

torch stores data uncompressed, one member behind the other; only source code, which we never open,
is compressed. Whatever deviates (compression, sizes that exceed the file, overlaps, paths that
climb) is refused from the directory alone, before any member is read; so an archive can never yield
more bytes than it has on disk.
"""

import struct
import zipfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from dtpt.clip.loading.documents import open_file
from dtpt.errors import CheckpointError

MAX_MEMBERS = 50_000
MAX_DIRECTORY_BYTES = 16 << 20
MAX_TOTAL_BYTES = 8 << 30

_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64 = struct.Struct("<4sQ2H2L4Q")  # its 64-bit form
_LOCATOR64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")  # local file header


def is_archive(path: Path) -> bool:
    """Tell whether the file begins like a zip."""
    with open_file(path) as file:
        return file.read(4) == b"PK\x03\x04"


def check_archive(path: Path) -> zipfile.ZipFile:
    """Open an archive whose directory has passed every check; the caller closes it.

    Raises:
        CheckpointError: anything that torch would not have written.
    """
    try:
        _check_directory_size(path)
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path} is no intact zip archive: {error}") from error
    try:
        _check_members(archive, path)
    except CheckpointError:
        archive.close()
        raise
    return archive


def read_member(archive: zipfile.ZipFile, name: str, *, limit: int) -> bytes:
    """Return one member whole, its checksum verified.

    Raises:
        CheckpointError: no such member, more than `limit` bytes, or damaged.
    """
    try:
        info = archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:
            raise CheckpointError(f"{archive.filename}: {name} is compressed.")
        if info.file_size > limit:
            raise CheckpointError(
                f"{archive.filename}: {name} has {info.file_size} bytes; {limit} allowed."
            )
        return archive.read(info)
    except KeyError as error:
        raise CheckpointError(f"{archive.filename} has no member {name}.") from error
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"{archive.filename}: {name} is damaged: {error}") from error


def _check_directory_size(path: Path) -> None:
    """Bound the work of parsing the directory before the library parses it."""
    with open_file(path) as file:
        size = path.stat().st_size
        file.seek(max(0, size - _END.size - 0xFFFF))
        tail = file.read()
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < _END.size:
            raise CheckpointError(f"{path} is truncated: the archive's directory is missing.")
        _, _, _, _, count, length, _, _ = _END.unpack_from(tail, at)
        if tail[max(0, at - _LOCATOR64.size) : at].startswith(b"PK\x06\x07"):
            count, length = _sizes64(file, tail, at=at)
    if count > MAX_MEMBERS or length > min(size, MAX_DIRECTORY_BYTES):
        raise CheckpointError(f"{path} has too large a directory: {count} members, {length} bytes.")


def _sizes64(file: BinaryIO, tail: bytes, *, at: int) -> tuple[int, int]:
    """Return member count and directory bytes of the 64-bit record, which the library prefers."""
    offset = _LOCATOR64.unpack_from(tail, at - _LOCATOR64.size)[2]
    file.seek(min(offset, 1 << 62))
    record = file.read(_END64.size)
    if len(record) < _END64.size or record[:4] != b"PK\x06\x06":
        raise CheckpointError("The archive's 64-bit directory is malformed.")
    fields = _END64.unpack(record)
    return fields[7], fields[8]


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    infos = archive.infolist()
    if len({info.filename for info in infos}) != len(infos):
        raise CheckpointError(f"{path} has two members of the same name.")
    for info in infos:
        _check_member(info, path)
    total = sum(info.compress_size for info in infos)
    if total > min(path.stat().st_size, MAX_TOTAL_BYTES):
        raise CheckpointError(f"{path} declares {total} bytes of content, more than it can hold.")
    _check_overlaps(archive, path)


def _check_member(info: zipfile.ZipInfo, path: Path) -> None:
    name = info.orig_filename
    parts = PurePosixPath(name).parts
    if name.startswith("/") or ".." in parts or "\\" in name or ":" in name or "\0" in name:
        raise CheckpointError(f"{path} has a member whose name is a path: {name!r}.")
    stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
    if not stored and parts[1:2] != ("code",):
        raise CheckpointError(f"{path}: member {name!r} is compressed; torch stores data as it is.")
    if info.flag_bits & 0x1:
        raise CheckpointError(f"{path}: member {name!r} is encrypted.")


def _check_overlaps(archive: zipfile.ZipFile, path: Path) -> None:
    limit = archive.start_dir
    with open_file(path) as file:
        for info in sorted(archive.infolist(), key=lambda i: i.header_offset, reverse=True):
            file.seek(max(0, info.header_offset))
            header = file.read(_LOCAL.size)
            if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
                raise CheckpointError(f"{path}: member {info.filename!r} is not at its place.")
            fields = _LOCAL.unpack(header)
            end = info.header_offset + _LOCAL.size + fields[9] + fields[10] + info.compress_size
            if end > limit:
                raise CheckpointError(f"{path}: member {info.filename!r} overlaps another.")
            limit = info.header_offset
