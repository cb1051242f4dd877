"""CLIP's towers as they were published: a yardstick for tests and `dtpt bench`, never for results.

Every block runs over every token, also the last one, of which a single token is read; attention is
torch's own multi-head function on sequences that lie first; QuickGELU is written as it is defined;
batch norms are passes of their own. Given the same weights the features are those of
`dtpt.clip.model.Clip`, to float32 rounding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import ResNetConfig, VitConfig
from dtpt.clip.convolutions import Folds
from dtpt.clip.model import Clip
from dtpt.clip.resnet import ModifiedResNet
from dtpt.clip.transformer import QUICK_GELU_SLOPE, Attention, Block, Mlp, Transformer
from dtpt.clip.vision_transformer import VisionTransformer


class PlainClip(Clip):
    """A CLIP that shares the weights of another one and computes as published.

    The image tower of `pocket`, which was never published elsewhere, stays what it is.

    Args:
        clip: whose weights, tokenizer and preprocessing are used.
    """

    def __init__(self, clip: Clip) -> None:
        with torch.device("meta"):
            super().__init__(
                clip.config, tokenizer=clip.tokenizer, preprocessing=clip.preprocessing
            )
            config = self.config
            if isinstance(config.vision, VitConfig):
                self.visual = PlainVisionTransformer(
                    config.vision, config.embed_dim, activation=config.activation
                )
            elif isinstance(config.vision, ResNetConfig):
                self.visual = PlainResNet(config.vision, config.embed_dim)
        self.load_state_dict(clip.state_dict(), assign=True)  # the same memory
        self.text.transformer = PlainTransformer(self.text.transformer)
        self.eval().requires_grad_(False)


class PlainTransformer(Transformer):
    """All blocks over all tokens.

    Args:
        blocks: the transformer whose blocks are used.
    """

    def __init__(self, blocks: Transformer) -> None:
        nn.Module.__init__(self)
        self.resblocks = blocks.resblocks

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, L, W) to (B, L, W); `mask` (L, L) is True where a query may look."""
        x = x.transpose(0, 1)  # (L, B, W)
        barred = None if mask is None else torch.zeros_like(mask, dtype=x.dtype)
        if barred is not None and mask is not None:
            barred.masked_fill_(~mask, float("-inf"))
        for block in self.blocks:
            x = _block(block, x, barred=barred)
        return x.transpose(0, 1)


class PlainVisionTransformer(VisionTransformer):
    """Patches, all blocks over all tokens, and the class token of the result."""

    def forward(self, pixels: Tensor) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        x = self.conv1(pixels).flatten(2).transpose(1, 2)  # (N, W, g, g) -> (N, g*g, W)
        first = self.class_embedding.expand(x.shape[0], 1, -1)  # (N, 1, W)
        x = self.ln_pre(torch.cat([first, x], dim=1) + self.positional_embedding)
        x = PlainTransformer(self.transformer)(x)
        return self.ln_post(x[:, 0]) @ self.proj  # type: ignore[no-any-return]


class PlainResNet(ModifiedResNet):
    """Convolutions and batch norms one after the other."""

    def forward(self, pixels: Tensor, *, folds: Folds | None = None) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        del folds
        return super().forward(pixels, folds=_NoFolds())


class _NoFolds(Folds):
    def normalised(self, x: Tensor, conv: nn.Conv2d, *, norm: nn.BatchNorm2d) -> Tensor:
        return norm(conv(x))  # type: ignore[no-any-return]


def _block(block: Block, x: Tensor, *, barred: Tensor | None) -> Tensor:
    x = x + _attention(block.attn, block.ln_1(x), barred=barred)
    return x + _mlp(block.mlp, block.ln_2(x))


def _attention(attention: Attention, x: Tensor, *, barred: Tensor | None) -> Tensor:
    """Let every token of x (L, B, W) look at every other one that is not barred."""
    mixed, _ = F.multi_head_attention_forward(
        x,
        x,
        x,
        embed_dim_to_check=x.shape[-1],
        num_heads=attention.heads,
        in_proj_weight=attention.in_proj_weight,
        in_proj_bias=attention.in_proj_bias,
        bias_k=None,
        bias_v=None,
        add_zero_attn=False,
        dropout_p=0.0,
        out_proj_weight=attention.out_proj.weight,
        out_proj_bias=attention.out_proj.bias,
        training=False,
        need_weights=False,
        attn_mask=barred,
    )
    return mixed


def _mlp(mlp: Mlp, x: Tensor) -> Tensor:
    hidden = mlp.c_fc(x)
    quick = mlp.slope == QUICK_GELU_SLOPE
    hidden = hidden * torch.sigmoid(QUICK_GELU_SLOPE * hidden) if quick else F.gelu(hidden)
    return mlp.c_proj(hidden)  # type: ignore[no-any-return]
