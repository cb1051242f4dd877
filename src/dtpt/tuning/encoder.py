"""What can be tuned: a point, from which all classes' text features follow, and their pullback.

A *context* is a point whose features come from the text tower (`PromptEncoder`); a *shift* moves
the features themselves and needs no tower (`ShiftSpace`). The engine treats both alike.

The encoder is exact and rests on causal attention: nothing behind the end token is computed, the
prefix that all classes share runs once, and classes of equal length are batched without padding.
Classes are worked through in chunks; the graphs of as many chunks as the memory budget allows are
kept, so that a pullback (vector-Jacobian product) needs no forward pass. The others are recomputed.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from dtpt.clip.device import scale_for_half
from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.clip.text import Prefix
from dtpt.methods.tps import pull_back, shifted

DEFAULT_BUDGET_BYTES = 1_500_000_000
CHUNK_TOKENS = 1024  # class tokens per forward pass: large enough to keep matrix products efficient


class Linearised(Protocol):
    """Text features (C, D) at one point, and gradients pulled back from them to the point."""

    @property
    def features(self) -> Tensor: ...

    def pullback(self, gradient: Tensor) -> Tensor:
        """Turn a gradient for the features (C, D) into one for the point; any number of times."""
        ...


class Space(Protocol):
    """The points that a method may move to."""

    @property
    def origin(self) -> Tensor:
        """Where every image starts."""
        ...

    def encode(self, point: Tensor) -> Tensor:
        """Return the text features (C, D) at a point, without a graph."""
        ...

    def linearise(self, point: Tensor) -> Linearised: ...


@dataclass(frozen=True)
class ShiftSpace:
    """Shifts (C, D) of fixed text features (C, D)."""

    text: Tensor

    @property
    def origin(self) -> Tensor:
        return self.text.new_zeros(self.text.shape)

    def encode(self, point: Tensor) -> Tensor:
        return shifted(self.text, point)

    def linearise(self, point: Tensor) -> "ShiftedText":
        return ShiftedText(self.text, point, shifted(self.text, point))


@dataclass(frozen=True)
class ShiftedText:
    """Shifted features and their pullback, in closed form."""

    text: Tensor
    shift: Tensor
    features: Tensor

    def pullback(self, gradient: Tensor) -> Tensor:
        return pull_back(self.text, self.shift, gradient=gradient)


@dataclass(frozen=True)
class _Chunk:
    """Some classes of one group."""

    classes: Tensor  # (G,) indices
    embeddings: Tensor  # (G, S, W) of their suffixes, before the context is put in
    end: Tensor  # (G,) position of each end token


class PromptEncoder:
    """The map context (n, W) -> normalised text features (C, D) for one prompt set.

    Args:
        model: its text tower is used as it is; model weights get no gradient.
        prompts: the token layout.
        budget_bytes: memory that kept graphs may take.
        chunk_tokens: class tokens per forward pass; another number rounds otherwise.
    """

    def __init__(
        self,
        model: Clip,
        prompts: PromptSet,
        *,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        chunk_tokens: int = CHUNK_TOKENS,
    ) -> None:
        self.tower = model.require_text()
        self.prompts = prompts
        self.budget_bytes = budget_bytes
        self.embed_dim = model.config.embed_dim
        self.bytes_per_token = graph_bytes_per_token(model)
        with torch.no_grad():
            self._prefix_embeddings = self.tower.embed(prompts.prefix)  # (P, W)
            self._chunks = _make_chunks(model, prompts, tokens=chunk_tokens)

    @property
    def origin(self) -> Tensor:
        return self.prompts.context

    @torch.no_grad()
    def encode(self, point: Tensor) -> Tensor:
        """Return normalised text features (C, D) at a context, in class order, without a graph."""
        prefix = self._prefix(point)
        return self._in_class_order(
            [self._encode_chunk(c, point, prefix=prefix) for c in self._chunks]
        )

    @torch.no_grad()
    def encode_many(self, contexts: Tensor) -> Tensor:
        """Return the features (B, C, D) at B contexts (B, n, W), which share forward passes.

        For accelerators, where larger batches pay; equal to `encode` up to rounding.
        """
        count, tuned = len(contexts), self.prompts.tuned_prefix
        embeddings = self._prefix_embeddings.repeat(count, 1, 1)  # (B, P, W)
        if tuned:
            embeddings[:, list(tuned)] = contexts[:, : len(tuned)]
        prefix = self.tower.prefix(embeddings)
        features = contexts.new_empty(count, len(self.prompts.names), self.embed_dim)
        for chunk in self._chunks:
            part = self._encode_chunk_at(chunk, contexts, prefix=prefix)
            features[:, chunk.classes] = part  # (B, G, D)
        return features

    def linearise(self, point: Tensor) -> "Linearisation":
        """Return the features at a context together with what their pullback needs."""
        return Linearisation(self, point)

    def _prefix(self, context: Tensor) -> Prefix:
        embeddings = self._prefix_embeddings
        tuned = self.prompts.tuned_prefix
        if tuned:
            rows = torch.tensor(tuned, device=context.device)
            embeddings = embeddings.index_copy(0, rows, context[: len(tuned)])
        return self.tower.prefix(embeddings.unsqueeze(0))  # (1, P, W)

    def _encode_chunk(self, chunk: _Chunk, context: Tensor, *, prefix: Prefix) -> Tensor:
        """Return (G, D) normalised features of one chunk."""
        embeddings = chunk.embeddings
        tuned = torch.tensor(self.prompts.tuned_suffix, device=context.device, dtype=torch.long)
        if len(tuned):
            rows = torch.arange(len(embeddings), device=context.device)[:, None]  # (G, 1)
            words = context[len(self.prompts.tuned_prefix) :]  # (t, W)
            positions = chunk.end[:, None] + tuned  # (G, t)
            words = words.expand(len(embeddings), -1, -1)  # (G, t, W)
            embeddings = embeddings.index_put((rows, positions), words)
        return F.normalize(self.tower(embeddings, chunk.end, prefix=prefix), dim=-1)

    def _encode_chunk_at(self, chunk: _Chunk, contexts: Tensor, *, prefix: Prefix) -> Tensor:
        """Return (B, G, D) features of one chunk at B contexts (B, n, W)."""
        count, group = len(contexts), len(chunk.embeddings)
        embeddings = chunk.embeddings.repeat(count, 1, 1, 1)  # (B, G, S, W)
        words = contexts[:, len(self.prompts.tuned_prefix) :]  # (B, t, W)
        rows = torch.arange(group, device=contexts.device)
        for index, back in enumerate(self.prompts.tuned_suffix):
            embeddings[:, rows, chunk.end + back] = words[:, index, None]  # (B, G, W)
        layers = tuple(
            (k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0))
            for k, v in prefix.layers  # (B, heads, P, w) -> (B * G, heads, P, w)
        )
        flat = embeddings.flatten(0, 1)  # (B * G, S, W)
        features = self.tower(flat, chunk.end.repeat(count), prefix=Prefix(layers))
        return F.normalize(features, dim=-1).view(count, group, -1)  # (B * G, D) -> (B, G, D)

    def _in_class_order(self, parts: list[Tensor]) -> Tensor:
        features = parts[0].new_empty(len(self.prompts.names), self.embed_dim)
        for chunk, part in zip(self._chunks, parts, strict=True):
            features[chunk.classes] = part
        return features


class Linearisation:
    """Text features at one context, and gradients pulled back from them to the context.

    `pullback` may be called any number of times: for one initial context the graph is the same for
    every image, because the context is reset. The chunks hang on detached keys and values of the
    prefix, so that the prefix itself is differentiated once per pullback and not once per chunk.
    """

    def __init__(self, encoder: PromptEncoder, context: Tensor) -> None:
        self._encoder = encoder
        self._context = context.detach().clone().requires_grad_()
        with torch.enable_grad():
            self._prefix = encoder._prefix(self._context)
        self._leaf = Prefix(
            tuple(
                (k.detach().requires_grad_(), v.detach().requires_grad_())
                for k, v in self._prefix.layers
            )
        )
        self._kept: list[Tensor | None] = []
        parts = []
        left = encoder.budget_bytes
        for chunk in encoder._chunks:
            left -= chunk.embeddings.shape[0] * chunk.embeddings.shape[1] * encoder.bytes_per_token
            with torch.set_grad_enabled(left >= 0):
                part = encoder._encode_chunk(chunk, self._context, prefix=self._leaf)
            self._kept.append(part if left >= 0 else None)
            parts.append(part.detach())
        self.features = encoder._in_class_order(parts)

    def pullback(self, gradient: Tensor) -> Tensor:
        """Return the gradient for the context (n, W) from one for the features (C, D)."""
        leaves = [tensor for pair in self._leaf.layers for tensor in pair]
        inputs = [self._context, *leaves]
        totals = [torch.zeros_like(tensor, dtype=self._context.dtype) for tensor in inputs]
        gradient, undo = scale_for_half(gradient, leaves[0].dtype)
        for chunk, kept in zip(self._encoder._chunks, self._kept, strict=True):
            part = self._recompute(chunk) if kept is None else kept
            grads = torch.autograd.grad(
                part, inputs, gradient[chunk.classes], retain_graph=True, allow_unused=True
            )
            for total, grad in zip(totals, grads, strict=True):
                if grad is not None:
                    total += grad
        return undo * (totals[0] + self._through_prefix(totals[1:]))

    def _recompute(self, chunk: _Chunk) -> Tensor:
        with torch.enable_grad():
            return self._encoder._encode_chunk(chunk, self._context, prefix=self._leaf)

    def _through_prefix(self, gradients: list[Tensor]) -> Tensor:
        if not self._encoder.prompts.tuned_prefix:
            return torch.zeros_like(self._context)
        outputs = [tensor for pair in self._prefix.layers for tensor in pair]
        gradients = [gradient.to(outputs[0].dtype) for gradient in gradients]
        (grad,) = torch.autograd.grad(outputs, self._context, gradients, retain_graph=True)
        return grad


def _make_chunks(model: Clip, prompts: PromptSet, *, tokens: int) -> tuple[_Chunk, ...]:
    chunks, tower = [], model.require_text()
    for group in prompts.groups:
        size = max(1, tokens // group.tokens.shape[1])
        for start in range(0, len(group.classes), size):
            part = slice(start, start + size)
            embeddings = tower.embed(group.tokens[part])
            chunks.append(_Chunk(group.classes[part], embeddings, group.end[part]))
    return tuple(chunks)


def graph_bytes_per_token(model: Clip) -> int:
    """Return an upper estimate of what autograd keeps per class token, in bytes."""
    numbers = model.require_text().activations_per_token
    return numbers * torch.finfo(model.dtype).bits // 8
