"""What a run still lacks, found piece by piece, so that memory does not grow with the data set."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, Self

from dtpt.data import Sample
from dtpt.errors import ImageError, RunError
from dtpt.runs.orders import Batch, Item
from dtpt.runs.queries import changed_picture
from dtpt.runs.reading import Run
from dtpt.runs.shards import Shard, other_stores
from dtpt.runs.spec import Cell
from dtpt.runs.store import Store

if TYPE_CHECKING:
    from dtpt.runs.setup import Setup

LOOKED_UP_TOGETHER = 500


@dataclass(frozen=True)
class Stage:
    """One data set under one seed.

    Attributes:
        task: Index of the data set.
        seed: Of the views.
        title: For people.
        cells: In the order of the task's methods.
        total: Pictures of this share.
        done: Those that have a row in every cell.
    """

    task: int
    seed: int
    title: str
    cells: tuple[Cell, ...]
    total: int
    done: int

    @property
    def missing(self) -> int:
        """Pictures that lack rows."""
        return self.total - self.done


class Plan:
    """What is missing in a store; rows that an earlier division into shards finished count.

    Args:
        setup: What the run is.
        store: Where its rows are.
        shard: Which share of the pictures is ours.

    Raises:
        RunError: A picture that has rows is not the one of before.
    """

    def __init__(self, setup: "Setup", *, store: Store, shard: Shard) -> None:
        self._setup = setup
        self._store = store
        self._shard = shard
        self._others: list[Run] = []
        self._numbers = count()
        try:
            for path in other_stores(store.path.parent, shard):
                run = Run(path)
                if store.spec.only_enlarges(run.spec):
                    self._others.append(run)
                else:
                    run.close()
            self.stages = tuple(self._survey())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the stores of earlier divisions."""
        for run in self._others:
            run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def missing(self) -> int:
        """Pictures, under each seed, that lack rows."""
        return sum(stage.missing for stage in self.stages)

    def _survey(self) -> Iterator[Stage]:
        spec = self._setup.spec
        for index, task in enumerate(self._setup.tasks):
            name = task.dataset.name
            for chunk in self._chunks(index):
                check_pictures(name, chunk, store=self._store)
            total = sum(len(chunk) for chunk in self._chunks(index))
            for seed in spec.seeds:
                cells = spec.cells(dataset=name, seed=seed)
                lacking = sum(1 for _ in self._items(index, cells))
                yield Stage(index, seed, f"{name} seed {seed}", cells, total, total - lacking)

    def _chunks(self, task: int) -> Iterator[list[Sample]]:
        """Yield the pictures of this share, some at a time."""
        samples = self._setup.tasks[task].dataset.samples
        ours = (sample for sample in samples if self._shard.holds(sample.id))
        while chunk := list(islice(ours, LOOKED_UP_TOGETHER)):
            yield chunk

    def _items(self, task: int, cells: Sequence[Cell]) -> Iterator[Item]:
        """Yield the pictures without a successful row in some cell; failed ones are tried again."""
        for chunk in self._chunks(task):
            ids = [sample.id for sample in chunk]
            done = [self._finished(cell, ids) for cell in cells]
            for sample in chunk:
                lacking = tuple(i for i, found in enumerate(done) if sample.id not in found)
                if lacking:
                    yield Item(sample, lacking)

    def _finished(self, cell: Cell, ids: Sequence[str]) -> set[str]:
        found = self._store.finished(cell, ids)
        for run in self._others:
            found |= run.finished(cell, ids)
        return found

    def number(self) -> int:
        """Return a number that no other batch or search of this plan has."""
        return next(self._numbers)

    def batches(self, size: int) -> Iterator[Batch]:
        """Yield all that is missing in batches of at most `size` pictures of one stage."""
        for stage in self.stages:
            items = self._items(stage.task, stage.cells) if stage.missing else iter(())
            while chosen := tuple(islice(items, size)):
                yield Batch(self.number(), stage.task, stage.seed, chosen)


def check_pictures(dataset: str, samples: Sequence[Sample], *, store: Store) -> None:
    """Refuse to go on when a picture that has rows is not the one of before.

    Only files that look different from outside are read again; those that were merely touched are
    noted as they look now.
    """
    known = store.samples(dataset, [sample.id for sample in samples])
    touched = {}
    for sample in samples:
        record = known.get(sample.id)
        if record is None or record.image_key is None or record.stamp is None:
            continue
        with suppress(ImageError):  # its rows stay; missing ones are reported when they are tried
            stamp = sample.image.stamp()
            if stamp == record.stamp:
                continue
            if sample.image.key() != record.image_key:
                raise RunError(changed_picture(dataset, sample.id))
            touched[sample.id] = stamp
    if touched:
        store.restamp(dataset, touched)
