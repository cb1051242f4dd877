"""What CLIP's ResNets are made of: a convolution followed by a batch norm, and ReLU.

With fixed statistics a batch norm is a factor and an offset per channel. It is folded into the
convolution's weights on each call, which costs a pass over the weights and saves one over the much
larger feature map; no second copy of the weights is kept. Weights are in channels-last order, in
which convolutions on a CPU need no reordering.
"""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def normalised(x: Tensor, conv: nn.Conv2d, *, norm: nn.BatchNorm2d) -> Tensor:
    """Return norm(conv(x)): (N, inputs, h, w) -> (N, outputs, h', w')."""
    mean, variance = norm.running_mean, norm.running_var
    if norm.training or mean is None or variance is None:
        return norm(conv(x))  # type: ignore[no-any-return]
    factor = norm.weight * torch.rsqrt(variance + norm.eps)  # (outputs,)
    weight = conv.weight * factor[:, None, None, None]  # (outputs, inputs, k, k)
    bias = norm.bias - mean * factor
    return F.conv2d(x, weight.to(x), bias.to(x), conv.stride, conv.padding)


def projected(x: Tensor, downsample: nn.Sequential | None) -> Tensor:
    """Return the shortcut: x itself, or [pooled,] convolved and normalised to the new shape."""
    if downsample is None:
        return x
    *pools, conv, norm = downsample
    for pool in pools:
        x = pool(x)
    return normalised(x, cast(nn.Conv2d, conv), norm=cast(nn.BatchNorm2d, norm))


def rectified(fresh: Tensor, shortcut: Tensor | None = None) -> Tensor:
    """Return max(fresh + shortcut, 0).

    `fresh`, which nobody else has, is overwritten where no gradient is wanted.
    """
    overwrite = not torch.is_grad_enabled()
    if shortcut is not None:
        fresh = fresh.add_(shortcut) if overwrite else fresh + shortcut
    return F.relu(fresh, inplace=overwrite)
