"""The scheduler: gives tasks to an executor and writes the rows that come back.

It runs in the driver and is the only writer of the store; runs in one process, in several and on a
cluster differ in the executor alone. It holds the tasks in work and nothing more. λ that are to be
selected without labels (`@auto`) are selected first: once per data set, method and seed, on a few
images of the set, the same ones whatever the limit, the shard or the number of workers. They are
stored in the run and go with every task, so that all workers and later sessions use them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.errors import RunError
from dtpt.executors.pool import Event, Executor, Failed, completed
from dtpt.runs.plan import Plan, Stage
from dtpt.runs.progress import Reporter
from dtpt.runs.reading import Run, lambda_notes
from dtpt.runs.shards import MAIN_STORE, shard_files
from dtpt.runs.spec import Cell
from dtpt.runs.store import SampleRecord, SelectedLambda, Store
from dtpt.runs.worker import (
    ImageResult,
    ImageTask,
    LambdaResult,
    Lambdas,
    LambdaTask,
    StreamTask,
)

if TYPE_CHECKING:
    from dtpt.data.dataset import Sample
    from dtpt.runs.evaluation import Prepared

FAILURES_SHOWN = 20
LOCK_FILE = ".lambdas.lock"


@dataclass
class FailureLimit:
    """Stops a run when too many images of a data set cannot be read.

    At least one failure is tolerated (unless the fraction is 0), so that a small set is not stopped
    by its first damaged image.
    """

    dataset: str
    samples: int
    fraction: float
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> int:
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
    """Brings everything that a plan lacks into the store.

    Args:
        plan: What is missing.
        executor: Runs the tasks.
        prepared: What the run is.
        store: Where rows go.
        reporter: Told about every image.
        max_failures: Largest fraction of unreadable images of a data set.
    """

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
        lambdas = self._select_lambdas([stage for stage in stages if not stage.is_stream])
        for results in completed(self._executor, self._tasks(stages, lambdas)):
            stored: list[tuple[Stage, int | str]] = []
            with self._store.together():
                for (stage, task), event in results:
                    stored += self._write(stage, task, event=event)
            for stage, worker in stored:
                self._reporter.advance(stage.title, worker=worker)

    def _tasks(
        self, stages: Iterable[Stage], lambdas: Mapping[Stage, Lambdas]
    ) -> Iterator[tuple[tuple[Stage, ImageTask | StreamTask], ImageTask | StreamTask]]:
        for stage in stages:
            self._reporter.start(stage.title, stage.total, done=stage.done)
            task: ImageTask | StreamTask
            if stage.is_stream:
                samples = tuple(self._prepared.datasets[stage.dataset].samples)
                task = StreamTask(stage.dataset, stage.seed, samples, stage.methods)
                yield (stage, task), task
                continue
            chosen = lambdas.get(stage, ())
            for sample, methods in self._plan.images(stage):
                task = ImageTask(stage.dataset, stage.seed, sample, methods, chosen)
                yield (stage, task), task

    def _write(
        self, stage: Stage, task: ImageTask | StreamTask, *, event: Event
    ) -> list[tuple[Stage, int | str]]:
        """Store the rows of a task; return the stage and worker of every image."""
        samples = (task.sample,) if isinstance(task, ImageTask) else task.samples
        if isinstance(event, Failed):
            results: Sequence[ImageResult] = [ImageResult(failure=event.reason)] * len(samples)
        else:
            results = [event.result] if isinstance(task, ImageTask) else event.result
        cells = [stage.cells[stage.methods.index(method)] for method in task.methods]
        for sample, result in zip(samples, results, strict=True):
            self._write_image(stage, sample, cells=cells, result=result)
        return [(stage, event.worker)] * len(samples)

    def _write_image(
        self, stage: Stage, sample: "Sample", *, cells: Sequence[Cell], result: ImageResult
    ) -> None:
        record = SampleRecord(
            sample.id,
            sample.label,
            sample.group,
            sample.cluster,
            image_key=result.image_key or None,
            stamp=result.stamp or None,
        )
        dataset = cells[0].dataset
        if result.failure:
            self._store.write_failure(dataset, record, cells=cells, reason=result.failure)
            self._limits[stage.dataset].add(sample.id, result.failure)
        else:
            rows = dict(zip(cells, result.rows, strict=True))
            self._store.write(dataset, record, rows=rows)
        self._store.encoded_images += result.is_new

    def _select_lambdas(self, stages: Sequence[Stage]) -> dict[Stage, Lambdas]:
        """Return the λ of a stage's data set by stage, None for methods that brought theirs."""
        datasets = self._prepared.worker.datasets
        open_stages = [
            stage
            for stage in stages
            if any(method.needs_lambda_search for method in datasets[stage.dataset].methods)
        ]
        if not open_stages:
            return {}
        with _locked(self._store.path.parent):  # other shards wait, and then use what is found here
            self._store.write_lambdas(_lambdas_of_other_shards(self._store))
            tasks = list(self._lambda_tasks(open_stages))
            while tasks:  # again, without the images on which workers died
                tasks = list(self._run_lambda_tasks(tasks))
        selected = {cell: chosen.value for cell, chosen in self._store.lambdas().items()}
        spec = self._prepared.spec
        return {
            stage: tuple(
                selected.get(cell)
                for cell in spec.cells(dataset=datasets[stage.dataset].name, seed=stage.seed)
            )
            for stage in open_stages
        }

    def _lambda_tasks(self, stages: Iterable[Stage]) -> Iterator[LambdaTask]:
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
                yield LambdaTask(stage.dataset, stage.seed, samples, lacking)

    def _run_lambda_tasks(self, tasks: Sequence[LambdaTask]) -> Iterator[LambdaTask]:
        """Store what is selected; yield what must be repeated without a poison image."""
        for results in completed(self._executor, ((task, task) for task in tasks)):
            for task, event in results:
                if isinstance(event, Failed):
                    kept = tuple(sample for sample in task.samples if sample.id != event.item)
                    yield replace(task, samples=kept)
                else:
                    self._store_lambdas(task, event.result)

    def _store_lambdas(self, task: LambdaTask, result: LambdaResult) -> None:
        name = self._prepared.worker.datasets[task.dataset].name
        cells = self._prepared.spec.cells(dataset=name, seed=task.seed)
        values = (SelectedLambda(value, result.images) for value in result.lambdas)
        lambdas = dict(zip((cells[k] for k in task.methods), values, strict=True))
        self._store.write_lambdas(lambdas)
        for dataset, text in lambda_notes(lambdas):
            self._reporter.note(f"{dataset}: {text}")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from filelock import FileLock

    with FileLock(folder / LOCK_FILE):
        yield


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
