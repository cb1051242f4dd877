"""Linear layers whose frozen weights are kept in the order in which the processor reads them.

A matrix product begins by putting the weights into tiles that fit its vector units. Weights that
never change can be put there once: oneDNN, which is part of torch, multiplies such a copy about a
tenth faster than a plain matrix, and applies bias and SiLU on the way out instead of in passes of
their own. Each copy costs as much memory as the weights.

This is for weights without gradients, in float32, on an x86 processor, and large enough to gain by
it (`SMALLEST`). Everything else takes `torch.nn.functional.linear`, to which results are equal up
to the rounding of sums.
"""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST = 2**17  # numbers in a weight matrix
_TYPICAL_ROWS = 1024  # fixed: the order of a copy, and with it rounding, must not depend on a call
_HAS_ONEDNN = platform.machine() in ("x86_64", "AMD64") and torch._C._has_mkldnn


@dataclass(frozen=True)
class _Copy:
    """A weight matrix, packed, and how to tell that it has changed since.

    Attributes:
        source: the weights themselves; holding them keeps their address from being given away.
        version: torch's count of their changes in place.
        forward: packed for x Wᵀ.
        backward: packed for g W.
    """

    source: Tensor
    version: int
    forward: Tensor
    backward: Tensor | None = None

    def is_of(self, weight: Tensor) -> bool:
        """Tell whether these are still the numbers of `weight`."""
        same = self.source.data_ptr() == weight.data_ptr() and self.source.shape == weight.shape
        return same and self.version == weight._version


class Copies:
    """Packed copies of one module's weights, made at first need and again after a change.

    Changes through `weight.data` are not seen, as torch does not count them.
    """

    def __init__(self) -> None:
        self._made: dict[str, _Copy] = {}

    def __reduce__(self) -> tuple[type["Copies"], tuple[()]]:
        """Leave the copies out of copies and pickles of the module."""
        return Copies, ()

    def linear(
        self, x: Tensor, weight: Tensor, *, bias: Tensor, name: str, silu: bool = False
    ) -> Tensor:
        """Return x Wᵀ + b, or its SiLU: (..., inputs) -> (..., outputs).

        Args:
            x: what is multiplied.
            weight: (outputs, inputs).
            bias: (outputs,).
            name: of the weights within the module.
            silu: whether SiLU follows.
        """
        if not _can_be_packed(x, weight):
            y = F.linear(x, weight, bias)
            return F.silu(y, inplace=not torch.is_grad_enabled()) if silu else y
        backward = torch.is_grad_enabled() and x.requires_grad
        copy = self._copy(weight, name, backward=backward)
        if backward:
            return _Product.apply(x, bias, copy, silu)  # type: ignore[no-any-return, no-untyped-call]
        return _product(x, copy.forward, bias=bias, silu=silu)

    def _copy(self, weight: Tensor, name: str, *, backward: bool) -> _Copy:
        copy = self._made.get(name)
        fresh = copy is not None and copy.is_of(weight)
        if copy is None or not fresh or (backward and copy.backward is None):
            source = weight.detach()
            transposed = _packed(source.t().contiguous()) if backward else None
            copy = _Copy(source, weight._version, _packed(source), transposed)
            self._made[name] = copy
        return copy


class _Product(torch.autograd.Function):
    """x Wᵀ + b with a gradient for x alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, copy: _Copy, silu: bool) -> Tensor:
        """Multiply; what SiLU's slope depends on is kept."""
        y = _product(x, copy.forward, bias=bias)
        ctx.weight = copy.backward
        ctx.save_for_backward(*([y] if silu else []))
        return F.silu(y) if silu else y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        """Multiply with the weights the other way round."""
        if ctx.saved_tensors:
            (y,) = ctx.saved_tensors
            gradient = torch.ops.aten.silu_backward(gradient, y)
        return _product(gradient, ctx.weight), None, None, None


def work_of_products() -> dict[Any, Callable[..., int]]:
    """Return how torch's counter of multiplications and additions counts a packed product."""
    if not _HAS_ONEDNN:
        return {}
    return {torch.ops.mkldnn._linear_pointwise: _multiplications_and_additions}


def _multiplications_and_additions(x: Sequence[int], *_: object, out_shape: Sequence[int]) -> int:
    return 2 * math.prod(x) * out_shape[-1]  # (..., inputs) -> (..., outputs)


def memory_of_copy(weight: Tensor) -> int:
    """Return what one packed copy takes, in bytes; 0 for weights that are not packed."""
    frozen = not (weight.requires_grad or weight.is_inference())  # the latter count no changes
    plain = weight.device.type == "cpu" and weight.dtype == torch.float32
    packs = _HAS_ONEDNN and plain and frozen and weight.numel() >= SMALLEST
    return weight.numel() * weight.element_size() if packs else 0


def _can_be_packed(x: Tensor, weight: Tensor) -> bool:
    same = x.device.type == weight.device.type and x.dtype == weight.dtype
    return memory_of_copy(weight) > 0 and same and x.numel() > 0


def _packed(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_ROWS)  # type: ignore[no-any-return]


def _product(
    x: Tensor, packed: Tensor, *, bias: Tensor | None = None, silu: bool = False
) -> Tensor:
    following = "swish" if silu else "none"
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, following, [], "")  # type: ignore[no-any-return]
