"""Weights as a table of tensors that are described first and read only when wanted.

A `StoredTensor` knows shape and dtype from the file's own directory, so that everything can be
compared with the config before a byte of weights is allocated.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dtpt.clip.loading.archive import check_archive, is_archive
from dtpt.clip.loading.documents import open_file, read_json
from dtpt.errors import CheckpointError

MAX_HEADER_BYTES = 16 << 20  # CLIP's largest header has about 0.2 MB
SAFETENSORS_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
RESAVE = "Save the weights as safetensors (safetensors.torch.save_file) and load that file."


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a checkpoint.

    Attributes:
        shape: as the file declares it.
        dtype: torch's name without the prefix, `float32` for example.
        read: builds the tensor; checks of the bytes may raise CheckpointError.
    """

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], Tensor]


Weights = Mapping[str, StoredTensor]


def read_safetensors(path: Path) -> tuple[Weights, Mapping[str, str]]:
    """Open a safetensors file: its tensors and its text metadata.

    Raises:
        CheckpointError: header too large, truncated file, overlapping or malformed entries.
    """
    _check_header_length(path)
    try:
        file: Any = safe_open(path, framework="pt", device="cpu")
        tensors = {name: _safetensor(file, name, path=path) for name in list(file.keys())}
        return tensors, dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no intact safetensors file: {error}") from error


def _check_header_length(path: Path) -> None:
    with open_file(path) as file:
        length = int.from_bytes(file.read(8), "little")
        size = path.stat().st_size
    if size < 8 or length > size - 8:
        raise CheckpointError(
            f"{path} is truncated: its header claims {length} bytes, the file has {size}."
        )
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(f"{path} has a header of {length} bytes; {MAX_HEADER_BYTES} allowed.")


def _safetensor(file: Any, name: str, *, path: Path) -> StoredTensor:
    part = file.get_slice(name)
    stored = str(part.get_dtype())

    def read() -> Tensor:
        try:
            tensor: Tensor = file.get_tensor(name)
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(f"{path}: tensor {name} cannot be read: {error}") from error
        return tensor

    return StoredTensor(tuple(part.get_shape()), SAFETENSORS_DTYPES.get(stored, stored), read)


def read_state_dict(path: Path) -> Weights:
    """Open a pickled state dict (`.bin`, `.pt`) with torch's restricted unpickler, only.

    Training checkpoints that keep the weights under `state_dict` work too, and so does the
    `module.` prefix of data-parallel training.

    Raises:
        CheckpointError: torch refuses the file, or it holds no table of tensors.
    """
    archive = is_archive(path)
    if archive:
        check_archive(path).close()
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=archive or None)
    except Exception as error:  # a hostile file may raise anything; nothing is retried
        raise CheckpointError(
            f"{path} is refused by torch.load(weights_only=True): {_reason(error)}. {RESAVE}"
        ) from error
    return _tensor_table(loaded, path)


def _reason(error: Exception) -> str:
    """Return what torch objects to, without its advice to load the file in an unsafe way."""
    found = re.search(r"Unsupported[^\n]{0,120}?(?= was not| by default|[.!]?\s|$)", str(error))
    globals_ = re.search(r"GLOBAL \S+", str(error))
    if globals_:
        return f"it asks for {globals_[0].removeprefix('GLOBAL ')}"
    return found[0] if found else type(error).__name__


def _tensor_table(loaded: object, path: Path) -> Weights:
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict) or not loaded:
        raise CheckpointError(f"{path} holds no table of tensors. {RESAVE}")
    table: dict[str, StoredTensor] = {}
    for name, value in loaded.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"{path}: entry {name!r} is no tensor. {RESAVE}")
        if value.layout != torch.strided or value.is_quantized:
            raise CheckpointError(f"{path}: tensor {name} is not dense. {RESAVE}")
        table[name.removeprefix("module.")] = in_memory(value)
    return table


def in_memory(tensor: Tensor) -> StoredTensor:
    """Describe a tensor that is already there (or mapped)."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return StoredTensor(tuple(tensor.shape), dtype, lambda: tensor)


def read_shards(index: Path) -> Weights:
    """Open the files that a `*.index.json` distributes the weights over.

    Raises:
        CheckpointError: a shard lies outside the folder, is missing, or lacks a listed tensor.
    """
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names.")
    shards = {name: _read_shard(index, name) for name in sorted(set(places.values()))}
    table: dict[str, StoredTensor] = {}
    for name, shard in places.items():
        if name not in shards[shard]:
            raise CheckpointError(f"{index} promises {name} in {shard}, where it is not.")
        table[name] = shards[shard][name]
    return table


def _read_shard(index: Path, name: str) -> Weights:
    if Path(name).name != name or "\\" in name or name in ("", ".", ".."):
        raise CheckpointError(f"{index} points outside its folder: {name!r}.")
    path = index.parent / name
    if not path.exists():
        raise CheckpointError(f"{index} names the shard {name}, which is missing.")
    return read_safetensors(path)[0] if name.endswith(".safetensors") else read_state_dict(path)
