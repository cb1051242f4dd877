"""CLIP's modified ResNet image tower.

Three things differ from the usual ResNet: the stem has three convolutions and an average pool,
every stride is an average pool in front of a stride-1 convolution (no aliasing), and the last
pooling is attention with the mean of all positions as the query.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import ResNetConfig
from dtpt.clip.convolutions import Folds, rectified

EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions with an average pool where a stride is due."""

    def __init__(self, inputs: int, planes: int, *, stride: int) -> None:
        super().__init__()
        outputs = planes * EXPANSION
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.pool: nn.Module = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride > 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                OrderedDict(
                    [
                        ("-1", nn.AvgPool2d(stride)),
                        ("0", nn.Conv2d(inputs, outputs, 1, bias=False)),
                        ("1", nn.BatchNorm2d(outputs)),
                    ]
                )
            )

    def forward(self, x: Tensor, folds: Folds) -> Tensor:
        """Map (N, inputs, h, w) to (N, outputs, h/stride, w/stride)."""
        out = rectified(folds.normalised(x, self.conv1, norm=self.bn1))
        out = rectified(folds.normalised(out, self.conv2, norm=self.bn2))
        out = folds.normalised(self.pool(out), self.conv3, norm=self.bn3)
        return rectified(out, folds.projected(x, self.downsample))


class AttentionPool(nn.Module):
    """One attention query (the mean position) over all positions of the last feature map."""

    def __init__(self, side: int, width: int, *, heads: int, embed_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.positional_embedding = nn.Parameter(torch.empty(side * side + 1, width))
        self.k_proj = nn.Linear(width, width)
        self.q_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.c_proj = nn.Linear(width, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, W, h, w) to (N, D)."""
        x = x.flatten(2).transpose(1, 2)  # (N, h*w, W)
        x = torch.cat([x.mean(dim=1, keepdim=True), x], dim=1) + self.positional_embedding
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (N, heads, L, W/heads)
            for part in (self.q_proj(x[:, :1]), self.k_proj(x), self.v_proj(x))
        )
        mixed = F.scaled_dot_product_attention(q, k, v)  # (N, heads, 1, W/heads)
        return self.c_proj(mixed.transpose(1, 2).flatten(1))  # type: ignore[no-any-return]


class ModifiedResNet(nn.Module):
    """Stem, four stages of bottlenecks, attention pool."""

    def __init__(self, config: ResNetConfig, embed_dim: int) -> None:
        super().__init__()
        width = config.width
        self.conv1 = nn.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 2)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width // 2)
        self.conv3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        inputs = width
        for number, blocks in enumerate(config.layers):
            planes, stride = width * 2**number, 1 if number == 0 else 2
            setattr(
                self, f"layer{number + 1}", _stage(inputs, planes, blocks=blocks, stride=stride)
            )
            inputs = planes * EXPANSION
        self.attnpool = AttentionPool(
            config.image_size // 32, inputs, heads=config.heads, embed_dim=embed_dim
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """Return the tower for several batches in a row, which share folded weights."""
        return partial(self.forward, folds=Folds())

    def forward(self, pixels: Tensor, *, folds: Folds | None = None) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        folds = folds or Folds()
        x = pixels.contiguous(memory_format=torch.channels_last)
        x = rectified(folds.normalised(x, self.conv1, norm=self.bn1))
        x = rectified(folds.normalised(x, self.conv2, norm=self.bn2))
        x = rectified(folds.normalised(x, self.conv3, norm=self.bn3))
        x = F.avg_pool2d(x, 2)  # (N, width, S/4, S/4)
        for number in (1, 2, 3, 4):
            for block in cast(nn.Sequential, self.get_submodule(f"layer{number}")):
                x = block(x, folds)
        return self.attnpool(x)  # type: ignore[no-any-return]


def _stage(inputs: int, planes: int, *, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inputs, planes, stride=stride)
    rest = (Bottleneck(planes * EXPANSION, planes, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)
