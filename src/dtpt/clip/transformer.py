"""The pre-norm transformer block that both of CLIP's towers are made of.

Parameter names are OpenAI's (`attn.in_proj_weight`, `mlp.c_fc.weight`, ...), so that their weights
load as they are. Attention is split into `project` and `attend` because prompt tuning needs the
keys and values of a shared prefix (see `text.py`). The last block of either tower is read at one
position only: in the text tower `queries` and `keys_values` project what that needs, in the image
tower, where no prefix is shared, `look` does without keys and values.

QuickGELU is x·sigmoid(sx) = silu(sx)/s with s = 1.702. Written so, it costs three passes over the
widest tensor of the block. Here s multiplies the small vectors in front of it (gain and bias of the
norm, bias of the first layer) and 1/s is part of the residual addition behind it, which leaves one
pass; weights stay as they are.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import Activation
from dtpt.clip.packed import Copies, memory_of_copy

QUICK_GELU_SLOPE = 1.702

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of one layer, each (B, heads, L, W/heads)."""


class Attention(nn.Module):
    """Multi-head self-attention with one fused input projection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.copies = Copies()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def project(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Return queries, and keys with values, of x (B, L, W), each (B, heads, L, W/heads)."""
        weight, bias = self.in_proj_weight, self.in_proj_bias
        qkv = self.copies.linear(x, weight, bias=bias, name="qkv")  # (B, L, 3W)
        qkv = qkv.view(*x.shape[:2], 3, self.heads, -1)  # (B, L, 3, heads, W/heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, L, W/heads)
        return q, (k, v)

    def queries(self, x: Tensor) -> Tensor:
        """Return the queries alone, of x (B, L, W): (B, heads, L, W/heads)."""
        width = self.out_proj.in_features
        weight, bias = self.in_proj_weight[:width], self.in_proj_bias[:width]
        q = self.copies.linear(x, weight, bias=bias, name="q")  # (B, L, W)
        return q.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def keys_values(self, x: Tensor) -> KeysValues:
        """Return keys and values alone, of x (B, L, W), each (B, heads, L, W/heads)."""
        width = self.out_proj.in_features
        weight, bias = self.in_proj_weight[width:], self.in_proj_bias[width:]
        kv = self.copies.linear(x, weight, bias=bias, name="kv")  # (B, L, 2W)
        kv = kv.view(*x.shape[:2], 2, self.heads, -1)  # (B, L, 2, heads, W/heads)
        k, v = kv.permute(2, 0, 3, 1, 4)  # each (B, heads, L, W/heads)
        return k, v

    def look(self, token: Tensor, x: Tensor) -> Tensor:
        """Attend from one token (B, 1, W) to all of x (B, L, W), without their keys and values.

        A query q sees key W_k x + b_k as (W_kᵀ q)·x, up to a number that all keys share and softmax
        takes away; and the mixture of values W_v x + b_v is W_v (mixture of x) + b_v, as its
        weights sum to one. Two small products replace those with every x.
        """
        width = self.out_proj.in_features
        _, w_k, w_v = self.in_proj_weight.view(3, self.heads, -1, width)  # (heads, W/heads, W)
        b_v = self.in_proj_bias[2 * width :]
        q = self.queries(token).squeeze(2)  # (B, heads, W/heads)
        seen = torch.einsum("bhd,hdw->bhw", q, w_k) * q.shape[-1] ** -0.5
        weights = (seen @ x.transpose(1, 2)).softmax(dim=-1)  # (B, heads, L)
        mixed = torch.einsum("bhw,hdw->bhd", weights @ x, w_v)  # (B, heads, W/heads)
        mixed = mixed.flatten(1).unsqueeze(1) + b_v  # (B, heads, W/heads) -> (B, 1, W)
        return self._out(mixed)

    def attend(self, q: Tensor, kv: KeysValues, *, mask: Tensor | None = None) -> Tensor:
        """Mix values to (B, L, W); `mask` is True where a query may look."""
        k, v = kv
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, heads, L, W/heads) -> (B, L, W)
        return self._out(mixed)

    def _out(self, mixed: Tensor) -> Tensor:
        out = self.out_proj
        return self.copies.linear(mixed, out.weight, bias=out.bias, name="out")


class Mlp(nn.Module):
    """Two linear layers around the model's activation.

    Attributes:
        slope: the s of QuickGELU, 1 for GELU; input and output are multiplied by it.
    """

    def __init__(self, width: int, hidden: int, *, activation: Activation) -> None:
        super().__init__()
        self.copies = Copies()
        self.c_fc = nn.Linear(width, hidden)
        self.c_proj = nn.Linear(hidden, width)
        self.slope = QUICK_GELU_SLOPE if activation == "quick_gelu" else 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Map s·x (..., W) to s·mlp(x) (..., W)."""
        quick = self.slope != 1.0
        first, second = (_scaled(layer.bias, self.slope) for layer in (self.c_fc, self.c_proj))
        hidden = self.copies.linear(x, self.c_fc.weight, bias=first, name="fc", silu=quick)
        hidden = hidden if quick else F.gelu(hidden)
        return self.copies.linear(hidden, self.c_proj.weight, bias=second, name="proj")


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
        x = _sum(x, attended)
        norm, slope = self.ln_2, self.mlp.slope
        gain, bias = _scaled(norm.weight, slope), _scaled(norm.bias, slope)
        normed = F.layer_norm(x, norm.normalized_shape, gain, bias, norm.eps)  # times s
        return _sum(x, self.mlp(normed), scale=1 / slope)


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


def packed_bytes(tower: nn.Module, *, backward: bool) -> int:
    """Return what the packed copies of a tower's layers take on a CPU (see `dtpt.clip.packed`).

    Args:
        tower: of an image or text.
        backward: whether gradients pass it, which needs a second copy.
    """
    matrices = (
        weight
        for block in tower.modules()
        if isinstance(block, Block)
        for weight in block.parameters()
        if weight.ndim == 2
    )
    return (1 + backward) * sum(memory_of_copy(weight) for weight in matrices)


def _scaled(vector: Tensor, factor: float) -> Tensor:
    return vector if factor == 1.0 else factor * vector


def _sum(x: Tensor, fresh: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return x + scale·fresh; `fresh`, which nobody else has, is overwritten without gradients."""
    if torch.is_grad_enabled():
        return torch.add(x, fresh, alpha=scale)
    return torch.add(x, fresh, alpha=scale, out=fresh)
