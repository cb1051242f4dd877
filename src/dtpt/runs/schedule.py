"""The scheduler: gives tasks to an executor and writes the rows that come back.

It runs in the driver and is the only writer of the store; runs in one process, in several and on a
cluster differ in the executor alone. It holds the tasks in work and nothing more. λ that are to be
selected without labels (`@auto`) are selected first: once per data set, method and seed, on a few
images of the set, the same ones whatever the limit, the shard or the number of workers. They are
stored in the run and go with every task, so that all workers and later sessions use them.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dtpt.data.order import stream_order
from dtpt.errors import RunError
from dtpt.executors.pool import Done, Event, Executor, Failed, completed
from dtpt.runs.plan import Plan, Stage
from dtpt.runs.progress import Reporter
from dtpt.runs.reading import Run, lambda_notes
from dtpt.runs.shards import MAIN_STORE, shard_files
from dtpt.runs.spec import Cell
from dtpt.runs.store import SampleRecord, SelectedLambda, Store, StreamState
from dtpt.runs.worker import (
    ImageResult,
    ImageTask,
    LambdaResult,
    Lambdas,
    LambdaTask,
    StreamResult,
    StreamTask,
    image_results,
)

if TYPE_CHECKING:
    from dtpt.data.dataset import Sample
    from dtpt.runs.evaluation import Prepared

FAILURES_SHOWN = 20
ROWS_OF_PART = 100  # of a stream, after which its state is stored; of a large one fewer times
LOCK_FILE = ".lambdas.lock"


@dataclass
class FailureLimit:
    """Stops a run when too many images of a data set cannot be read."""

    dataset: str
    samples: int
    fraction: float
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> int:
        # one at least, so that a small set is not stopped by its first damaged image
        return max(math.floor(self.fraction * self.samples), 1 if self.fraction > 0 else 0)

    def add(self, sample_id: str, reason: str) -> None:
        """Count an image once, whatever the number of seeds."""
        self.reasons[sample_id] = reason
        if len(self.reasons) <= self.allowed:
            return
        shown = list(self.reasons.items())[:FAILURES_SHOWN]
        listing = "".join(f"\n  {name}: {why}" for name, why in shown)
        raise RunError(
            f"{self.dataset}: {len(self.reasons)} images failed, more than "
            f"{self.fraction:.1%} of {self.samples} (--max-failures):{listing}\n"
            "Repair them and run the same command again, or raise --max-failures."
        )


class Scheduler:
    """Brings everything that a plan lacks into the store."""

    def __init__(
        self,
        plan: Plan,
        executor: Executor,
        *,
        prepared: "Prepared",
        store: Store,
        reporter: Reporter,
        max_failures: float,
    ) -> None:
        self._plan = plan
        self._executor = executor
        self._prepared = prepared
        self._store = store
        self._reporter = reporter
        self._orders: dict[tuple[int, int], list[int]] = {}
        self._limits = {
            stage.dataset: FailureLimit(stage.cells[0].dataset, stage.total, max_failures)
            for stage in plan.stages
        }

    def run(self) -> None:
        """Work until nothing is missing.

        Raises:
            RunError: Too many images fail, or the disk is full.
            WorkerError: No worker can do the work.
        """
        stages = [stage for stage in self._plan.stages if stage.missing]
        counts = [(stage.total, stage.done) for stage in self._plan.stages]
        self._reporter.begin(sum(t for t, _ in counts), done=sum(d for _, d in counts))
        images = [stage for stage in stages if not stage.is_stream]
        lambdas = self._select_lambdas(images)
        for results in completed(self._executor, self._image_tasks(images, lambdas)):
            self._write(results)
        self._run_streams([stage for stage in stages if stage.is_stream])

    def _image_tasks(
        self, stages: Iterable[Stage], lambdas: Mapping[Stage, Lambdas]
    ) -> Iterator[tuple[tuple[Stage, ImageTask], ImageTask]]:
        for stage in stages:
            self._reporter.start(stage.title, stage.total, done=stage.done)
            for sample, methods in self._plan.images(stage):
                selected = lambdas.get(stage, ())
                task = ImageTask(stage.dataset, stage.seed, sample, methods, selected)
                yield (stage, task), task

    def _run_streams(self, stages: list[Stage]) -> None:
        """Run streams beside each other; the parts of one follow each other, each with its state.

        An image on which workers died is left out of the repeated part.
        """
        titles = dict.fromkeys(stage.title for stage in stages)
        for title in titles:
            same = [stage for stage in self._plan.stages if stage.title == title]
            total, done = (sum(getattr(s, name) for s in same) for name in ("total", "done"))
            self._reporter.start(title, total, done=done)
        queue = _Queue([(stage, None) for stage in stages], make=self._stream_task)
        for results in completed(self._executor, queue):
            for (stage, task), event in results:
                if isinstance(event, Failed):
                    queue.put(stage, task.without(event.item, event.reason))
                    continue
                self._write([((stage, task), event)])
                if task.start + len(task.samples) < stage.total:
                    queue.put(stage, None)

    def _stream_task(self, stage: Stage) -> StreamTask:
        """Return the next part of a stream, from its stored state."""
        (cell,) = stage.cells
        state = self._store.state(cell) or StreamState(0, b"")
        samples, order = self._order(stage)
        count = ROWS_OF_PART * max(1, len(state.data) >> 20)
        chosen = order[state.position : state.position + count]
        return StreamTask(
            stage.dataset,
            stage.seed,
            tuple(samples[index] for index in chosen),
            stage.methods,
            start=state.position,
            state=state.data,
        )

    def _order(self, stage: Stage) -> "tuple[Sequence[Sample], Sequence[int]]":
        samples, spec = self._prepared.datasets[stage.dataset].samples, self._prepared.spec.order
        if spec is None or stage.order is None:
            raise RunError(f"{stage.title} has no order.")
        key = (stage.dataset, stage.order)
        if key not in self._orders:
            self._orders[key] = stream_order(samples, spec.kind, seed=stage.order)
        return samples, self._orders[key]

    def _run_whole(
        self, tasks: list[tuple[Stage, LambdaTask]]
    ) -> Iterator[tuple[Stage, LambdaTask, Done]]:
        """Run tasks of many images; one on which workers died is left out of the repeated task."""
        while tasks:
            repeated: list[tuple[Stage, LambdaTask]] = []
            for results in completed(self._executor, ((pair, pair[1]) for pair in tasks)):
                for (stage, task), event in results:
                    if isinstance(event, Failed):
                        repeated.append((stage, task.without(event.item, event.reason)))
                    else:
                        yield stage, task, event
            tasks = repeated

    def _write(self, results: Iterable[tuple[tuple[Stage, ImageTask | StreamTask], Event]]) -> None:
        """Store what arrived together in one transaction, then report it."""
        stored: list[tuple[Stage, int | str]] = []
        with self._store.together():
            for (stage, task), event in results:
                cells = [stage.cells[stage.methods.index(method)] for method in task.methods]
                if isinstance(task, StreamTask) and task.start == 0:
                    self._store.remove_rows(cells[0])  # of another pass
                if isinstance(event, Failed):
                    event = Done(event.task_id, ImageResult(failure=event.reason), event.worker)
                for sample, each in image_results(task, event.result):
                    self._write_image(stage, sample, cells=cells, result=each)
                    stored.append((stage, event.worker))
                if isinstance(task, StreamTask):
                    self._write_state(stage, task, result=event.result)
        for stage, worker in stored:
            self._reporter.advance(stage.title, worker=worker)

    def _write_state(self, stage: Stage, task: StreamTask, *, result: StreamResult) -> None:
        position = task.start + len(task.samples)
        is_finished = position == stage.total
        state = None if is_finished else StreamState(position, result.state)
        self._store.write_state(stage.cells[0], state)

    def _write_image(
        self, stage: Stage, sample: "Sample", *, cells: Sequence[Cell], result: ImageResult
    ) -> None:
        record = SampleRecord(sample.id, sample.label, sample.group, sample.cluster)
        dataset = cells[0].dataset
        self._store.encoded_images += result.is_new
        if result.failure:
            self._store.write_failure(dataset, record, cells=cells, reason=result.failure)
            self._limits[stage.dataset].add(sample.id, result.failure)
        else:
            # the key of an image that failed would keep its repaired successor out
            record = replace(record, image_key=result.image_key, stamp=result.stamp)
            rows = dict(zip(cells, result.rows, strict=True))
            self._store.write(dataset, record, rows=rows)

    def _select_lambdas(self, stages: Sequence[Stage]) -> dict[Stage, Lambdas]:
        """Return the λ of a stage's data set by stage, None for methods that brought theirs."""
        datasets = self._prepared.worker.datasets
        searched = [
            stage
            for stage in stages
            if any(method.needs_lambda_search for method in datasets[stage.dataset].methods)
        ]
        if not searched:
            return {}
        from filelock import FileLock

        # other shards wait, and then use what is selected here
        with FileLock(self._store.path.parent / LOCK_FILE):
            self._store.write_lambdas(_lambdas_of_other_shards(self._store))
            for stage, task, event in self._run_whole(list(self._lambda_tasks(searched))):
                self._write_lambdas(stage, task, result=event.result)
        selected = {cell: chosen.value for cell, chosen in self._store.lambdas().items()}
        spec = self._prepared.spec
        return {
            stage: tuple(
                selected.get(cell)
                for cell in spec.cells(
                    dataset=datasets[stage.dataset].name,
                    seed=stage.seed,
                    order=None if spec.order is None else spec.order.seeds[0],
                )
            )
            for stage in searched
        }

    def _lambda_tasks(self, stages: Iterable[Stage]) -> Iterator[tuple[Stage, LambdaTask]]:
        stored = self._store.lambdas()
        for stage in stages:
            methods = self._prepared.worker.datasets[stage.dataset].methods
            lacking = tuple(
                index
                for index, cell in zip(stage.methods, stage.cells, strict=True)
                if methods[index].needs_lambda_search and cell not in stored
            )
            if lacking:
                samples = self._prepared.examples[stage.dataset]
                yield stage, LambdaTask(stage.dataset, stage.seed, samples, lacking)

    def _write_lambdas(self, stage: Stage, task: LambdaTask, *, result: LambdaResult) -> None:
        cells = [stage.cells[stage.methods.index(method)] for method in task.methods]
        images = sum(not image.failure for image in result.images)
        values = (SelectedLambda(value, images) for value in result.lambdas)
        lambdas = dict(zip(cells, values, strict=True))
        self._store.write_lambdas(lambdas)
        for dataset, text in lambda_notes(lambdas):
            self._reporter.note(f"{dataset}: {text}")


_Part = tuple[Stage, StreamTask]


class _Queue(Iterator[tuple[_Part, StreamTask]]):
    """Parts of streams; one that is put in comes before streams that are not begun."""

    def __init__(
        self,
        parts: Iterable[tuple[Stage, StreamTask | None]],
        *,
        make: Callable[[Stage], StreamTask],
    ) -> None:
        self._parts, self._make = deque(parts), make

    def put(self, stage: Stage, task: StreamTask | None) -> None:
        self._parts.appendleft((stage, task))

    def __next__(self) -> tuple[_Part, StreamTask]:
        if not self._parts:
            raise StopIteration
        stage, task = self._parts.popleft()
        chosen = self._make(stage) if task is None else task
        return (stage, chosen), chosen


def _lambdas_of_other_shards(store: Store) -> dict[Cell, SelectedLambda]:
    folder = store.path.parent
    lambdas: dict[Cell, SelectedLambda] = {}
    for path in (folder / MAIN_STORE, *shard_files(folder)):
        if path == store.path or not path.exists():
            continue
        with suppress(RunError), Run(path) as run:  # one that is just being made has none
            if run.spec.unlimited().hash == store.spec.unlimited().hash:
                lambdas |= run.lambdas()
    return lambdas
