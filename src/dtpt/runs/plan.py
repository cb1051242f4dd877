"""What a run still lacks, read piece by piece, so that memory does not grow with the data set."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Self

from dtpt.data.dataset import Sample
from dtpt.errors import ImageError, RunError
from dtpt.runs.reading import Run
from dtpt.runs.shards import Shard, other_stores
from dtpt.runs.spec import Cell
from dtpt.runs.store import Store, changed_image

if TYPE_CHECKING:
    from dtpt.runs.evaluation import Prepared

SAMPLES_PER_QUERY = 500


@dataclass(frozen=True)
class Stage:
    """One data set under one seed: stateless methods that share views, or a stream of another."""

    dataset: int
    seed: int
    title: str
    methods: tuple[int, ...]  # indices into the data set's methods
    cells: tuple[Cell, ...]  # in the order of `methods`
    total: int  # images of this shard
    done: int  # those that have a row in every cell
    order: int | None = None  # seed of the order of a stream

    @property
    def is_stream(self) -> bool:
        return self.order is not None

    @property
    def missing(self) -> int:
        return self.total - self.done


class Plan:
    """What is missing in a store; rows that another division into shards finished count.

    Raises:
        RunError: An image that has rows has changed since.
    """

    def __init__(self, prepared: "Prepared", *, store: Store, shard: Shard) -> None:
        self._prepared = prepared
        self._store = store
        self._shard = shard
        self._others: list[Run] = []
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
        for run in self._others:
            run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def missing(self) -> int:
        """Images, counted under each seed, that lack rows."""
        return sum(stage.missing for stage in self.stages)

    def _survey(self) -> Iterator[Stage]:
        for index, dataset in enumerate(self._prepared.datasets):
            total = 0
            for chunk in self._chunks(index):
                total += len(chunk)
                check_images(dataset.name, chunk, store=self._store)
            for seed in self._prepared.spec.seeds:
                yield from self._stages(index, seed, total=total)

    def _stages(self, dataset: int, seed: int, *, total: int) -> Iterator[Stage]:
        entry = self._prepared.worker.datasets[dataset]
        spec = self._prepared.spec
        orders = () if spec.order is None else spec.order.seeds
        first = orders[0] if orders else None
        cells = spec.cells(dataset=entry.name, seed=seed, order=first)
        stateful = [k for k, method in enumerate(entry.methods) if method.method.is_stateful]
        title = f"{entry.name} seed {seed}"
        for recipe, members in entry.groups.items():
            views = (
                ""
                if recipe == entry.recipe
                else f" {'with' if recipe.augmix else 'without'} AugMix"
            )
            if stateless := tuple(k for k in members if k not in stateful):
                chosen = tuple(cells[k] for k in stateless)
                done = total - self._lacking(dataset, stateless, cells=chosen)
                yield Stage(dataset, seed, f"{title}{views}", stateless, chosen, total, done)
        for k in stateful:
            name = f"{title} {cells[k].label}"
            for order in orders:
                cell = replace(cells[k], order=order)
                # rows depend on those before them: a stream goes on from a stored state, or anew
                state = self._store.state(cell)
                done = 0 if state is None else state.position
                if state is None and not self._lacking(dataset, (k,), cells=(cell,)):
                    done = total
                yield Stage(dataset, seed, name, (k,), (cell,), total, done, order)

    def _lacking(self, dataset: int, methods: Sequence[int], *, cells: Sequence[Cell]) -> int:
        return sum(1 for _ in self._missing(dataset, methods, cells=cells))

    def _chunks(self, dataset: int) -> Iterator[list[Sample]]:
        samples = self._prepared.datasets[dataset].samples
        ours = (sample for sample in samples if self._shard.holds(sample.id))
        while chunk := list(islice(ours, SAMPLES_PER_QUERY)):
            yield chunk

    def _missing(
        self, dataset: int, methods: Sequence[int], *, cells: Sequence[Cell]
    ) -> Iterator[tuple[Sample, tuple[int, ...]]]:
        for chunk in self._chunks(dataset):
            ids = [sample.id for sample in chunk]
            finished = {
                method: set().union(*(s.finished(cell, ids) for s in (self._store, *self._others)))
                for method, cell in zip(methods, cells, strict=True)
            }
            for sample in chunk:
                if lacking := tuple(m for m, done in finished.items() if sample.id not in done):
                    yield sample, lacking

    def images(self, stage: Stage) -> Iterator[tuple[Sample, tuple[int, ...]]]:
        """Yield the images of a stage that lack rows, with the indices of the methods."""
        return self._missing(stage.dataset, stage.methods, cells=stage.cells)


def check_images(dataset: str, samples: Sequence[Sample], *, store: Store) -> None:
    """Refuse to continue when an image that has rows has changed.

    Only files whose stamp (time and size) differs are hashed again; the new stamp of an unchanged
    image is recorded. So is another cluster, which decides no row.
    """
    stored = store.samples(dataset, [sample.id for sample in samples])
    moved = {s.id: s.cluster for s in samples if stored.get(s.id, s).cluster != s.cluster}
    touched = {}
    for sample in samples:
        record = stored.get(sample.id)
        if record is None or record.image_key is None or record.stamp is None:
            continue
        with suppress(ImageError):  # its rows stay; missing ones are reported when they are tried
            stamp = sample.image.stamp()
            if stamp == record.stamp:
                continue
            if sample.image.key() != record.image_key:
                raise RunError(changed_image(dataset, sample.id))
            touched[sample.id] = stamp
    store.update_samples(dataset, "stamp", values=touched)
    store.update_samples(dataset, "cluster", values=moved)
