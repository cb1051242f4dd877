"""What can be tuned: a point, from which all classes' text features follow, and their pullback.

A *context* is a point whose features come from the text tower (`PromptEncoder`); a *shift* moves
the features themselves and needs no tower (`ShiftSpace`). The engine treats both alike.

The encoder is exact. With a causal text tower nothing behind the end token is computed, the prefix
that all classes share runs once, and classes of equal length are batched without padding; any other
tower runs over whole padded prompts. Classes are worked through in chunks; the graphs of as many
chunks as the memory budget allows are kept, so that a pullback (vector-Jacobian product) needs no
forward pass. The others are recomputed.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class ShiftSpace:
    """Shifts (C, D) of fixed text features (C, D): the same interface as `PromptEncoder`."""

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
    """Some classes that run together: their suffixes, or whole prompts if nothing is shared."""

    classes: Tensor  # (G,) indices
    embeddings: Tensor  # (G, S, W) before the context is put in
    end: Tensor  # (G,) index of each end token
    context: Tensor  # (G, t) index of each row of the context that is not in the prefix


class PromptEncoder:
    """The map context (n, W) -> normalised text features (C, D) for one prompt set.

    Args:
        model: its text tower is used as it is; model weights get no gradient.
        prompts: the token layout.
        budget_bytes: memory that kept graphs may take.
        chunk_tokens: class tokens per forward pass; it decides the last bits of features.
    """

    def __init__(
        self,
        model: Clip,
        prompts: PromptSet,
        *,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        chunk_tokens: int | None = None,
    ) -> None:
        self.tower = model.require_text()
        self.prompts = prompts
        self.budget_bytes = budget_bytes
        self.embed_dim = model.config.embed_dim
        self.bytes_per_token = graph_bytes_per_token(model)
        # rows of the context that are in the shared prefix; the others are in every chunk
        self._in_prefix = len(prompts.tuned_prefix) if self.tower.is_causal else 0
        with torch.no_grad():
            self._prefix_embeddings = self.tower.embed(prompts.prefix)  # (P, W)
            self._chunks = _make_chunks(model, prompts, tokens=chunk_tokens or CHUNK_TOKENS)

    @property
    def origin(self) -> Tensor:
        """The initial context (n, W), where every image starts."""
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
        count, prefix = len(contexts), None
        if self.tower.is_causal:
            embeddings = self._prefix_embeddings.repeat(count, 1, 1)  # (B, P, W)
            if self._in_prefix:
                embeddings[:, list(self.prompts.tuned_prefix)] = contexts[:, : self._in_prefix]
            prefix = self.tower.prefix(embeddings)
        features = contexts.new_empty(count, len(self.prompts.names), self.embed_dim)
        for chunk in self._chunks:
            part = self._encode_chunk_at(chunk, contexts, prefix=prefix)
            features[:, chunk.classes] = part  # (B, G, D)
        return features

    def linearise(self, point: Tensor) -> "Linearisation":
        """Return the features at a context together with what their pullback needs."""
        return Linearisation(self, point)

    def _prefix(self, context: Tensor) -> Prefix | None:
        if not self.tower.is_causal:
            return None
        embeddings = self._prefix_embeddings
        if self._in_prefix:
            rows = torch.tensor(self.prompts.tuned_prefix, device=context.device)
            embeddings = embeddings.index_copy(0, rows, context[: self._in_prefix])
        return self.tower.prefix(embeddings.unsqueeze(0))  # (1, P, W)

    def _encode_chunk(self, chunk: _Chunk, context: Tensor, *, prefix: Prefix | None) -> Tensor:
        """Return (G, D) normalised features of one chunk."""
        embeddings = chunk.embeddings
        if chunk.context.shape[1]:
            rows = torch.arange(len(embeddings), device=context.device)[:, None]  # (G, 1)
            words = context[self._in_prefix :].expand(len(embeddings), -1, -1)  # (G, t, W)
            embeddings = embeddings.index_put((rows, chunk.context), words)
        return self._features(embeddings, chunk.end, prefix=prefix)

    def _encode_chunk_at(self, chunk: _Chunk, contexts: Tensor, *, prefix: Prefix | None) -> Tensor:
        """Return (B, G, D) features of one chunk at B contexts (B, n, W)."""
        count, group = len(contexts), len(chunk.embeddings)
        embeddings = chunk.embeddings.repeat(count, 1, 1, 1)  # (B, G, S, W)
        rows = torch.arange(group, device=contexts.device)
        for index, words in enumerate(contexts[:, self._in_prefix :].unbind(dim=1)):  # (B, W)
            embeddings[:, rows, chunk.context[:, index]] = words[:, None]  # (B, G, W)
        if prefix is not None:
            layers = tuple(
                (k.repeat_interleave(group, dim=0), v.repeat_interleave(group, dim=0))
                for k, v in prefix.layers  # (B, heads, P, w) -> (B * G, heads, P, w)
            )
            prefix = Prefix(layers)
        flat = embeddings.flatten(0, 1)  # (B * G, S, W)
        features = self._features(flat, chunk.end.repeat(count), prefix=prefix)
        return features.view(count, group, -1)  # (B * G, D) -> (B, G, D)

    def _features(self, embeddings: Tensor, end: Tensor, *, prefix: Prefix | None) -> Tensor:
        if prefix is None:  # other towers than ours take no prefix at all
            return F.normalize(self.tower(embeddings, end), dim=-1)
        return F.normalize(self.tower(embeddings, end, prefix=prefix), dim=-1)

    def _in_class_order(self, parts: list[Tensor]) -> Tensor:
        features = parts[0].new_empty(len(self.prompts.names), self.embed_dim)
        for chunk, part in zip(self._chunks, parts, strict=True):
            features[chunk.classes] = part
        return features


class Linearisation:
    """Text features at one context, and gradients pulled back from them to the context.

    `pullback` may be called any number of times: for one initial context the graph is the same for
    every image, because the context is reset. The chunks depend on detached keys and values of the
    prefix, so that the prefix itself is differentiated once per pullback and not once per chunk.
    """

    def __init__(self, encoder: PromptEncoder, context: Tensor) -> None:
        self._encoder = encoder
        self._context = context.detach().clone().requires_grad_()
        with torch.enable_grad():
            self._prefix = encoder._prefix(self._context)
        self._leaf = self._prefix and Prefix(
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
        inputs = [self._context, *_tensors(self._leaf)]
        totals = [torch.zeros_like(tensor, dtype=self._context.dtype) for tensor in inputs]
        gradient, undo = scale_for_half(gradient, next(self._encoder.tower.parameters()).dtype)
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
        if not self._encoder._in_prefix:
            return torch.zeros_like(self._context)
        outputs = _tensors(self._prefix)
        gradients = [gradient.to(outputs[0].dtype) for gradient in gradients]
        (grad,) = torch.autograd.grad(outputs, self._context, gradients, retain_graph=True)
        return grad


Space = PromptEncoder | ShiftSpace
Linearised = Linearisation | ShiftedText


def _tensors(prefix: Prefix | None) -> list[Tensor]:
    return [] if prefix is None else [tensor for pair in prefix.layers for tensor in pair]


def _make_chunks(model: Clip, prompts: PromptSet, *, tokens: int) -> list[_Chunk]:
    tower = model.require_text()
    if tower.is_causal:
        tuned = torch.tensor(prompts.tuned_suffix, dtype=torch.long, device=model.device)
        groups = [(g.classes, g.tokens, g.end, g.end[:, None] + tuned) for g in prompts.groups]
    else:
        padded = prompts.padded(tower.context_length, pad_id=model.tokenizer.pad_id)
        classes = torch.arange(len(prompts.names), device=model.device)
        groups = [(classes, padded.tokens, padded.end, padded.context)]
    chunks = []
    for classes, ids, end, context in groups:
        size = max(1, tokens // ids.shape[1])
        for start in range(0, len(classes), size):
            part = slice(start, start + size)
            embeddings = tower.embed(ids[part])
            chunks.append(_Chunk(classes[part], embeddings, end[part], context[part]))
    return chunks


def graph_bytes_per_token(model: Clip) -> int:
    """Return an upper estimate of what autograd keeps per class token, in bytes."""
    numbers = 0 if model.text is None else model.text.activations_per_token
    return numbers * torch.finfo(model.dtype).bits // 8
