"""The ResNet image towers: CLIP's modified ResNet, and a small one for the embedded model.

Both are convolutions, each followed by a batch norm. With fixed statistics a batch norm is a factor
and an offset per channel: `FoldedNorms` multiplies them into the convolution's weights, which costs
a pass over the weights and saves one over the larger feature map. Folded weights live as long as a
call, so that no second copy of the weights stays and none can be out of date. Weights and images
are in channels-last order, in which convolutions on a CPU run about twice as fast.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import ResNetConfig, SmallResNetConfig

EXPANSION = 4


class FoldedNorms:
    """Convolutions with their batch norms folded in, made at first use and then kept."""

    def __init__(self) -> None:
        self._folded: dict[nn.Conv2d, tuple[Tensor, Tensor]] = {}

    def conv_norm(self, x: Tensor, conv: nn.Conv2d, *, norm: nn.BatchNorm2d) -> Tensor:
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

    def shortcut(self, x: Tensor, downsample: nn.Sequential | None) -> Tensor:
        """Return x itself, or [pooled,] convolved and normalised to the new shape."""
        if downsample is None:
            return x
        *pools, conv, norm = downsample
        for pool in pools:
            x = pool(x)
        return self.conv_norm(x, cast(nn.Conv2d, conv), norm=cast(nn.BatchNorm2d, norm))


def add_relu(fresh: Tensor, shortcut: Tensor | None = None) -> Tensor:
    """Return max(fresh + shortcut, 0); `fresh`, which is used nowhere else, may be overwritten."""
    overwrite = not torch.is_grad_enabled()
    if shortcut is not None:
        fresh = fresh.add_(shortcut) if overwrite else fresh + shortcut
    return F.relu(fresh, inplace=overwrite)


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
            pool, conv = nn.AvgPool2d(stride), nn.Conv2d(inputs, outputs, 1, bias=False)
            parts = OrderedDict({"-1": pool, "0": conv, "1": nn.BatchNorm2d(outputs)})
            self.downsample = nn.Sequential(parts)

    def forward(self, x: Tensor, folded: FoldedNorms) -> Tensor:
        """Map (N, inputs, h, w) to (N, outputs, h/stride, w/stride)."""
        out = add_relu(folded.conv_norm(x, self.conv1, norm=self.bn1))
        out = add_relu(folded.conv_norm(out, self.conv2, norm=self.bn2))
        out = folded.conv_norm(self.pool(out), self.conv3, norm=self.bn3)
        return add_relu(out, folded.shortcut(x, self.downsample))


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


class _ResNet(nn.Module):
    """What both towers share: stages `layer1`, `layer2`, ... and folds for several batches."""

    stages = 0

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """Return the tower for several batches in a row, which share folded weights."""
        return partial(self, folded=FoldedNorms())

    def run_stages(self, x: Tensor, folded: FoldedNorms) -> Tensor:
        for number in range(1, self.stages + 1):
            for block in cast(nn.Sequential, self.get_submodule(f"layer{number}")):
                x = block(x, folded)
        return x


class ModifiedResNet(_ResNet):
    """CLIP's ResNet: three-convolution stem, four stages of bottlenecks, attention pool.

    Every stride is an average pool in front of a stride-1 convolution, against aliasing.
    """

    def __init__(self, config: ResNetConfig, embed_dim: int) -> None:
        super().__init__()
        width = config.width
        self.conv1 = nn.Conv2d(3, width // 2, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width // 2)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width // 2)
        self.conv3 = nn.Conv2d(width // 2, width, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(width)
        inputs, self.stages = width, len(config.layers)
        for number, blocks in enumerate(config.layers):
            planes, stride = width * 2**number, 1 if number == 0 else 2
            stage = [Bottleneck(inputs, planes, stride=stride)]
            inputs = planes * EXPANSION
            stage += [Bottleneck(inputs, planes, stride=1) for _ in range(blocks - 1)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*stage))
        side = config.image_size // 32
        self.attnpool = AttentionPool(side, inputs, heads=config.heads, embed_dim=embed_dim)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor, *, folded: FoldedNorms | None = None) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        folded = folded or FoldedNorms()
        x = pixels.contiguous(memory_format=torch.channels_last)
        x = add_relu(folded.conv_norm(x, self.conv1, norm=self.bn1))
        x = add_relu(folded.conv_norm(x, self.conv2, norm=self.bn2))
        x = add_relu(folded.conv_norm(x, self.conv3, norm=self.bn3))
        x = F.avg_pool2d(x, 2)  # (N, width, S/4, S/4)
        return self.attnpool(self.run_stages(x, folded))  # type: ignore[no-any-return]


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
            conv = nn.Conv2d(inputs, outputs, 1, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor, folded: FoldedNorms) -> Tensor:
        """Map (N, inputs, h, w) to (N, outputs, h/stride, w/stride)."""
        out = add_relu(folded.conv_norm(x, self.conv1, norm=self.bn1))
        out = folded.conv_norm(out, self.conv2, norm=self.bn2)
        shortcut = F.avg_pool2d(x, self.stride) if self.stride > 1 else x
        return add_relu(out, folded.shortcut(shortcut, self.downsample))


class SmallResNet(_ResNet):
    """Two-convolution stem, stages of basic blocks, mean pool, projection.

    For images of 64 pixels on a CPU, where CLIP's ResNet spends most of its time in a stem made for
    224 pixels. The mean over positions learns faster than an attention pool.
    """

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

    def forward(self, pixels: Tensor, *, folded: FoldedNorms | None = None) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        folded = folded or FoldedNorms()
        x = pixels.contiguous(memory_format=torch.channels_last)
        x = add_relu(folded.conv_norm(x, self.conv1, norm=self.bn1))
        x = add_relu(folded.conv_norm(x, self.conv2, norm=self.bn2))  # (N, widths[0], S/4, S/4)
        x = self.run_stages(x, folded)
        return self.proj(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]
