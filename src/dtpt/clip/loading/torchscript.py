"""OpenAI's `.pt` files: TorchScript archives, read without running or compiling their code.

The archive's `code/` is never opened. `data.pkl` is interpreted as data (see `script_pickle`), and
every tensor it describes is compared with the bytes that are really there before it is built.
"""

import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dtpt.clip.config import Activation
from dtpt.clip.loading.archive import check_archive, read_member
from dtpt.clip.loading.script_pickle import ScriptObject, TensorRef, interpret
from dtpt.clip.loading.tensors import StoredTensor, Weights
from dtpt.errors import CheckpointError

MAX_PICKLE_BYTES = 8 << 20
MAX_TENSORS = 20_000
MAX_DEPTH = 32
MAX_REREADS = 4  # how often all bytes of an archive may be read over again through shared storages


@dataclass(frozen=True)
class ScriptArchive:
    """What a TorchScript archive holds.

    Attributes:
        weights: every tensor attribute of every module, under its dotted name.
        activation: what the archive itself says: the class of the modules called `gelu`; None when
            it says nothing.
    """

    weights: Weights
    activation: Activation | None


def is_torchscript(path: Path) -> bool:
    """Tell whether a checked archive holds a scripted module rather than a state dict."""
    with check_archive(path) as archive:
        return any(name.split("/")[1:] == ["constants.pkl"] for name in archive.namelist())


def read_torchscript(path: Path) -> ScriptArchive:
    """Open a TorchScript archive as data.

    Raises:
        CheckpointError: the archive is damaged, hostile, or holds no module.
    """
    archive = check_archive(path)
    root = _root(archive, path)
    _check_byte_order(archive, root)
    data = read_member(archive, f"{root}/data.pkl", limit=MAX_PICKLE_BYTES)
    module = interpret(data, origin=str(path))
    if not isinstance(module, ScriptObject):
        raise CheckpointError(f"{path} holds no scripted module.")
    refs: dict[str, TensorRef] = {}
    kinds: set[str] = set()
    for name, value in _walk(module, path):
        if isinstance(value, TensorRef):
            refs[name] = value
        elif name.endswith(".gelu"):
            kinds.add(value.kind.rpartition(".")[2])
    weights = {name: _stored(archive, root, name=name, ref=ref) for name, ref in refs.items()}
    _check_rereads(list(refs.values()), path)
    return ScriptArchive(weights, named_activation(kinds))


def _root(archive: zipfile.ZipFile, path: Path) -> str:
    roots = [n.split("/")[0] for n in archive.namelist() if n.split("/")[1:] == ["data.pkl"]]
    if len(roots) != 1:
        raise CheckpointError(f"{path} has {len(roots)} members data.pkl instead of one.")
    return roots[0]


def _check_byte_order(archive: zipfile.ZipFile, root: str) -> None:
    name = f"{root}/byteorder"
    if name in archive.namelist() and read_member(archive, name, limit=16) != b"little":
        raise CheckpointError(f"{archive.filename} was written on a big-endian machine.")


def _walk(module: ScriptObject, path: Path) -> Iterator[tuple[str, TensorRef | ScriptObject]]:
    """Yield all tensors and submodules with dotted names; cycles end at the depth limit."""
    pending: list[tuple[str, ScriptObject, int]] = [("", module, 0)]
    count = 0
    while pending:
        prefix, parent, depth = pending.pop()
        for name, value in parent.attributes.items():
            if not isinstance(value, TensorRef | ScriptObject):
                continue
            count += 1
            if count > MAX_TENSORS or depth > MAX_DEPTH:
                raise CheckpointError(f"{path}: its modules are nested without end.")
            yield prefix + name, value
            if isinstance(value, ScriptObject):
                pending.append((f"{prefix}{name}.", value, depth + 1))


def named_activation(kinds: set[str]) -> Activation | None:
    """Return the activation that class names agree on; torch appends nothing but digits to them."""
    names = {"QuickGELU": "quick_gelu", "GELU": "gelu"}
    found = {names[kind] for kind in kinds if kind in names}
    if found == {"quick_gelu"}:
        return "quick_gelu"
    return "gelu" if found == {"gelu"} else None


def _stored(archive: zipfile.ZipFile, root: str, *, name: str, ref: TensorRef) -> StoredTensor:
    """Describe one tensor after comparing what it claims with the bytes of its member."""
    member, dtype = f"{root}/data/{ref.storage.key}", _dtype(ref)
    expected = ref.storage.numel * dtype.itemsize
    try:
        actual = archive.getinfo(member).file_size
    except KeyError as error:
        raise CheckpointError(f"{archive.filename}: {name} has no bytes ({member}).") from error
    if actual != expected:
        raise CheckpointError(
            f"{archive.filename}: {name} declares {expected} bytes, {member} has {actual}."
        )
    last = ref.offset + sum((s - 1) * t for s, t in zip(ref.shape, ref.stride, strict=True))
    numel = math.prod(ref.shape)
    if numel and (last >= ref.storage.numel or numel > ref.storage.numel):
        raise CheckpointError(f"{archive.filename}: {name} {ref.shape} reaches beyond its bytes.")

    def read() -> Tensor:
        if numel == 0:
            return torch.empty(ref.shape, dtype=dtype)
        data = bytearray(read_member(archive, member, limit=expected))
        return torch.frombuffer(data, dtype=dtype).as_strided(ref.shape, ref.stride, ref.offset)

    return StoredTensor(ref.shape, ref.storage.dtype, read)


def _check_rereads(refs: list[TensorRef], path: Path) -> None:
    """Refuse tensors that share storages so often that reading them would take for ever."""
    total = sum(ref.storage.numel * _dtype(ref).itemsize for ref in refs)
    if total > MAX_REREADS * path.stat().st_size:
        raise CheckpointError(f"{path}: its tensors share storages too often ({total} bytes).")


def _dtype(ref: TensorRef) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, ref.storage.dtype)
    return dtype
