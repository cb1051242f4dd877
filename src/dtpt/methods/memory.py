"""What stream methods keep: a memory of unit features with a few slots for each class.

A full class keeps its items of lowest entropy. Items lie in blocks in the order in which they came;
adding one copies one block alone, so that a step leaves the memory that it was given as it is and
costs little beside reading the blocks in use.
"""

from collections.abc import Callable
from typing import NamedTuple

from dtpt.methods.base import Tensor
from dtpt.methods.mean_views import mean_of_confident
from dtpt.methods.tpt import select_confident
from dtpt.methods.zero_shot import class_logits

BLOCK = 128  # items

# views (N, D), text (C, D) -> the feature (D,) and the logits (C,) of an image
Query = Callable[..., tuple[Tensor, Tensor]]


class Memory(NamedTuple):
    """At most `len(owner) / C` items of each of C classes."""

    blocks: tuple[Tensor, ...]  # (BLOCK, D) features, filled from the first
    owner: Tensor  # (M,) class of each item; -1 where there is none yet
    entropy: Tensor  # (M,)

    @property
    def size(self) -> int:
        return int((self.owner >= 0).sum())

    def cosines(self, feature: Tensor) -> Tensor:
        """Return the cosines (n,) of the items with a feature (D,)."""
        n = self.size
        cosines = feature.new_zeros(-(-n // BLOCK), BLOCK)
        for row, block in zip(cosines, self.blocks, strict=False):
            row.copy_(block @ feature)
        return cosines.flatten()[:n]

    def add_to(self, sums: Tensor, weights: Tensor) -> None:
        """Add each item, times its weight (n,), to the row of its class in sums (C, D)."""
        for start, block in zip(range(0, len(weights), BLOCK), self.blocks, strict=False):
            here = weights[start : start + BLOCK]  # the last block may not be full
            owner = self.owner[start : start + len(here)]
            sums.index_add_(0, owner, here[:, None] * block[: len(here)])

    def class_sums(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum (C, D) and the number (C,) of the items of each class of text (C, D)."""
        sums, ones = text.new_zeros(text.shape), text.new_ones(self.size)
        self.add_to(sums, ones)
        return sums, text.new_zeros(len(text)).index_add_(0, self.owner[: len(ones)], ones)


def empty_memory(text: Tensor, *, capacity: int) -> Memory:
    """Return an empty memory with `capacity` slots for each class of text features (C, D)."""
    classes, dimensions = text.shape
    slots = capacity * classes
    block = text.new_zeros(BLOCK, dimensions)  # one for all until it is written to
    owner = text.new_full((slots,), -1).long()
    blocks = (block,) * -(-slots // BLOCK)
    return Memory(blocks, owner, text.new_zeros(slots))


def remember(
    memory: Memory, feature: Tensor, *, label: int, entropy: Tensor, capacity: int
) -> tuple[Memory, int | None]:
    """Return the memory with one more item, and its slot; None if all others have lower entropy."""
    mine = (memory.owner == label).nonzero()[:, 0]
    slot = memory.size
    if len(mine) == capacity:
        worst = int(mine[memory.entropy[mine].argmax()])
        if not bool(entropy < memory.entropy[worst]):
            return memory, None
        slot = worst
    owner, entropies = memory.owner.clone(), memory.entropy.clone()
    owner[slot], entropies[slot] = label, entropy
    number, row = divmod(slot, BLOCK)
    block = memory.blocks[number].clone()
    block[row] = feature
    blocks = (*memory.blocks[:number], block, *memory.blocks[number + 1 :])
    return Memory(blocks, owner, entropies), slot


def original_query(views: Tensor, text: Tensor, *, logit_scale: float) -> tuple[Tensor, Tensor]:
    """Return feature (D,) and zero-shot logits (C,) of the original view."""
    return views[0], class_logits(views[0], text, logit_scale=logit_scale)


def views_query(
    views: Tensor, text: Tensor, *, logit_scale: float, fraction: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Return the mean feature (D,) of the confident views and their mean log-probability (C,)."""
    logits = class_logits(views, text, logit_scale=logit_scale)  # (N, C)
    mean = views[select_confident(logits, fraction)].mean(dim=0)  # (D,)
    answer = mean_of_confident(views, text, logit_scale=logit_scale, fraction=fraction)
    return mean / mean.norm(), answer
