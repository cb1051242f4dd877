"""Training batches: batch t depends on (seed, t) only, in whatever process it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from dtpt.clip.tokenizer import Tokenizer
from training.artwork import Artwork
from training.augment import augment
from training.captions import caption, names_of

GROUP_WEIGHTS = {"Symbols": 0.3, "People & Body": 0.6}  # how often, compared with other groups
STILL_FRACTION = (1.0, 0.06)  # of samples without augmentation: at the start, and after the ramp
HARD_FRACTION = (0.0, 0.8)  # of samples with all of it
_DIRECTIONS = ("left", "right", "clock", "arrow")


@dataclass(frozen=True)
class Batch:
    """Images of U concepts, several of each, and one caption per concept.

    Attributes:
        images: uint8 (B, 3, 64, 64).
        labels: int64 (B,), concept of each image.
        tokens: int64 (U, L), padded with zeros behind the end token.
        ends: int64 (U,), position of each end token.
        fresh: int64 (U,), concept of each caption.
    """

    images: Tensor
    labels: Tensor
    tokens: Tensor
    ends: Tensor
    fresh: Tensor


class Batches(IterableDataset[Batch]):
    """An endless, seeded stream of batches from step `first` on."""

    def __init__(
        self,
        artwork: Artwork,
        tokenizer: Tokenizer,
        *,
        seed: int,
        concepts: int,
        per_concept: int,
        ramp: int,
        first: int,
    ) -> None:
        super().__init__()
        self.artwork, self.tokenizer = artwork, tokenizer
        self.seed, self.first, self.ramp = seed, first, ramp
        self.concepts, self.per_concept = concepts, per_concept
        self.names = names_of(artwork.concepts)
        self.members = [np.flatnonzero(artwork.concept == k) for k in range(len(artwork.concepts))]
        weights = np.array([GROUP_WEIGHTS.get(c.group, 1.0) for c in artwork.concepts])
        self.log_weights = np.log(weights)
        self.flippable = np.array(
            [not any(word in c.name for word in _DIRECTIONS) for c in artwork.concepts]
        )

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches `first`, `first` + 1, ..."""
        step = self.first
        while True:
            yield self.batch(step)
            step += 1

    def batch(self, step: int) -> Batch:
        """Make batch number `step`."""
        random = np.random.default_rng((self.seed, step))
        # Gumbel noise on log weights: a weighted draw without repetition.
        keys = self.log_weights + random.gumbel(size=len(self.log_weights))
        fresh = np.argsort(-keys)[: self.concepts]
        labels = np.repeat(fresh, self.per_concept)
        first, second = self._drawings(fresh, random)
        generator = torch.Generator().manual_seed(int(random.integers(2**62)))
        images = augment(
            torch.from_numpy(self.artwork.pixels[first]),
            torch.from_numpy(self.artwork.pixels[second]),
            flippable=torch.from_numpy(self.flippable[labels]).float(),
            still=self.ramped(STILL_FRACTION, step),
            hard=self.ramped(HARD_FRACTION, step),
            generator=generator,
        )
        tokens, ends = self.captions(fresh, random)
        return Batch(images, torch.from_numpy(labels), tokens, ends, torch.from_numpy(fresh))

    def ramped(self, ends: tuple[float, float], step: int) -> float:
        """Go from the first to the second value while augmentation grows."""
        return ends[0] + (ends[1] - ends[0]) * min(1.0, step / max(1, self.ramp))

    def _drawings(
        self, fresh: npt.NDArray[np.int64], random: np.random.Generator
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Choose different styles for the images of a concept, and partners to blend in."""
        first: list[int] = []
        second: list[int] = []
        for concept in fresh:
            own = random.permutation(self.members[concept])
            order = np.resize(own, 2 * self.per_concept)
            first.extend(order[: self.per_concept])
            second.extend(order[self.per_concept :])
        return np.array(first), np.array(second)

    def captions(
        self, fresh: npt.NDArray[np.int64], random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw one caption per concept: (U, L) padded tokens and (U,) positions of the ends."""
        ids = self.tokenizer([caption(self.names[k], random) for k in fresh])
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(i) for i in ids], batch_first=True)
        return padded, torch.tensor([len(i) - 1 for i in ids])


def _as_it_is(batch: Any) -> Any:
    return batch


def _be_quiet(_worker: int) -> None:
    """One thread: the worker runs beside the trainer."""
    torch.set_num_threads(1)


def stream(batches: Batches, *, workers: int) -> Iterator[Batch]:
    """Iterate over batches, made in a process of their own if `workers` is 1 (0: in this one)."""
    loader = DataLoader(
        batches,
        batch_size=None,
        num_workers=workers,
        collate_fn=_as_it_is,
        worker_init_fn=_be_quiet,
        prefetch_factor=6 if workers else None,
        multiprocessing_context="fork" if workers else None,
    )
    yield from loader
