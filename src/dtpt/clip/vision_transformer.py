"""CLIP's Vision Transformer image tower."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dtpt.clip.config import Activation, VitConfig
from dtpt.clip.transformer import Block, Transformer


class VisionTransformer(nn.Module):
    """Patches -> transformer -> class token -> joint space."""

    def __init__(self, config: VitConfig, embed_dim: int, *, activation: Activation) -> None:
        super().__init__()
        width, patch = config.width, config.patch_size
        self.conv1 = nn.Conv2d(3, width, kernel_size=patch, stride=patch, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(width))
        self.positional_embedding = nn.Parameter(torch.empty(config.tokens, width))
        self.ln_pre = nn.LayerNorm(width, eps=config.norm_eps)
        self.transformer = Transformer(
            width,
            layers=config.layers,
            heads=config.heads,
            mlp_width=config.mlp_width,
            activation=activation,
            eps=config.norm_eps,
        )
        self.ln_post = nn.LayerNorm(width, eps=config.norm_eps)
        self.proj = nn.Parameter(torch.empty(width, embed_dim))

    def prepared(self) -> Callable[[Tensor], Tensor]:
        """Return the tower for several batches in a row."""
        return self.forward

    def forward(self, pixels: Tensor) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        x = self.conv1(pixels).flatten(2).transpose(1, 2)  # (N, W, g, g) -> (N, g*g, W)
        first = self.class_embedding.expand(x.shape[0], 1, -1)  # (N, 1, W)
        x = torch.cat([first, x], dim=1) + self.positional_embedding  # (N, 1 + g*g, W)
        x = self.ln_pre(x)
        blocks = self.transformer.blocks
        for block in blocks[:-1]:
            x = block(x)
        return self.ln_post(_class_token(blocks[-1], x)) @ self.proj  # type: ignore[no-any-return]


def _class_token(block: Block, x: Tensor) -> Tensor:
    """Run the last block for the class token, which alone is read: (N, L, W) -> (N, W)."""
    normed = block.ln_1(x)
    attended = block.attn.look(normed[:, :1], normed)  # (N, 1, W)
    return block.finish(x[:, :1], attended).squeeze(1)
