"""What CLIP's ResNets are made of: a convolution followed by a batch norm, and ReLU.

With fixed statistics a batch norm is a factor and an offset per channel. `Folds` puts them into the
convolution's weights, which costs a pass over the weights and saves one over the larger feature
map. The folded weights live as long as a call, so that no second copy of the weights stays and
none can be out of date. Weights are in channels-last order, which convolutions on a CPU want.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Folds:
    """Convolutions with their batch norms folded in, made at first need and then kept."""

    def __init__(self) -> None:
        self._folded: dict[nn.Conv2d, tuple[Tensor, Tensor]] = {}

    def normalised(self, x: Tensor, conv: nn.Conv2d, *, norm: nn.BatchNorm2d) -> Tensor:
        """Return norm(conv(x)): (N, inputs, h, w) -> (N, outputs, h', w')."""
        if norm.training or norm.running_mean is None or norm.running_var is None:
            return norm(conv(x))  # type: ignore[no-any-return]
        if conv not in self._folded:
            factor = norm.weight * torch.rsqrt(norm.running_var + norm.eps)  # (outputs,)
            weight = conv.weight * factor[:, None, None, None]  # (outputs, inputs, k, k)
            bias = norm.bias - norm.running_mean * factor
            self._folded[conv] = weight.to(x), bias.to(x)
        weight, bias = self._folded[conv]
        return F.conv2d(x, weight, bias, conv.stride, conv.padding)

    def projected(self, x: Tensor, downsample: nn.Sequential | None) -> Tensor:
        """Return the shortcut: x itself, or [pooled,] convolved and normalised to the new shape."""
        if downsample is None:
            return x
        *pools, conv, norm = downsample
        for pool in pools:
            x = pool(x)
        return self.normalised(x, cast(nn.Conv2d, conv), norm=cast(nn.BatchNorm2d, norm))


def rectified(fresh: Tensor, shortcut: Tensor | None = None) -> Tensor:
    """Return max(fresh + shortcut, 0).

    `fresh`, which nobody else has, is overwritten where no gradient is wanted.
    """
    overwrite = not torch.is_grad_enabled()
    if shortcut is not None:
        fresh = fresh.add_(shortcut) if overwrite else fresh + shortcut
    return F.relu(fresh, inplace=overwrite)
