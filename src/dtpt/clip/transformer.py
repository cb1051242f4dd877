"""The pre-norm transformer block that all towers are made of, and the ViT image towers.

Parameter names are OpenAI's (`attn.in_proj_weight`, `mlp.c_fc.weight`, ...), so that their weights
load unchanged. Attention is split into `project` and `attend` because prompt tuning needs the keys
and values of a shared prefix (see `text.py`). The last block of either tower is read at one
position only: in the text tower `queries` and `keys_values` project what that needs; in the image
tower, where no prefix is shared, `attend_from` needs neither keys nor values.

QuickGELU is x·sigmoid(sx) = silu(sx)/s with s = 1.702, which takes three passes over the widest
tensor of the block. Here s multiplies the small vectors in front of it (gain and bias of the norm,
bias of the first layer) and 1/s is part of the residual addition behind it, which leaves one pass.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import Activation, SiglipVitConfig, TextConfig, VitConfig
from dtpt.clip.packed import PackedWeights

QUICK_GELU_SLOPE = 1.702

BlockConfig = VitConfig | SiglipVitConfig | TextConfig
KeysValues = tuple[Tensor, Tensor]  # of one layer, each (B, heads, L, W/heads)


class Attention(nn.Module):
    """Multi-head self-attention with one fused input projection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.packed = PackedWeights()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def project(self, x: Tensor) -> tuple[Tensor, KeysValues]:
        """Return queries, and keys with values, of x (B, L, W), each (B, heads, L, W/heads)."""
        q, k, v = self._project(x, slice(None), name="qkv")
        return q, (k, v)

    def queries(self, x: Tensor) -> Tensor:
        q: Tensor = self._project(x, slice(self.out_proj.in_features), name="q")[0]
        return q

    def keys_values(self, x: Tensor) -> KeysValues:
        k, v = self._project(x, slice(self.out_proj.in_features, None), name="kv")
        return k, v

    def _project(self, x: Tensor, rows: slice, *, name: str) -> Tensor:
        """Return the projections (parts, B, heads, L, W/heads) of x (B, L, W) by some rows."""
        weight, bias = self.in_proj_weight[rows], self.in_proj_bias[rows]
        projected = self.packed.linear(x, weight, bias=bias, name=name)  # (B, L, parts * W)
        parts = len(weight) // x.shape[-1]
        projected = projected.view(*x.shape[:2], parts, self.heads, -1)
        return projected.permute(
            2, 0, 3, 1, 4
        )  # (B, L, parts, heads, w) -> (parts, B, heads, L, w)

    def attend_from(self, token: Tensor, x: Tensor) -> Tensor:
        """Attend from one token (B, 1, W) to all of x (B, L, W), without their keys and values.

        A query q meets key W_k x + b_k as (W_kᵀ q)·x, up to a number that all keys share and
        softmax takes away; and the mixture of values W_v x + b_v is W_v (mixture of x) + b_v, as
        its weights sum to one. Two small products replace those with every x.
        """
        width = self.out_proj.in_features
        _, w_k, w_v = self.in_proj_weight.view(3, self.heads, -1, width)  # (heads, W/heads, W)
        b_v = self.in_proj_bias[2 * width :]
        q = self.queries(token).squeeze(2)  # (B, heads, W/heads)
        query = torch.einsum("bhd,hdw->bhw", q, w_k) * q.shape[-1] ** -0.5
        weights = (query @ x.transpose(1, 2)).softmax(dim=-1)  # (B, heads, L)
        mixed = torch.einsum("bhw,hdw->bhd", weights @ x, w_v)  # (B, heads, W/heads)
        mixed = mixed.flatten(1).unsqueeze(1) + b_v  # (B, heads, W/heads) -> (B, 1, W)
        return self._out(mixed)

    def attend(self, q: Tensor, kv: KeysValues, *, mask: Tensor | None = None) -> Tensor:
        """Mix values to (B, L, W); `mask` is True where a query may attend."""
        k, v = kv
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        mixed = mixed.transpose(1, 2).flatten(2)  # (B, heads, L, W/heads) -> (B, L, W)
        return self._out(mixed)

    def _out(self, mixed: Tensor) -> Tensor:
        out = self.out_proj
        return self.packed.linear(mixed, out.weight, bias=out.bias, name="out")


class Mlp(nn.Module):
    """Two linear layers around the model's activation."""

    def __init__(self, width: int, hidden: int, *, activation: Activation) -> None:
        super().__init__()
        self.packed = PackedWeights()
        self.c_fc = nn.Linear(width, hidden)
        self.c_proj = nn.Linear(hidden, width)
        self.approximate = "tanh" if activation == "gelu_tanh" else "none"
        # The s of QuickGELU, 1 for GELU; input and output are multiplied by it.
        self.slope = QUICK_GELU_SLOPE if activation == "quick_gelu" else 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Map s·x (..., W) to s·mlp(x) (..., W)."""
        quick = self.slope != 1.0
        first, second = (_scaled(layer.bias, self.slope) for layer in (self.c_fc, self.c_proj))
        hidden = self.packed.linear(x, self.c_fc.weight, bias=first, name="fc", silu=quick)
        hidden = hidden if quick else F.gelu(hidden, approximate=self.approximate)
        return self.packed.linear(hidden, self.c_proj.weight, bias=second, name="proj")


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: BlockConfig, *, activation: Activation) -> None:
        super().__init__()
        self.attn = Attention(config.width, config.heads)
        self.ln_1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = Mlp(config.width, config.mlp_width, activation=activation)
        self.ln_2 = nn.LayerNorm(config.width, eps=config.norm_eps)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Run the block over a whole sequence x (B, L, W)."""
        q, kv = self.attn.project(self.ln_1(x))
        return self.add_mlp(x, self.attn.attend(q, kv, mask=mask))

    def add_mlp(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add the attention's output to x, then the feed-forward part."""
        return _feed_forward(_add(x, attended), norm=self.ln_2, mlp=self.mlp)


class Transformer(nn.Module):
    """A stack of blocks under the name OpenAI gave it."""

    def __init__(self, config: BlockConfig, *, activation: Activation) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(
            Block(config, activation=activation) for _ in range(config.layers)
        )

    @property
    def blocks(self) -> list[Block]:
        return [block for block in self.resblocks if isinstance(block, Block)]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, L, W) to (B, L, W)."""
        for block in self.blocks:
            x = block(x, mask)
        return x


class VisionTransformer(nn.Module):
    """Patches -> transformer -> class token -> joint space."""

    def __init__(self, config: VitConfig, embed_dim: int, *, activation: Activation) -> None:
        super().__init__()
        width, patch = config.width, config.patch_size
        self.tokens = config.tokens
        self.conv1 = nn.Conv2d(3, width, kernel_size=patch, stride=patch, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(width))
        self.positional_embedding = nn.Parameter(torch.empty(config.tokens, width))
        self.ln_pre = nn.LayerNorm(width, eps=config.norm_eps)
        self.transformer = Transformer(config, activation=activation)
        self.ln_post = nn.LayerNorm(width, eps=config.norm_eps)
        self.proj = nn.Parameter(torch.empty(width, embed_dim))

    def forward(self, pixels: Tensor) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        x = self.embed(pixels)
        *blocks, last = self.transformer.blocks
        for block in blocks:
            x = block(x)
        normed = last.ln_1(x)  # of the last block only the class token is read
        attended = last.attn.attend_from(normed[:, :1], normed)  # (N, 1, W)
        x = last.add_mlp(x[:, :1], attended).squeeze(1)  # (N, W)
        return self.ln_post(x) @ self.proj  # type: ignore[no-any-return]

    def embed(self, pixels: Tensor) -> Tensor:
        """Return the class token and the patches with their positions: (N, 1 + g*g, W)."""
        x = self.conv1(pixels).flatten(2).transpose(1, 2)  # (N, W, g, g) -> (N, g*g, W)
        first = self.class_embedding.expand(x.shape[0], 1, -1)  # (N, 1, W)
        x = torch.cat([first, x], dim=1) + self.positional_embedding
        return self.ln_pre(x)  # type: ignore[no-any-return]


class AttentionPool(nn.Module):
    """One learned query attends to all patches; then a feed-forward part."""

    def __init__(self, config: SiglipVitConfig) -> None:
        super().__init__()
        self.probe = nn.Parameter(torch.empty(config.width))
        self.attn = Attention(config.width, config.heads)
        self.ln = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.mlp = Mlp(config.width, config.mlp_width, activation=config.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, L, W) to (N, W)."""
        pooled = self.attn.attend_from(self.probe.expand(len(x), 1, -1), x)  # (N, 1, W)
        return _feed_forward(pooled, norm=self.ln, mlp=self.mlp).squeeze(1)


class SiglipVisionTransformer(nn.Module):
    """Patches -> transformer -> attention pool, which is in the joint space."""

    def __init__(self, config: SiglipVitConfig) -> None:
        super().__init__()
        width, patch = config.width, config.patch_size
        self.tokens = config.tokens
        self.conv1 = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.positional_embedding = nn.Parameter(torch.empty(config.tokens, width))
        self.transformer = Transformer(config, activation=config.activation)
        self.ln_post = nn.LayerNorm(width, eps=config.norm_eps)
        self.pool = AttentionPool(config)

    def forward(self, pixels: Tensor) -> Tensor:
        """Map (N, 3, S, S) pixels to (N, D) features, not normalised."""
        x = self.conv1(pixels).flatten(2).transpose(1, 2)  # (N, W, g, g) -> (N, g*g, W)
        x = self.transformer(x + self.positional_embedding)
        return self.pool(self.ln_post(x))  # type: ignore[no-any-return]


def _feed_forward(x: Tensor, *, norm: nn.LayerNorm, mlp: Mlp) -> Tensor:
    """Return x + mlp(norm(x)); x may be overwritten."""
    gain, bias = _scaled(norm.weight, mlp.slope), _scaled(norm.bias, mlp.slope)
    normed = F.layer_norm(x, norm.normalized_shape, gain, bias, norm.eps)  # times s
    return _add(x, mlp(normed), scale=1 / mlp.slope)


def _scaled(vector: Tensor, factor: float) -> Tensor:
    return vector if factor == 1.0 else factor * vector


def _add(x: Tensor, fresh: Tensor, *, scale: float = 1.0) -> Tensor:
    """Return x + scale·fresh; `fresh`, which is used nowhere else, may be overwritten."""
    if torch.is_grad_enabled():
        return torch.add(x, fresh, alpha=scale)
    return torch.add(x, fresh, alpha=scale, out=fresh)
