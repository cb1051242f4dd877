"""Linear layers whose frozen weights are kept in the order in which the processor reads them.

A matrix product begins by putting the weights into tiles that fit its vector units. Weights that
never change can be packed once: oneDNN, which is part of torch, multiplies such a copy about a
tenth faster than a row-major matrix, and applies bias and SiLU on the way out instead of in passes
of their own. Each copy costs as much memory as the weights.

This is for weights without gradients, in float32, on an x86 processor, and large enough to gain by
it (`MIN_WEIGHTS`). Everything else takes `torch.nn.functional.linear`, to which results are equal
up to the rounding of sums.
"""

import platform
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MIN_WEIGHTS = 2**17  # entries of a weight matrix
_TYPICAL_ROWS = 1024  # fixed: the order of a copy, and with it rounding, must not depend on a call
HAS_ONEDNN = platform.machine() in ("x86_64", "AMD64") and torch._C._has_mkldnn


@dataclass(frozen=True)
class _Packed:
    source: Tensor  # the weights themselves; holding them keeps their address from being reused
    version: int  # torch's count of their changes in place
    forward: Tensor  # packed for x Wᵀ
    backward: Tensor | None  # packed for g W

    def is_current(self, weight: Tensor) -> bool:
        same = self.source.data_ptr() == weight.data_ptr() and self.source.shape == weight.shape
        return same and self.version == weight._version


class PackedWeights:
    """Packed copies of one module's weights, made at first use and again after a change.

    Changes through `weight.data` are not noticed, as torch does not count them.
    """

    def __init__(self) -> None:
        self._packed: dict[str, _Packed] = {}

    def __reduce__(self) -> tuple[type["PackedWeights"], tuple[()]]:
        return PackedWeights, ()  # copies and pickles of the module leave packed weights out

    def linear(
        self, x: Tensor, weight: Tensor, *, bias: Tensor, name: str, silu: bool = False
    ) -> Tensor:
        """Return x Wᵀ + b, or its SiLU: (..., inputs) -> (..., outputs).

        `weight` is (outputs, inputs) and has its name within the module.
        """
        if not _is_packable(x, weight):
            y = F.linear(x, weight, bias)
            return F.silu(y, inplace=not torch.is_grad_enabled()) if silu else y
        backward = torch.is_grad_enabled() and x.requires_grad
        packed = self._pack(weight, name, backward=backward)
        if backward:
            return _Product.apply(x, bias, packed, silu)  # type: ignore[no-any-return, no-untyped-call]
        return _product(x, packed.forward, bias=bias, silu=silu)

    def _pack(self, weight: Tensor, name: str, *, backward: bool) -> _Packed:
        packed = self._packed.get(name)
        current = packed is not None and packed.is_current(weight)
        if packed is None or not current or (backward and packed.backward is None):
            source = weight.detach()
            transposed = _reorder(source.t().contiguous()) if backward else None
            packed = _Packed(source, weight._version, _reorder(source), transposed)
            self._packed[name] = packed
        return packed


class _Product(torch.autograd.Function):
    """x Wᵀ + b with a gradient for x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, packed: _Packed, silu: bool) -> Tensor:
        y = _product(x, packed.forward, bias=bias)
        ctx.weight = packed.backward
        ctx.save_for_backward(*([y] if silu else []))
        return F.silu(y) if silu else y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.saved_tensors:
            (y,) = ctx.saved_tensors
            gradient = torch.ops.aten.silu_backward(gradient, y)
        return _product(gradient, ctx.weight), None, None, None


def packed_bytes(tower: nn.Module | None, *, backward: bool) -> int:
    """Return what the packed copies of any tower take; gradients need a second copy."""
    modules = tower.modules() if tower is not None else ()
    packing = [
        module for module in modules if isinstance(vars(module).get("packed"), PackedWeights)
    ]
    matrices = (weight for m in packing for weight in m.parameters() if weight.ndim == 2)
    return (1 + backward) * sum(_copy_bytes(weight) for weight in matrices)


def _copy_bytes(weight: Tensor) -> int:
    """Return the bytes of one packed copy; 0 for weights that are not packed."""
    frozen = not (weight.requires_grad or weight.is_inference())  # the latter count no changes
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    packs = HAS_ONEDNN and on_cpu and frozen and weight.numel() >= MIN_WEIGHTS
    return weight.numel() * weight.element_size() if packs else 0


def _is_packable(x: Tensor, weight: Tensor) -> bool:
    same = x.device.type == weight.device.type and x.dtype == weight.dtype
    return _copy_bytes(weight) > 0 and same and x.numel() > 0


def _reorder(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)  # type: ignore[no-any-return]


def _product(
    x: Tensor, packed: Tensor, *, bias: Tensor | None = None, silu: bool = False
) -> Tensor:
    following = "swish" if silu else "none"
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, following, [], "")  # type: ignore[no-any-return]
