"""OpenAI's `.pt` files: TorchScript archives, read without running or compiling their code.

Three layers, each suspicious of the one below. The zip archive: torch stores data uncompressed, one
member behind the other; only source code, which is never opened, is compressed. Whatever deviates
(compression, sizes beyond the file, overlaps, paths) is refused from the directory alone, so an
archive can never yield more bytes than it has on disk. The pickle `data.pkl`: Python's unpickler
can call anything; the interpreter here walks the opcodes itself (`pickletools` only splits them)
and accepts a short list of names, none of which is ever called: a class becomes a label, an object
a bag of attributes, a tensor a description of where its bytes are. The tensors: every description
is compared with the bytes that are really there before a tensor is built.
"""

import math
import pickletools
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import torch
from torch import Tensor

from dtpt.clip.config import Activation
from dtpt.clip.loading.formats import StoredTensor, Weights, open_file
from dtpt.errors import CheckpointError

MAX_MEMBERS = 50_000
MAX_DIRECTORY_BYTES = 16 << 20
MAX_TOTAL_BYTES = 8 << 30
MAX_PICKLE_BYTES = 8 << 20
MAX_OPCODES = 500_000  # OpenAI's largest model needs about a tenth
MAX_TENSORS = 20_000
MAX_DEPTH = 32
MAX_REREADS = 4  # how often all bytes of an archive may be read again through shared storages

# ---- the zip archive

_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64 = struct.Struct("<4sQ2H2L4Q")  # its 64-bit form
_LOCATOR64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")  # local file header


def is_archive(path: Path) -> bool:
    with open_file(path) as file:
        return file.read(4) == b"PK\x03\x04"


def check_archive(path: Path) -> zipfile.ZipFile:
    """Open an archive; refuse anything that torch would not have written. The caller closes it."""
    try:
        _check_directory_size(path)
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError(f"{path} is not an intact zip archive: {error}") from error
    try:
        _check_members(archive, path)
    except CheckpointError:
        archive.close()
        raise
    return archive


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
    """Return member count and bytes of the 64-bit directory, which the library prefers."""
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
        name, parts = info.orig_filename, PurePosixPath(info.orig_filename).parts
        if name.startswith("/") or ".." in parts or set(name) & set("\\:\0"):
            raise CheckpointError(f"{path} has a member whose name is a path: {name!r}.")
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        if not stored and parts[1:2] != ("code",):
            raise CheckpointError(f"{path}: member {name!r} is compressed; torch stores it as is.")
        if info.flag_bits & 0x1:
            raise CheckpointError(f"{path}: member {name!r} is encrypted.")
    total = sum(info.compress_size for info in infos)
    if total > min(path.stat().st_size, MAX_TOTAL_BYTES):
        raise CheckpointError(f"{path} declares {total} bytes of content, more than it can hold.")
    _check_overlaps(archive, path)


def _check_overlaps(archive: zipfile.ZipFile, path: Path) -> None:
    limit = archive.start_dir
    with open_file(path) as file:
        for info in sorted(archive.infolist(), key=lambda i: i.header_offset, reverse=True):
            file.seek(max(0, info.header_offset))
            header = file.read(_LOCAL.size)
            if len(header) < _LOCAL.size or header[:4] != b"PK\x03\x04":
                raise CheckpointError(f"{path}: member {info.filename!r} has no local header.")
            fields = _LOCAL.unpack(header)
            end = info.header_offset + _LOCAL.size + fields[9] + fields[10] + info.compress_size
            if end > limit:
                raise CheckpointError(f"{path}: member {info.filename!r} overlaps another.")
            limit = info.header_offset


def _read_member(archive: zipfile.ZipFile, name: str, *, limit: int) -> bytes:
    """Return one member whole, its checksum verified."""
    try:
        info = archive.getinfo(name)
        if info.file_size > limit:
            raise CheckpointError(f"{archive.filename}: {name} has more than {limit} bytes.")
        return archive.read(info)
    except KeyError as error:
        raise CheckpointError(f"{archive.filename} has no member {name}.") from error
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"{archive.filename}: {name} is damaged: {error}") from error


# ---- the pickle

STORAGE_DTYPES = {
    "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "DoubleStorage": "float64", "LongStorage": "int64", "IntStorage": "int32",
    "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
ALLOWED_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "collections OrderedDict",
    *(f"torch.jit._pickle build_{kind}list" for kind in ("int", "tensor", "double", "bool")),
    "torch.jit._pickle restore_type_tag",
    *(f"torch {name}" for name in STORAGE_DTYPES),
}


class _Label(str):
    """A global name, `module name`: the label of a class or function, never resolved."""


@dataclass(eq=False)
class _ScriptObject:
    """A scripted module: its class's name and its attributes."""

    kind: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _StorageRef:
    """Where a tensor's bytes are: member `data/<key>` with `numel` elements of `dtype`."""

    dtype: str
    key: str
    numel: int


@dataclass(frozen=True)
class _TensorRef:
    """A tensor that has not been built: offset and strides count elements of the storage."""

    storage: _StorageRef
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.storage.dtype)
        return dtype

    @property
    def storage_bytes(self) -> int:
        return self.storage.numel * self.torch_dtype.itemsize


_MARK = object()  # on the stack


class _Interpreter:
    """A stack, a memo and one method per family of opcodes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> object:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count >= MAX_OPCODES:
                raise ValueError(f"more than {MAX_OPCODES} opcodes")
            if opcode.name == "STOP":
                return self.pop()
            if opcode.name in _CONSTANTS:
                self.stack.append(_CONSTANTS[opcode.name])
            elif opcode.name in _LITERALS:
                self.stack.append(argument)
            elif opcode.name in _ACTIONS:
                _ACTIONS[opcode.name](self, argument)
            else:
                raise ValueError(f"the opcode {opcode.name} is not allowed")
        raise ValueError("it ends without a result")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value should be")
        return value

    def pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(values[::-1]))

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise ValueError("items for something that is not a dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | int):
                raise ValueError(f"a dict key of type {type(key).__name__}")
            target[key] = value

    def append(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError("items for something that is not a list")
        self.stack[-1].extend(values)

    def global_(self, argument: Any) -> None:
        if not argument.startswith("__torch__") and argument not in ALLOWED_GLOBALS:
            raise ValueError(f"the global {argument.replace(' ', '.')} is not allowed")
        self.stack.append(_Label(argument))

    def new_object(self, _: Any) -> None:
        arguments, kind = self.pop(), self.pop()
        if not isinstance(kind, _Label) or not kind.startswith("__torch__") or arguments != ():
            raise ValueError("an object of something that is not a scripted class")
        self.stack.append(_ScriptObject(kind.replace(" ", ".")))

    def build(self, _: Any) -> None:
        state, target = self.pop(), self.stack[-1]
        if not isinstance(target, _ScriptObject) or type(state) is not dict:
            raise ValueError("state for something that is not a scripted object")
        target.attributes.update({str(key): value for key, value in state.items()})

    def reduce(self, _: Any) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Label) or not isinstance(arguments, tuple):
            raise ValueError("a call of something that is not a function")
        self.stack.append(_reduced(function, arguments))


def _reduced(function: str, arguments: tuple[Any, ...]) -> Any:
    """Describe what the allowed functions would return, instead of calling them."""
    short = function.partition(" ")[2]
    if short == "_rebuild_tensor_v2":
        return _tensor_ref(arguments)
    if short == "OrderedDict" and not arguments:
        return {}
    if short == "_rebuild_parameter" and isinstance(arguments[0], _TensorRef):
        return arguments[0]
    if function.startswith("torch.jit._pickle ") and isinstance(arguments[0], list | dict):
        return arguments[0]
    raise ValueError(f"the call of {function.replace(' ', '.')} is not allowed")


def _tensor_ref(arguments: tuple[Any, ...]) -> _TensorRef:
    storage, offset, shape, stride = arguments[:4]
    numbers = (offset, *shape, *stride)
    if not isinstance(storage, _StorageRef) or len(shape) != len(stride):
        raise ValueError("a tensor without storage or with mismatched strides")
    if any(type(number) is not int or not 0 <= number < 1 << 48 for number in numbers):
        raise ValueError("a tensor with an impossible shape")
    return _TensorRef(storage, offset, tuple(shape), tuple(stride))


def _storage_ref(identity: Any) -> _StorageRef:
    if not isinstance(identity, tuple) or len(identity) != 5 or identity[0] != "storage":
        raise ValueError("a persistent id that is not a storage")
    _, kind, key, _, numel = identity
    name = kind.partition(" ")[2] if isinstance(kind, _Label) else ""
    if name not in STORAGE_DTYPES or not isinstance(key, str) or not key.isascii():
        raise ValueError(f"a storage of unknown kind {name!r}")
    if not key.isdigit() or type(numel) is not int or not 0 <= numel < 1 << 48:
        raise ValueError(f"an impossible storage {key!r}")
    return _StorageRef(STORAGE_DTYPES[name], key, numel)


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {
    "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE",
}  # fmt: skip
_ACTIONS: dict[str, Callable[[_Interpreter, Any], None]] = {
    "PROTO": lambda *_: None,
    "FRAME": lambda *_: None,
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "BINPUT": lambda machine, key: machine.memo.update({key: machine.stack[-1]}),
    "LONG_BINPUT": lambda machine, key: machine.memo.update({key: machine.stack[-1]}),
    "BINGET": lambda machine, key: machine.stack.append(machine.memo[key]),
    "LONG_BINGET": lambda machine, key: machine.stack.append(machine.memo[key]),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "GLOBAL": _Interpreter.global_,
    "NEWOBJ": _Interpreter.new_object,
    "BUILD": _Interpreter.build,
    "REDUCE": _Interpreter.reduce,
    "BINPERSID": lambda machine, _: machine.stack.append(_storage_ref(machine.pop())),
}

# ---- the tensors


def read_torchscript(path: Path) -> tuple[Weights, Activation | None] | None:
    """Return every tensor of a scripted module under its dotted name, and the activation.

    The activation is what the archive itself states: the class of the modules called `gelu`. None
    for an archive that holds a state dict instead of a module.
    """
    archive = check_archive(path)
    if not any(name.split("/")[1:] == ["constants.pkl"] for name in archive.namelist()):
        archive.close()
        return None
    roots = [n.split("/")[0] for n in archive.namelist() if n.split("/")[1:] == ["data.pkl"]]
    if len(roots) != 1:
        raise CheckpointError(f"{path} has {len(roots)} members data.pkl instead of one.")
    order = f"{roots[0]}/byteorder"
    if order in archive.namelist() and _read_member(archive, order, limit=16) != b"little":
        raise CheckpointError(f"{path} was written on a big-endian machine.")
    data = _read_member(archive, f"{roots[0]}/data.pkl", limit=MAX_PICKLE_BYTES)
    try:
        module = _Interpreter().run(data)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: data.pkl is malformed or unsafe: {error}.") from error
    if not isinstance(module, _ScriptObject):
        raise CheckpointError(f"{path} holds no scripted module.")
    parts = dict(_walk(module, path))
    refs = {name: part for name, part in parts.items() if isinstance(part, _TensorRef)}
    total = sum(ref.storage_bytes for ref in refs.values())
    weights = {name: _stored(archive, roots[0], name=name, ref=ref) for name, ref in refs.items()}
    if total > MAX_REREADS * path.stat().st_size:
        raise CheckpointError(f"{path}: its tensors share storages too often ({total} bytes).")
    kinds = {
        part.kind.rpartition(".")[2]
        for name, part in parts.items()
        if isinstance(part, _ScriptObject) and name.endswith(".gelu")
    }
    return weights, named_activation(kinds)


def named_activation(kinds: set[str]) -> Activation | None:
    """Return the activation that the class names of `gelu` modules agree on, or None."""
    if {"QuickGELU", "GELU"} <= kinds:
        return None
    return "quick_gelu" if "QuickGELU" in kinds else "gelu" if "GELU" in kinds else None


def _walk(module: _ScriptObject, path: Path) -> Iterator[tuple[str, _TensorRef | _ScriptObject]]:
    """Yield all tensors and submodules with dotted names; cycles end at the depth limit."""
    pending: list[tuple[str, _ScriptObject, int]] = [("", module, 0)]
    count = 0
    while pending:
        prefix, parent, depth = pending.pop()
        for name, value in parent.attributes.items():
            if not isinstance(value, _TensorRef | _ScriptObject):
                continue
            count += 1
            if count > MAX_TENSORS or depth > MAX_DEPTH:
                raise CheckpointError(f"{path}: its modules are nested without end.")
            yield prefix + name, value
            if isinstance(value, _ScriptObject):
                pending.append((f"{prefix}{name}.", value, depth + 1))


def _stored(archive: zipfile.ZipFile, root: str, *, name: str, ref: _TensorRef) -> StoredTensor:
    """Describe one tensor after comparing what it declares with the bytes of its member."""
    member, numel = f"{root}/data/{ref.storage.key}", math.prod(ref.shape)
    try:
        actual = archive.getinfo(member).file_size
    except KeyError as error:
        raise CheckpointError(f"{archive.filename}: {name} has no bytes ({member}).") from error
    if actual != ref.storage_bytes:
        raise CheckpointError(
            f"{archive.filename}: {name} declares {ref.storage_bytes} bytes, {member} has {actual}."
        )
    last = ref.offset + sum((s - 1) * t for s, t in zip(ref.shape, ref.stride, strict=True))
    if numel and (last >= ref.storage.numel or numel > ref.storage.numel):
        raise CheckpointError(f"{archive.filename}: {name} {ref.shape} reaches beyond its bytes.")

    def read() -> Tensor:
        if numel == 0:
            return torch.empty(ref.shape, dtype=ref.torch_dtype)
        data = bytearray(_read_member(archive, member, limit=ref.storage_bytes))
        flat = torch.frombuffer(data, dtype=ref.torch_dtype)
        return flat.as_strided(ref.shape, ref.stride, ref.offset)

    return StoredTensor(ref.shape, ref.storage.dtype, read)
