"""The image tower of the embedded model: a ResNet for pictures of 64 pixels, quick on a CPU.

CLIP's modified ResNet spends most of its time in a stem and in strides made for 224 pixels. This
one goes to a quarter of the side in two strided convolutions, uses plain blocks of two 3x3
convolutions (dense convolutions are what a CPU does best), and ends in the mean over positions and
a projection, which learns faster than CLIP's attention pool. Pictures are put in channels-last
order, in which these convolutions run about twice as fast.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import SmallResNetConfig
from dtpt.clip.convolutions import Folds, rectified


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; the shortcut is averaged and projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor, folds: Folds) -> Tensor:
        """Map (N, inputs, h, w) to (N, outputs, h/stride, w/stride)."""
        out = rectified(folds.normalised(x, self.conv1, norm=self.bn1))
        out = folds.normalised(out, self.conv2, norm=self.bn2)
        shortcut = F.avg_pool2d(x, self.stride) if self.stride > 1 else x
        return rectified(out, folds.projected(shortcut, self.downsample))


class SmallResNet(nn.Module):
    """Two-convolution stem, stages of basic blocks, mean pool, projection."""

    def __init__(self, config: SmallResNetConfig, embed_dim: int) -> None:
        super().__init__()
        inputs = config.widths[0]
        self.conv1 = nn.Conv2d(3, config.stem_width, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(config.stem_width)
        self.conv2 = nn.Conv2d(config.stem_width, inputs, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inputs)
        self.stages = len(config.widths)
        for number, (width, blocks) in enumerate(zip(config.widths, config.layers, strict=True)):
            stage = [BasicBlock(inputs, width, stride=1 if number == 0 else 2)]
            stage += [BasicBlock(width, width, stride=1) for _ in range(blocks - 1)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*stage))
            inputs = width
        self.proj = nn.Linear(inputs, embed_dim)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """Return the tower for several batches in a row, which share folded weights."""
        return partial(self.forward, folds=Folds())

    def forward(self, pixels: Tensor, *, folds: Folds | None = None) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        folds = folds or Folds()
        x = pixels.contiguous(memory_format=torch.channels_last)
        x = rectified(folds.normalised(x, self.conv1, norm=self.bn1))
        x = rectified(folds.normalised(x, self.conv2, norm=self.bn2))  # (N, widths[0], S/4, S/4)
        for number in range(1, self.stages + 1):
            for block in cast(nn.Sequential, self.get_submodule(f"layer{number}")):
                x = block(x, folds)
        return self.proj(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]
