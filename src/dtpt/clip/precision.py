"""In which numbers the towers compute; what enters and leaves them is float32 (tests: float64)."""

import torch
from torch import Tensor, nn

from dtpt.clip.config import Precision


def cast_tower(tower: nn.Module, precision: Precision) -> None:
    """Convert a tower's weights, once; batch norms stay float32, because they are folded there."""
    tower.to(getattr(torch, precision))
    for module in tower.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()


def widened(x: Tensor) -> Tensor:
    """Return half-precision numbers as float32, others as they are.

    Example:
        >>> widened(torch.ones(2, dtype=torch.bfloat16)).dtype, widened(torch.ones(2)).dtype
        (torch.float32, torch.float32)
    """
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def fitted(gradient: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | float]:
    """Scale a gradient so that a tower of this dtype can carry it; also return what undoes that.

    float16 has no number between 0 and 6e-8, where most of a regulariser's gradient lies. A power
    of two, which rounds nothing, brings the largest entry to between 1 and 2. Wider dtypes need
    none.

    Example:
        >>> scaled, undo = fitted(torch.tensor([3e-8, -1e-7]), torch.float16)
        >>> scaled, (scaled * undo).tolist() == torch.tensor([3e-8, -1e-7]).tolist()
        (tensor([ 0.5033, -1.6777]), True)
    """
    if dtype != torch.float16:
        return gradient, 1.0
    largest = gradient.abs().max().clamp_min(torch.finfo(gradient.dtype).tiny)
    undo = torch.exp2(torch.floor(torch.log2(largest)))
    return gradient / undo, undo
