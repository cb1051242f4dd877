"""What the driver of a cluster can do at most, and what Ray costs per image.

The workers do no work: they answer every image at once with rows of a fixed content. So all time is
the driver's: planning, messages, and the store, which waits for the disk once for all rows that
have arrived together. Beside it the same run with such a worker in the driver's own process,
without Ray (0 actors). All on this machine, with a Ray of its own.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import ray

from benchmarks import measuring
from benchmarks.measuring import Listed, Times
from dtpt.data import Dataset, FileRef, Sample
from dtpt.executors.cluster import Quota, ResourceRequest, connected, quiet
from dtpt.executors.pool import Announce, Executor, Factory, FunctionWorker, InlineExecutor
from dtpt.executors.ray import RayExecutor
from dtpt.methods import PAPER_METHODS
from dtpt.options import EvalOptions
from dtpt.runs.evaluation import Prepared, prepare
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.rows import Row
from dtpt.runs.schedule import Scheduler
from dtpt.runs.shards import Shard
from dtpt.runs.store import Store
from dtpt.runs.worker import ImageResult, ImageTask

CLASSES = 100
ROW = Row(0, 0.5, 1.0, 0.5, 0.4, "[[0,0.5]]", 0, 0.5, log_probabilities=bytes(200))


def cluster(
    *, images: int = 2000, actors: Listed = "1,2,4", batch: int = 8, rounds: int = 3
) -> measuring.Row:
    """Measure how many rows per second the driver of a cluster stores at most.

    Args:
        batch: Images of a message.
        rounds: Of each number of actors, in turns; the best counts.
    """
    machine, counts = measuring.machine(), measuring.whole_numbers(actors, "--actors")
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder, ExitStack() as stack:
        prepared = _prepared(images, Path(folder))
        executors: dict[int, Executor] = {0: InlineExecutor(idle_worker, depth=batch)}
        stack.enter_context(_cluster_of(sum(counts)))
        for count in counts:
            executors[count] = stack.enter_context(closing(_on_ray(count, batch)))
        runs = {str(count): partial(_run, prepared, one) for count, one in executors.items()}
        times = measuring.in_turns(runs, rounds)
    return {
        "pictures": images,
        "batch": batch,
        "rounds": rounds,
        "methods": len(PAPER_METHODS),
        "rows": [_row(times, count, images=images) for count in executors],
        "machine": machine,
    }


def _row(times: dict[str, Times[None]], actors: int, *, images: int) -> measuring.Row:
    taken, alone = times[str(actors)], times["0"].best
    return {
        "actors": actors,
        "seconds": taken.best,
        "processor_ms": 1000 * taken.best_processor / images,
        "pictures_per_second": images / taken.best,
        "rows_per_second": len(PAPER_METHODS) * images / taken.best,
        "overhead_ms": 1000 * (taken.best - alone) / images,
    }


def answer(task: ImageTask) -> ImageResult:
    """Answer an image without opening it."""
    return ImageResult((ROW,) * len(task.methods), image_key="key")


def idle_worker(announce: Announce) -> FunctionWorker:
    return FunctionWorker(answer, announce)


class IdleDeployment:
    """What workers that do nothing bring to a node."""

    def probe(self) -> None: ...

    def factory(self, quota: Quota) -> Factory:
        del quota
        return idle_worker

    def localise(self, task: ImageTask, site: None) -> ImageTask:
        del site
        return task

    def is_lost(self, task: ImageTask, result: ImageResult, *, site: None) -> bool:
        del task, result, site
        return False


@contextmanager
def _cluster_of(cores: int) -> Iterator[None]:
    """Start a cluster on this machine with so many cores."""
    with quiet(ray):  # Ray reads its settings when it starts
        ray.init("local", num_cpus=cores, include_dashboard=False, log_to_driver=False)
        try:
            with connected("ray"):
                yield
        finally:
            ray.shutdown()


def _on_ray(count: int, batch: int) -> RayExecutor:
    """Start so many idle actors."""
    executor = RayExecutor(
        IdleDeployment(),
        request=ResourceRequest(device="cpu", workers=count, view_workers=0),
        chunk=batch,
        note=lambda _: None,
        record=lambda _: None,
    )
    executor.wait_for_nodes()
    return executor


def _prepared(images: int, folder: Path) -> Prepared:
    """Prepare a run over images that are never opened."""
    samples = [Sample(f"{k:07d}", k % CLASSES, FileRef(folder / "none")) for k in range(images)]
    names = tuple(f"class number {k}" for k in range(CLASSES))
    options = EvalOptions(dataset=("nothing",), method=PAPER_METHODS, output=folder, device="cpu")
    return prepare(options, datasets=[Dataset("nothing", names, samples)])


def _run(prepared: Prepared, executor: Executor) -> None:
    """Plan and do a whole run in a store of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder,
        Store(Path(folder) / "run.sqlite", prepared.spec) as store,
        Plan(prepared, store=store, shard=Shard()) as plan,
    ):
        store.begin_session({})
        scheduler = Scheduler(
            plan, executor, prepared=prepared, store=store, reporter=Silent(), max_failures=0.0
        )
        scheduler.run()
