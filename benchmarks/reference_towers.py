"""CLIP's towers as published: the baseline of benchmarks and the reference of tests.

Every block runs over every token, also the last one, of which a single token is read; attention is
torch's own multi-head function on sequences whose first axis is the position; QuickGELU is written
as it is defined; batch norms are passes of their own. Given the same weights the features are those
of `dtpt.clip.model.Clip`, to float32 rounding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import ResNetConfig, VitConfig
from dtpt.clip.model import Clip
from dtpt.clip.resnet import FoldedNorms, ModifiedResNet
from dtpt.clip.transformer import QUICK_GELU_SLOPE, Block, Mlp, Transformer, VisionTransformer


class ReferenceClip(Clip):
    """A CLIP that shares the weights of another one and computes as published.

    The image tower of `pocket`, which was never published elsewhere, stays the same.
    """

    def __init__(self, clip: Clip) -> None:
        config = clip.config
        with torch.device("meta"):
            super().__init__(config, tokenizer=clip.tokenizer, preprocessing=clip.preprocessing)
            if isinstance(config.vision, VitConfig):
                self.visual = ReferenceVisionTransformer(
                    config.vision, config.embed_dim, activation=config.activation
                )
            elif isinstance(config.vision, ResNetConfig):
                self.visual = ReferenceResNet(config.vision, config.embed_dim)
        self.load_state_dict(clip.state_dict(), assign=True)  # the same memory
        text = self.require_text()
        text.transformer = ReferenceTransformer(text.transformer)
        self.eval().requires_grad_(False)


class ReferenceTransformer(Transformer):
    """All blocks of another transformer over all tokens."""

    def __init__(self, blocks: Transformer) -> None:
        nn.Module.__init__(self)
        self.resblocks = blocks.resblocks

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, L, W) to (B, L, W); `mask` (L, L) is True where a query may attend."""
        x = x.transpose(0, 1)  # (L, B, W)
        bias = None
        if mask is not None:
            bias = torch.zeros_like(mask, dtype=x.dtype).masked_fill_(~mask, float("-inf"))
        for block in self.blocks:
            x = x + _attention(block, block.ln_1(x), bias=bias)
            x = x + _mlp(block.mlp, block.ln_2(x))
        return x.transpose(0, 1)


class ReferenceVisionTransformer(VisionTransformer):
    """Patches, all blocks over all tokens, and the class token of the result."""

    def forward(self, pixels: Tensor) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        x = ReferenceTransformer(self.transformer)(self.embed(pixels))
        return self.ln_post(x[:, 0]) @ self.proj  # type: ignore[no-any-return]


class ReferenceResNet(ModifiedResNet):
    """Convolutions and batch norms one after the other."""

    def forward(self, pixels: Tensor, *, folded: FoldedNorms | None = None) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        del folded
        return super().forward(pixels, folded=_SeparateNorms())


class _SeparateNorms(FoldedNorms):
    def conv_norm(self, x: Tensor, conv: nn.Conv2d, *, norm: nn.BatchNorm2d) -> Tensor:
        return norm(conv(x))  # type: ignore[no-any-return]


def _attention(block: Block, x: Tensor, *, bias: Tensor | None) -> Tensor:
    """Return attention of every token of x (L, B, W) to all others where the bias is 0."""
    attention = block.attn
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
        attn_mask=bias,
    )
    return mixed


def _mlp(mlp: Mlp, x: Tensor) -> Tensor:
    hidden = mlp.c_fc(x)
    quick = mlp.slope == QUICK_GELU_SLOPE
    hidden = hidden * torch.sigmoid(QUICK_GELU_SLOPE * hidden) if quick else F.gelu(hidden)
    return mlp.c_proj(hidden)  # type: ignore[no-any-return]
