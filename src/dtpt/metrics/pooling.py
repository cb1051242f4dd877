"""One method's predictions on all pictures of some data sets, seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError
from dtpt.metrics.predictions import Predictions


@dataclass(frozen=True, eq=False)
class PooledPredictions:
    """What one method said about the pictures of several data sets.

    A metric of it is computed from all pictures together, for each seed, and averaged over seeds.
    For means over pictures (accuracy, Brier) that is the mean over pictures and seeds.

    Attributes:
        sets: (name, number of pictures) of each data set, in order.
        seeds: predictions under each seed, the pictures of all sets one after the other.
    """

    sets: tuple[tuple[str, int], ...]
    seeds: tuple[Predictions, ...]

    def __len__(self) -> int:
        return len(self.seeds[0])


def pool(sets: Mapping[str, Sequence[Predictions]]) -> PooledPredictions:
    """Put one method's predictions on several data sets together.

    Args:
        sets: predictions by name of the data set, one entry per seed; the pictures of a set in the
            same order under every seed.

    Raises:
        MetricError: when sets differ in their number of seeds, or seeds in their pictures.

    Example:
        >>> made = Predictions.from_confidence([0.9, 0.4], [True, False])
        >>> pooled = pool({"dtd": [made], "pets": [made]})
        >>> len(pooled), pooled.sets
        (4, (('dtd', 2), ('pets', 2)))
    """
    counts = {name: len(seeds) for name, seeds in sets.items()}
    if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
        raise MetricError(f"Pooling needs the same seeds on every data set, got {counts}.")
    for name, seeds in sets.items():
        for other in seeds[1:]:
            _check_same_pictures(seeds[0], other, place=f"two seeds of {name}")
    return PooledPredictions(
        sets=tuple((name, len(seeds[0])) for name, seeds in sets.items()),
        seeds=tuple(_joined(parts) for parts in zip(*sets.values(), strict=True)),
    )


def check_paired(first: PooledPredictions, second: PooledPredictions) -> None:
    """Refuse two methods that did not see the same pictures in the same order.

    Example:
        >>> made = pool({"dtd": [Predictions.from_confidence([0.9], [True])]})
        >>> check_paired(made, made)
    """
    if first.sets != second.sets:
        raise MetricError(
            f"Methods can be compared on the same pictures only: one has {dict(first.sets)}, the "
            f"other {dict(second.sets)}."
        )
    _check_same_pictures(first.seeds[0], second.seeds[0], place="two methods")


def _check_same_pictures(first: Predictions, second: Predictions, *, place: str) -> None:
    if len(first) != len(second):
        raise MetricError(f"{place} have {len(first)} and {len(second)} pictures; expected equal.")
    if first.samples is None or second.samples is None:
        return
    differing = np.flatnonzero(first.samples != second.samples)
    if len(differing):
        index = int(differing[0])
        names = f"{str(first.samples[index])!r} and {str(second.samples[index])!r}"
        raise MetricError(f"{place} have different pictures at position {index}: {names}.")


def _joined(parts: Sequence[Predictions]) -> Predictions:
    """Concatenate; what one part does not know, the whole does not know."""

    def column(name: str) -> npt.NDArray[Any] | None:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)

    return Predictions(
        np.concatenate([part.confidence for part in parts]),
        np.concatenate([part.correct for part in parts]),
        p_label=column("p_label"),
        sum_squares=column("sum_squares"),
        samples=column("samples"),
    )
