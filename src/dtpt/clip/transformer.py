"""The pre-norm transformer block that both of CLIP's towers are made of.

Parameter names are OpenAI's (`attn.in_proj_weight`, `mlp.c_fc.weight`, ...), so that their weights
load as they are. Attention is split into `project` and `attend` because prompt tuning needs the
keys and values of a shared prefix (see `text.py`).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import Activation

QUICK_GELU_SLOPE = 1.702

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (B, heads, L, W/heads)."""


def quick_gelu(x: Tensor) -> Tensor:
    """Return x·sigmoid(1.702 x), with SiLU, so that autograd keeps one tensor instead of two."""
    return F.silu(x * QUICK_GELU_SLOPE) / QUICK_GELU_SLOPE


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "quick_gelu": quick_gelu,
    "gelu": F.gelu,
}


class Attention(nn.Module):
    """Multi-head self-attention with one fused input projection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def project(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Return queries, and keys with values, of x (B, L, W), each (B, heads, L, W/heads)."""
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias)  # (B, L, 3W)
        qkv = qkv.view(*x.shape[:2], 3, self.heads, -1)  # (B, L, 3, heads, W/heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, L, W/heads)
        return q, (k, v)

    def attend(self, q: Tensor, kv: KeysValues, *, mask: Tensor | None = None) -> Tensor:
        """Mix values to (B, L, W); `mask` is True where a query may look."""
        k, v = kv
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, heads, L, W/heads) -> (B, L, W)
        return self.out_proj(mixed)  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """Two linear layers around the model's activation."""

    def __init__(self, width: int, hidden: int, *, activation: Activation) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, hidden)
        self.c_proj = nn.Linear(hidden, width)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., W) to (..., W)."""
        return self.c_proj(self.activation(self.c_fc(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self, width: int, heads: int, *, mlp_width: int, activation: Activation, eps: float
    ) -> None:
        super().__init__()
        self.attn = Attention(width, heads)
        self.ln_1 = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, mlp_width, activation=activation)
        self.ln_2 = nn.LayerNorm(width, eps=eps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Run the block over a whole sequence x (B, L, W)."""
        q, kv = self.attn.project(self.ln_1(x))
        return self.finish(x, self.attn.attend(q, kv, mask=mask))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add what attention found, then the feed-forward part."""
        x = x + attended
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A stack of blocks under the name OpenAI gave it."""

    def __init__(
        self,
        width: int,
        *,
        layers: int,
        heads: int,
        mlp_width: int,
        activation: Activation,
        eps: float,
    ) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(
            Block(width, heads, mlp_width=mlp_width, activation=activation, eps=eps)
            for _ in range(layers)
        )

    @property
    def blocks(self) -> list[Block]:
        """Return the blocks, typed."""
        return [block for block in self.resblocks if isinstance(block, Block)]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, L, W) to (B, L, W)."""
        for block in self.blocks:
            x = block(x, mask)
        return x
