"""CLIP's text tower, with what prompt tuning needs of it.

A prompt enters as *embeddings*, because the tuned context is not made of words, and the feature is
read at one position, usually the end token. Every tower maps whole sequences of `context_length`
embeddings, padding included, to features: `tower(embeddings, end)`. A tower that `is_causal` offers
more, because its feature depends on nothing behind the end token: callers pass sequences cut there,
and the positions that all class prompts share (start token and context) run once: `prefix` returns
their keys and values, and `forward` lets any number of continuations attend to them.

Another text tower can take the place of this one in `Clip`: a module with `is_causal`, `width`,
`context_length`, `activations_per_token`, `embed` and `forward`, and with `prefix` if it is causal.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dtpt.clip.config import Activation, TextConfig
from dtpt.clip.device import to_float32
from dtpt.clip.transformer import Block, KeysValues, Transformer
from dtpt.errors import ModelError


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the first positions: per layer a pair of (B, heads, P, W/heads)."""

    layers: tuple[KeysValues, ...]

    @property
    def length(self) -> int:
        return self.layers[0][0].shape[2]


class TextTower(nn.Module):
    """Token embeddings -> transformer -> state at one position -> joint space."""

    def __init__(self, config: TextConfig, embed_dim: int, *, activation: Activation) -> None:
        super().__init__()
        self.is_causal, self.reads_last = config.is_causal, config.reads == "last"
        self.width, self.context_length = config.width, config.context_length
        # Numbers that autograd keeps for one token, estimated from above.
        self.activations_per_token = config.layers * (10 * config.width + 2 * config.mlp_width)
        self.token_embedding = nn.Embedding(config.vocab_size, config.width)
        self.positional_embedding = nn.Parameter(torch.empty(config.context_length, config.width))
        self.transformer = Transformer(config, activation=activation)
        self.ln_final = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.text_projection = nn.Parameter(torch.empty(config.width, embed_dim))
        bias = nn.Parameter(torch.empty(embed_dim)) if config.projection_bias else None
        self.text_projection_bias: nn.Parameter | None = bias

    def embed(self, tokens: Tensor) -> Tensor:
        """Look up token embeddings, without positions: (B, L) ids -> (B, L, W)."""
        return to_float32(self.token_embedding(tokens))

    def prefix(self, embeddings: Tensor) -> Prefix:
        """Run the first P positions (B, P, W) and keep what later positions attend to."""
        if not self.is_causal:
            raise ModelError(
                "A text tower that is not causal has no prefix that prompts can share."
            )
        x = self._add_positions(embeddings)
        mask = _causal_mask(x.shape[1], 0, device=x.device)
        layers = []
        blocks = self.transformer.blocks
        for block in blocks:
            q, kv = block.attn.project(block.ln_1(x))
            layers.append(kv)
            if block is not blocks[-1]:  # the last state of a prefix is never read
                x = block.add_mlp(x, block.attn.attend(q, kv, mask=mask))
        return Prefix(tuple(layers))

    def forward(
        self, embeddings: Tensor, end: Tensor | None, *, prefix: Prefix | None = None
    ) -> Tensor:
        """Map sequences (B, L, W), which may continue a prefix, to features (B, D), not normalised.

        `end` (B,) is where in each sequence the feature is read; None, or a tower that reads there
        always: at its last position. The batch size of the prefix is B or 1 (shared).
        """
        past = 0 if prefix is None else prefix.length
        x = self._add_positions(embeddings, past)
        mask = _causal_mask(x.shape[1], past, device=x.device) if self.is_causal else None
        blocks = self.transformer.blocks
        pasts = (None,) * len(blocks) if prefix is None else prefix.layers
        for block, kept in zip(blocks[:-1], pasts[:-1], strict=True):
            x = _continue(block, x, past=kept, mask=mask)
        x = self._last_block(blocks[-1], x, past=pasts[-1], end=None if self.reads_last else end)
        return to_float32(self.project(x))

    def project(self, state: Tensor) -> Tensor:
        """Map final states (..., W) into the joint space (..., D)."""
        features: Tensor = self.ln_final(state) @ self.text_projection
        bias = self.text_projection_bias
        return features if bias is None else features + bias

    def _add_positions(self, embeddings: Tensor, past: int = 0) -> Tensor:
        """Add position embeddings, counted from `past` on, in the tower's precision."""
        positions = self.positional_embedding[past : past + embeddings.shape[1]]
        return embeddings.to(positions.dtype) + positions

    def _last_block(
        self, block: Block, x: Tensor, *, past: KeysValues | None, end: Tensor | None
    ) -> Tensor:
        """Run the last block at the position that is read only: (B, L, W) -> (B, W)."""
        batch, length, _ = x.shape
        normed = block.ln_1(x)
        kv = _with_past(block.attn.keys_values(normed), past)
        total, mask = kv[0].shape[2], None
        if end is None:
            x, normed = x[:, -1:], normed[:, -1:]
        else:
            rows = torch.arange(batch, device=x.device)
            x, normed = x[rows, end].unsqueeze(1), normed[rows, end].unsqueeze(1)  # (B, 1, W)
            if self.is_causal:
                reach = torch.arange(total, device=x.device) - (total - length)
                mask = (reach <= end[:, None])[:, None, None, :]  # (B, 1, 1, P + L)
        q = block.attn.queries(normed)  # one per row
        return block.add_mlp(x, block.attn.attend(q, kv, mask=mask)).squeeze(1)


def _causal_mask(length: int, past: int, *, device: torch.device) -> Tensor:
    """Return (L, P + L), True where query i (position P + i) may attend to key j."""
    return torch.ones(length, past + length, dtype=torch.bool, device=device).tril(past)


def _with_past(kv: KeysValues, past: KeysValues | None) -> KeysValues:
    """Put the prefix in front: (B, heads, L, w) -> (B, heads, P + L, w)."""
    if past is None:
        return kv
    shape = (kv[0].shape[0], -1, -1, -1)
    return (
        torch.cat([past[0].expand(shape), kv[0]], dim=2),
        torch.cat([past[1].expand(shape), kv[1]], dim=2),
    )


def _continue(block: Block, x: Tensor, *, past: KeysValues | None, mask: Tensor | None) -> Tensor:
    """Run one block over x (B, L, W), which also attends to the prefix."""
    q, kv = block.attn.project(block.ln_1(x))
    return block.add_mlp(x, block.attn.attend(q, _with_past(kv, past), mask=mask))
