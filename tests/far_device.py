"""A second device on a machine that has none: real numbers, behind a wall.

Inside `far_device()`, torch's device "meta" holds values. A tensor there is a wrapper around a
tensor of the CPU, so that everything can be computed (also calls that need a number, such as
`.item()`), but an operation fails that

* takes tensors of both devices, as it would on CUDA (numbers without dimensions are allowed, as
  there),
* would put float64 on the device, as it would on Apple's MPS,
* reads the device's memory without copying it (`.numpy()`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

FAR = torch.device("meta")
NEAR = torch.device("cpu")
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}


class DeviceMixture(Exception):
    """An operation that an accelerator would refuse."""


class Far(torch.Tensor):
    """A tensor on the second device; `held` has its values."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        if held.dtype == torch.float64:
            raise DeviceMixture("float64 on the device: MPS has none")
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(),
            dtype=held.dtype, device=FAR,
        )  # fmt: skip
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise DeviceMixture(f"{func} outside of far_device()")

    def tolist(self):
        return self.held.tolist()  # torch copies first, which it does not do for subclasses

    def __repr__(self):
        return f"Far({self.held!r})"


class _Wall(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        far = [x for x in tensors if isinstance(x, Far)]
        _check(func, tensors, far=bool(far))
        target = kwargs.get("device")
        lands_far = bool(far) if target is None else torch.device(target) == FAR
        named = {**kwargs, "device": NEAR} if target is not None else kwargs
        result = func(*tree_map(_held, args), **tree_map(_held, named))
        if func._schema.is_mutable:
            return kwargs.get("out", args[0] if args else None)
        return tree_map(_wrapped, result) if lands_far else result


def _check(func, tensors, *, far):
    if any(x.device == FAR and not isinstance(x, Far) for x in tensors):
        raise DeviceMixture(f"{func} of a tensor without values")
    near = [x for x in tensors if not isinstance(x, Far) and x.ndim > 0]
    if far and near and func not in COPIES:
        raise DeviceMixture(f"{func} mixes devices: {[tuple(x.shape) for x in near]} is on the CPU")


def _held(x):
    return x.held if isinstance(x, Far) else x


def _wrapped(x):
    return Far(x) if isinstance(x, torch.Tensor) else x


class _Values(TorchFunctionMode):
    """`torch.tensor(..., device="meta")` makes a tensor without values: build, then copy."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if func is torch.tensor and device is not None and torch.device(device) == FAR:
            return func(*args, **{**kwargs, "device": NEAR}).to(FAR)
        return func(*args, **kwargs)


@contextmanager
def far_device() -> Iterator[torch.device]:
    """Make the second device work; yields it."""
    with _Values(), _Wall():
        yield FAR
