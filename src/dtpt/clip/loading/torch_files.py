"""Files that torch wrote: scripted modules (OpenAI's `.pt`) and state dicts, read by our own code.

Three layers, each suspicious of the one below. The container: a zip archive, which torch stores
uncompressed, one member behind the other (only source code, which is never opened, is compressed),
or the older format of consecutive pickles. Whatever deviates (compression, sizes beyond the file,
overlaps, paths) is refused from the directory alone, so a file can never yield more bytes than it
has on disk. The pickle is walked by `pickles`, which runs nothing. The tensors: offset, shape and
strides of every one are compared with the bytes that are really there; a tensor that has more
elements than bytes behind it (an expanded one, stride 0) is refused.
"""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import torch
from torch import Tensor

from dtpt.clip.config import Activation
from dtpt.clip.loading.formats import StoredTensor, Weights, open_file
from dtpt.clip.loading.pickles import ScriptObject, StorageRef, TensorRef, read_pickle
from dtpt.errors import CheckpointError, short_repr
from dtpt.files import printable

MAX_MEMBERS = 50_000
MAX_DIRECTORY_BYTES = 16 << 20
MAX_PICKLE_BYTES = 8 << 20
MAX_ATTRIBUTES = 100_000  # of all modules
MAX_NAME = 1000  # characters of a tensor's dotted name
MAX_DEPTH = 32
MAX_REREADS = 4  # how often all bytes of a file may be read again through shared storages
RESAVE = "Save the weights as safetensors (safetensors.torch.save_file) and load that file."


@dataclass(frozen=True)
class _Extent:
    """A range of bytes of a file, and their checksum where the file has one."""

    start: int
    size: int
    crc: int | None = None


def _read_extent(path: Path, extent: _Extent) -> bytearray:
    data = bytearray(extent.size)
    with open_file(path) as file:
        file.seek(extent.start)
        count = file.readinto(data)  # type: ignore[attr-defined]
    if count != extent.size or extent.crc not in (None, zlib.crc32(data)):
        raise CheckpointError(f"{printable(path)} is damaged at byte {extent.start:,}.")
    return data


# ---- the zip archive

_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64 = struct.Struct("<4sQ2H2L4Q")  # its 64-bit form
_LOCATOR64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")  # local file header


def is_archive(path: Path) -> bool:
    with open_file(path) as file:
        return file.read(4) == b"PK\x03\x04"


def _archive_members(path: Path) -> dict[str, _Extent]:
    """Return where an archive has its members; refuse what torch would not have written."""
    try:
        _check_directory_size(path)
        with zipfile.ZipFile(path) as archive:
            _check_members(archive.infolist(), path)
            return dict(_extents(archive, path))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{printable(path)} is not an intact zip archive: {error}") from error


def _check_directory_size(path: Path) -> None:
    """Bound the work of parsing the directory before the library parses it."""
    with open_file(path) as file:
        size = path.stat().st_size
        file.seek(max(0, size - _END.size - 0xFFFF))
        tail = file.read()
        at = tail.rfind(b"PK\x05\x06")
        if at < 0 or len(tail) - at < _END.size:
            raise CheckpointError(
                f"{printable(path)} is truncated: the archive's directory is missing."
            )
        _, _, _, _, count, length, _, _ = _END.unpack_from(tail, at)
        if tail[max(0, at - _LOCATOR64.size) : at].startswith(b"PK\x06\x07"):
            count, length = _sizes64(file, tail, at=at)
    if count > MAX_MEMBERS or length > min(size, MAX_DIRECTORY_BYTES):
        raise CheckpointError(
            f"{printable(path)} has too large a directory: {count} members, {length} bytes."
        )


def _sizes64(file: BinaryIO, tail: bytes, *, at: int) -> tuple[int, int]:
    """Return member count and bytes of the 64-bit directory, which the library prefers."""
    offset = _LOCATOR64.unpack_from(tail, at - _LOCATOR64.size)[2]
    file.seek(min(offset, 1 << 62))
    record = file.read(_END64.size)
    if len(record) < _END64.size or record[:4] != b"PK\x06\x06":
        raise CheckpointError("The archive's 64-bit directory is malformed.")
    fields = _END64.unpack(record)
    return fields[7], fields[8]


def _check_members(infos: list[zipfile.ZipInfo], path: Path) -> None:
    origin = printable(path)
    if len({info.filename for info in infos}) != len(infos):
        raise CheckpointError(f"{origin} has two members of the same name.")
    for info in infos:
        name, parts = info.orig_filename, PurePosixPath(info.orig_filename).parts
        member = f"member {short_repr(name)}"
        if name.startswith("/") or ".." in parts or set(name) & set("\\:\0"):
            raise CheckpointError(f"{origin}: the name of {member} is a path.")
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not stored and parts[1:2] != ("code",):
            raise CheckpointError(f"{origin}: {member} is compressed; torch stores it as is.")
        if info.flag_bits & 0x1:
            raise CheckpointError(f"{origin}: {member} is encrypted.")
    total = sum(info.compress_size for info in infos)
    if total > path.stat().st_size:
        raise CheckpointError(f"{origin} declares {total:,} bytes of content, more than it has.")


def _extents(archive: zipfile.ZipFile, path: Path) -> Iterator[tuple[str, _Extent]]:
    """Yield where every member has its bytes, from last to first; they must not overlap."""
    limit = archive.start_dir
    with open_file(path) as file:
        for info in sorted(archive.infolist(), key=lambda i: i.header_offset, reverse=True):
            what = f"{printable(path)}: member {short_repr(info.filename)}"
            file.seek(max(0, info.header_offset))  # a damaged directory gives negative ones
            header = file.read(_LOCAL.size) if info.header_offset >= 0 else b""
            if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
                raise CheckpointError(f"{what} has no local header.")
            fields = _LOCAL.unpack(header)
            start = info.header_offset + _LOCAL.size + fields[9] + fields[10]
            if start + info.compress_size > limit:
                raise CheckpointError(f"{what} overlaps another.")
            limit = info.header_offset
            yield info.filename, _Extent(start, info.compress_size, info.CRC)


# ---- contents


@dataclass(frozen=True)
class TorchFile:
    """What a file that torch wrote holds: tensors by name, described but not read."""

    weights: Weights
    is_script: bool = False
    activation: Activation | None = None  # as the classes of scripted `gelu` modules state it


def read_torch_file(path: Path) -> TorchFile:
    """Open a scripted module or a state dict; no code of the file is run.

    Training checkpoints that keep the weights under `state_dict` work too, and so does the
    `module.` prefix of data-parallel training.
    """
    content, storages, is_script = _read_zip(path) if is_archive(path) else _read_old(path)
    if isinstance(content, ScriptObject) and is_script:
        return _scripted(path, content, storages=storages)
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not content or is_script:
        raise CheckpointError(f"{printable(path)} holds no table of tensors. {RESAVE}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, TensorRef):
            raise CheckpointError(
                f"{printable(path)}: entry {short_repr(name)} is not a dense tensor. {RESAVE}"
            )
    refs = {name.removeprefix("module."): ref for name, ref in content.items()}
    return TorchFile(_stored_tensors(path, refs, storages=storages))


def _read_zip(path: Path) -> tuple[Any, dict[str, _Extent], bool]:
    """Return the content, the bytes of every storage by key, and whether it is TorchScript."""
    members, origin = _archive_members(path), printable(path)
    roots = [name.split("/")[0] for name in members if name.split("/")[1:] == ["data.pkl"]]
    if len(roots) != 1:
        raise CheckpointError(f"{origin} has {len(roots)} members data.pkl instead of one.")
    root, order = roots[0], members.get(f"{roots[0]}/byteorder")
    if order is not None and (order.size > 16 or _read_extent(path, order) != b"little"):
        raise CheckpointError(f"{origin} was written on a big-endian machine.")
    pickle = members[f"{root}/data.pkl"]
    if pickle.size > MAX_PICKLE_BYTES:
        raise CheckpointError(f"{origin}: data.pkl has more than {MAX_PICKLE_BYTES:,} bytes.")
    content, _ = _walk_pickle(io.BytesIO(_read_extent(path, pickle)), path)
    prefix = f"{root}/data/"
    storages = {n.removeprefix(prefix): e for n, e in members.items() if n.startswith(prefix)}
    return content, storages, f"{root}/constants.pkl" in members


def _walk_pickle(stream: BinaryIO, path: Path) -> tuple[Any, dict[str, StorageRef]]:
    try:
        return read_pickle(stream)
    except ValueError as error:
        reason = str(error)[:MAX_NAME]
        raise CheckpointError(
            f"{printable(path)}: its pickle is malformed or unsafe: {reason}. {RESAVE}"
        ) from error


_OLD_MAGIC, _OLD_VERSION = 0x1950A86A20F9469CFC6C, 1001


def _read_old(path: Path) -> tuple[Any, dict[str, _Extent], bool]:
    """Read the format of torch before 1.6, as `_read_zip`.

    It has five pickles (magic number, version, machine, content, keys of the storages), then each
    storage behind its number of elements.
    """
    with open_file(path) as file:
        stream = io.BytesIO(file.read(MAX_PICKLE_BYTES))
        for expected in (_OLD_MAGIC, _OLD_VERSION):
            if _walk_pickle(stream, path)[0] != expected:
                raise CheckpointError(f"{printable(path)} is a pickle, but not of torch. {RESAVE}")
        machine, _ = _walk_pickle(stream, path)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise CheckpointError(f"{printable(path)} was written on a big-endian machine.")
        content, refs = _walk_pickle(stream, path)
        keys, _ = _walk_pickle(stream, path)
        known = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
        if not known or len(keys) != len(refs) or set(keys) != refs.keys():
            raise CheckpointError(f"{printable(path)} does not list its storages.")
        ordered = [refs[key] for key in keys]
        return content, dict(_old_extents(file, ordered, start=stream.tell(), path=path)), False


def _old_extents(
    file: BinaryIO, storages: list[StorageRef], *, start: int, path: Path
) -> Iterator[tuple[str, _Extent]]:
    size = path.stat().st_size
    for ref in storages:
        file.seek(start)
        count = int.from_bytes(file.read(8), "little")
        extent = _Extent(start + 8, _storage_bytes(ref))
        start = extent.start + extent.size
        if count != ref.numel or start > size:
            raise CheckpointError(
                f"{printable(path)}: a storage of {ref.numel:,} elements is truncated or damaged."
            )
        yield ref.key, extent


# ---- modules


def _scripted(path: Path, module: ScriptObject, *, storages: Mapping[str, _Extent]) -> TorchFile:
    """Return every tensor of a scripted module under its dotted name, and the activation."""
    parts = dict(_walk_modules(module, path))
    refs = {name: part for name, part in parts.items() if isinstance(part, TensorRef)}
    kinds = {
        part.kind.rpartition(".")[2]
        for name, part in parts.items()
        if isinstance(part, ScriptObject) and name.endswith(".gelu")
    }
    weights = _stored_tensors(path, refs, storages=storages)
    return TorchFile(weights, is_script=True, activation=named_activation(kinds))


def named_activation(kinds: set[str]) -> Activation | None:
    """Return the activation that the class names of `gelu` modules agree on, or None."""
    if {"QuickGELU", "GELU"} <= kinds:
        return None
    return "quick_gelu" if "QuickGELU" in kinds else "gelu" if "GELU" in kinds else None


def _walk_modules(
    module: ScriptObject, path: Path
) -> Iterator[tuple[str, TensorRef | ScriptObject]]:
    """Yield all tensors and submodules with dotted names; cycles end at the limits."""
    pending: list[tuple[str, ScriptObject]] = [("", module)]
    count = 0
    while pending:
        prefix, parent = pending.pop()
        count += len(parent.attributes)
        if count > MAX_ATTRIBUTES or prefix.count(".") > MAX_DEPTH:
            raise CheckpointError(f"{printable(path)}: its modules are nested without end.")
        for name, value in parent.attributes.items():
            if not isinstance(value, TensorRef | ScriptObject):
                continue
            if not isinstance(name, str) or len(prefix) + len(name) > MAX_NAME:
                raise CheckpointError(f"{printable(path)} has an attribute {short_repr(name)}.")
            yield prefix + name, value
            if isinstance(value, ScriptObject):
                pending.append((f"{prefix}{name}.", value))


# ---- tensors


def _dtype(ref: StorageRef) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, ref.dtype)
    return dtype


def _storage_bytes(ref: StorageRef) -> int:
    return ref.numel * _dtype(ref).itemsize


def _stored_tensors(
    path: Path, refs: Mapping[str, TensorRef], *, storages: Mapping[str, _Extent]
) -> Weights:
    spans = {
        name: _span(
            ref, storages.get(ref.storage.key), what=f"{printable(path)}: {name[:MAX_NAME]}"
        )
        for name, ref in refs.items()
    }
    total = sum(span.size for span in spans.values())
    if total > MAX_REREADS * path.stat().st_size:
        raise CheckpointError(
            f"{printable(path)}: its tensors share storages too often ({total:,} bytes)."
        )
    return {name: _stored(path, ref, span=spans[name]) for name, ref in refs.items()}


def _span(ref: TensorRef, extent: _Extent | None, *, what: str) -> _Extent:
    """Return the bytes between a tensor's first and last element, after comparing what it declares.

    No tensor has more elements than there are in that range, so none takes more memory than bytes
    on disk. The whole range of a storage has a checksum.
    """
    declared, numel = _storage_bytes(ref.storage), math.prod(ref.shape)
    if extent is None or extent.size != declared:
        there = 0 if extent is None else extent.size
        raise CheckpointError(f"{what} declares {declared:,} bytes, its storage has {there:,}.")
    last = ref.offset + sum((s - 1) * t for s, t in zip(ref.shape, ref.stride, strict=True))
    if numel and (last >= ref.storage.numel or numel > last + 1 - ref.offset):
        raise CheckpointError(f"{what} {ref.shape} declares more elements than its storage has.")
    size = _dtype(ref.storage).itemsize
    count = last + 1 - ref.offset if numel else 0
    if count == ref.storage.numel:
        return extent
    return _Extent(extent.start + ref.offset * size, count * size)


def _stored(path: Path, ref: TensorRef, *, span: _Extent) -> StoredTensor:
    def read() -> Tensor:
        if not span.size:
            return torch.empty(0)
        flat = torch.frombuffer(_read_extent(path, span), dtype=_dtype(ref.storage))
        return flat.as_strided(ref.shape, ref.stride)

    return StoredTensor(ref.shape, ref.storage.dtype, read)
