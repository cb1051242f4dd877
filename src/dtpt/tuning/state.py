"""The state of a stream method as bytes, with a hash of its numbers.

A state is a tuple of tensors and of such tuples, mostly a `NamedTuple`. Every tensor keeps the
shape that `Method.initial` gave it, so a stored state is read into the structure of an initial one:
nothing in a file decides what is built.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from dtpt.errors import MethodError
from dtpt.files import parse_json

HASH = "sha256"  # of the numbers, in the metadata of a file


def state_tensors(state: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a state with their names, in a fixed order.

    Raises:
        MethodError: something in the state is neither a tensor nor a tuple.
    """
    if isinstance(state, Tensor):
        yield name or "state", state
        return
    if not isinstance(state, tuple):
        kind = type(state).__name__
        raise MethodError(f"The state of a stream consists of tensors and tuples, not {kind}.")
    fields = getattr(state, "_fields", range(len(state)))
    for field, part in zip(fields, state, strict=True):
        yield from state_tensors(part, f"{name}.{field}" if name else str(field))


def state_digest(state: Any) -> str:
    """Return a hash of names, types, shapes and numbers: equal states have equal ones."""
    return _digest({name: _array(tensor) for name, tensor in state_tensors(state)})


def _array(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.detach().cpu().contiguous().numpy()


def _digest(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\0".encode())
        digest.update(array.data)
    return digest.hexdigest()


def pack_state(state: Any, *, initial: Any, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a state as a safetensors file.

    Tensors that are the very ones of `initial` are left out, so that what a cache has not filled
    takes no space.

    Raises:
        MethodError: a tensor has another shape or type than in `initial`.
    """
    from safetensors.numpy import save

    first, packed = dict(state_tensors(initial)), {}
    for name, tensor in state_tensors(state):
        _check(name, tensor, first=first)
        if tensor is not first[name]:
            packed[name] = _array(tensor)
    return save(packed, {**(metadata or {}), HASH: _digest(packed)})


def state_metadata(data: bytes) -> dict[str, str]:
    """Return what `pack_state` was given beside the state; a MethodError for anything else."""
    try:
        end = 8 + int.from_bytes(data[:8], "little")
        header = parse_json(data[8:end])
        metadata = header["__metadata__"]
    except (ValueError, KeyError, TypeError) as error:
        raise MethodError("This is not the file of a state.") from error
    return {str(name): str(value) for name, value in metadata.items()}


def unpack_state(data: bytes, *, initial: Any) -> Any:
    """Return the state that `pack_state` wrote, every tensor in memory of its own.

    Raises:
        MethodError: the bytes are damaged, or the state of another method, model or class list.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    first = dict(state_tensors(initial))
    try:
        stored = load(data)
    except (SafetensorError, ValueError) as error:
        raise MethodError(f"A stored state is damaged: {error}.") from error
    for name, tensor in stored.items():
        _check(name, tensor, first=first)
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise MethodError(f"A stored state has numbers in {name} that are none.")
    if state_metadata(data).get(HASH) != _digest({n: _array(t) for n, t in stored.items()}):
        raise MethodError("A stored state is damaged: its numbers are not those that were written.")
    return _filled(initial, {name: _own(t, first[name]) for name, t in stored.items()})


def _check(name: str, tensor: Tensor, *, first: Mapping[str, Tensor]) -> None:
    known = first.get(name)
    if known is None or known.shape != tensor.shape or known.dtype != tensor.dtype:
        expected = "nothing" if known is None else f"{tuple(known.shape)} {known.dtype}"
        raise MethodError(
            f"The state has {tuple(tensor.shape)} {tensor.dtype} in {name!r}, where the method, "
            f"model and classes have {expected}. A state keeps the shapes of its first one."
        )


def _own(tensor: Tensor, like: Tensor) -> Tensor:
    """Copy into torch's own memory, whose alignment decides last bits."""
    fresh = torch.empty_like(like)
    fresh.copy_(tensor)
    return fresh


def _filled(initial: Any, values: Mapping[str, Tensor], *, name: str = "") -> Any:
    if isinstance(initial, Tensor):
        return values.get(name or "state", initial)
    fields = getattr(initial, "_fields", range(len(initial)))
    parts = [
        _filled(part, values, name=f"{name}.{field}" if name else str(field))
        for field, part in zip(fields, initial, strict=True)
    ]
    return type(initial)(*parts) if hasattr(initial, "_fields") else tuple(parts)
