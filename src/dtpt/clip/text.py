"""CLIP's causal text tower, with the seam that prompt tuning needs.

A prompt enters as *embeddings*, because the tuned context is not made of words. Attention is
causal, so the feature at the end token depends on nothing behind it: callers pass sequences cut at
the end token and no position behind it is ever computed. For the same reason the positions that
all class prompts share (start token and context) need to run once: `prefix` returns their keys and
values, and `forward` lets any number of continuations attend to them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dtpt.clip.config import Activation, TextConfig
from dtpt.clip.precision import widened
from dtpt.clip.transformer import Block, KeysValues, Transformer


@dataclass(frozen=True)
class Prefix:
    """Keys and values of the first positions: per layer a pair of (B, heads, P, W/heads)."""

    layers: tuple[KeysValues, ...]

    @property
    def length(self) -> int:
        """Return the number of positions P that the prefix covers."""
        return self.layers[0][0].shape[2]


class TextTower(nn.Module):
    """Token embeddings -> causal transformer -> state at the end token -> joint space."""

    def __init__(self, config: TextConfig, embed_dim: int, *, activation: Activation) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.width)
        self.positional_embedding = nn.Parameter(torch.empty(config.context_length, config.width))
        self.transformer = Transformer(
            config.width,
            layers=config.layers,
            heads=config.heads,
            mlp_width=config.mlp_width,
            activation=activation,
            eps=config.norm_eps,
        )
        self.ln_final = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.text_projection = nn.Parameter(torch.empty(config.width, embed_dim))

    def embed(self, tokens: Tensor) -> Tensor:
        """Look up token embeddings, without positions: (B, L) ids -> (B, L, W)."""
        return widened(self.token_embedding(tokens))

    def prefix(self, embeddings: Tensor) -> Prefix:
        """Run the first P positions (B, P, W) and keep what later positions look at."""
        x = self._placed(embeddings)
        mask = _causal_mask(x.shape[1], 0, device=x.device)
        layers = []
        blocks = self.transformer.blocks
        for block in blocks:
            q, kv = block.attn.project(block.ln_1(x))
            layers.append(kv)
            if block is not blocks[-1]:  # the last state of a prefix is never read
                x = block.finish(x, block.attn.attend(q, kv, mask=mask))
        return Prefix(tuple(layers))

    def forward(
        self, embeddings: Tensor, end: Tensor | None, *, prefix: Prefix | None = None
    ) -> Tensor:
        """Return text features, not normalised, of sequences that may continue a shared prefix.

        Args:
            embeddings: (B, L, W), without positions; positions count on from the prefix.
            end: (B,) index of each end token within `embeddings`; None if it is the last one.
            prefix: keys and values of earlier positions, of batch size B or 1 (shared).

        Returns:
            (B, D) features.
        """
        past = 0 if prefix is None else prefix.length
        x = self._placed(embeddings, past)
        mask = _causal_mask(x.shape[1], past, device=x.device)
        blocks = self.transformer.blocks
        pasts = (None,) * len(blocks) if prefix is None else prefix.layers
        for block, seen in zip(blocks[:-1], pasts[:-1], strict=True):
            x = _continue(block, x, past=seen, mask=mask)
        x = _continue_at_end(blocks[-1], x, past=pasts[-1], end=end)
        return widened(self.ln_final(x) @ self.text_projection)

    def _placed(self, embeddings: Tensor, past: int = 0) -> Tensor:
        """Add positions, counted from `past` on, in the tower's precision."""
        positions = self.positional_embedding[past : past + embeddings.shape[1]]
        return embeddings.to(positions.dtype) + positions


def _causal_mask(length: int, past: int, *, device: torch.device) -> Tensor:
    """Return (L, P + L), True where query i (position P + i) may look at key j."""
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


def _continue(block: Block, x: Tensor, *, past: KeysValues | None, mask: Tensor) -> Tensor:
    """Run one block over x (B, L, W) that also looks at the prefix."""
    q, kv = block.attn.project(block.ln_1(x))
    return block.finish(x, block.attn.attend(q, _with_past(kv, past), mask=mask))


def _continue_at_end(
    block: Block, x: Tensor, *, past: KeysValues | None, end: Tensor | None
) -> Tensor:
    """Run the last block at the end token only: (B, L, W) -> (B, W)."""
    batch, length, _ = x.shape
    normed = block.ln_1(x)
    kv = _with_past(block.attn.keys_values(normed), past)
    total = kv[0].shape[2]
    if end is None:
        x, normed, mask = x[:, -1:], normed[:, -1:], None
    else:
        rows = torch.arange(batch, device=x.device)
        x, normed = x[rows, end].unsqueeze(1), normed[rows, end].unsqueeze(1)  # (B, 1, W)
        reach = torch.arange(total, device=x.device) - (total - length)
        mask = (reach <= end[:, None])[:, None, None, :]  # (B, 1, 1, P + L)
    q = block.attn.queries(normed)  # one per row
    return block.finish(x, block.attn.attend(q, kv, mask=mask)).squeeze(1)
