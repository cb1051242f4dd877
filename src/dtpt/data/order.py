"""The orders in which a stream method sees the images of a data set.

`given` is the order of the data set, `shuffled` a random one. `by-class` shows one class after the
other, classes and the images of each in random order. `dirichlet=δ` lies between: each class
divides its images over as many slots as there are classes, by fractions drawn from a symmetric
Dirichlet distribution; slots follow each other, each in random order. δ → 0 gives slots of whole
classes, large δ a shuffled stream.

An image's place among the images of its slot or class follows from the hash of seed and id, so it
does not depend on how a folder was listed.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dtpt.errors import OptionError
from dtpt.files import digest

GIVEN, SHUFFLED, BY_CLASS, DIRICHLET = "given", "shuffled", "by-class", "dirichlet"


class _Labelled(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def label(self) -> int: ...


def concentration(kind: str) -> float | None:
    """Return δ of `dirichlet=δ`; None for the other orders.

    Raises:
        OptionError: no such order.
    """
    name, _, number = kind.partition("=")
    if name == DIRICHLET:
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if 1e-4 <= value <= 1e6:
            return value
    elif kind in (GIVEN, SHUFFLED, BY_CLASS):
        return None
    known = f"{SHUFFLED}, {BY_CLASS}, {DIRICHLET}=0.1 or {GIVEN}"
    raise OptionError(f"Invalid order {kind!r}: use {known}.")


def stream_order(samples: Sequence[_Labelled], kind: str, *, seed: int) -> list[int]:
    """Return the indices of samples in an order of this kind.

    Example:
        >>> from dtpt.data.dataset import Sample
        >>> pets = [Sample(name, label, image=None) for label, name in enumerate("abcd")]
        >>> stream_order(pets, "given", seed=0), stream_order(pets, "shuffled", seed=0)
        ([0, 1, 2, 3], [2, 3, 1, 0])
    """
    shape, indices = concentration(kind), list(range(len(samples)))
    if kind == GIVEN:
        return indices
    places = [_hash(seed, sample.id) for sample in samples]
    shuffled = sorted(indices, key=places.__getitem__)
    if kind == SHUFFLED:
        return shuffled
    by_class: dict[int, list[int]] = {}
    for index in shuffled:
        by_class.setdefault(samples[index].label, []).append(index)
    if shape is None:
        return [k for c in sorted(by_class, key=lambda c: _hash(seed, c)) for k in by_class[c]]
    slots = _slots(by_class, shape, seed=seed)
    return sorted(shuffled, key=slots.__getitem__)  # stable: each slot stays shuffled


def _slots(by_class: dict[int, list[int]], shape: float, *, seed: int) -> dict[int, int]:
    generator = np.random.default_rng(int.from_bytes(_hash(seed, "dirichlet")[:8], "big"))
    slots: dict[int, int] = {}
    for label in sorted(by_class):
        fractions = generator.dirichlet([shape] * len(by_class))
        ends = np.rint(fractions.cumsum() * len(by_class[label]))  # of the slots, in images
        for place, index in enumerate(by_class[label]):
            slots[index] = int(np.searchsorted(ends, place, side="right"))
    return slots


def _hash(seed: int, what: int | str) -> bytes:
    return hashlib.sha256(f"order:{seed}:{what}".encode()).digest()


def order_digest(
    datasets: Sequence[Sequence[_Labelled]], kind: str, *, seeds: Sequence[int]
) -> str:
    """Return the hash of all sample ids in all orders."""
    return digest(
        [
            [samples[index].id for index in stream_order(samples, kind, seed=seed)]
            for samples in datasets
            for seed in seeds
        ]
    )
