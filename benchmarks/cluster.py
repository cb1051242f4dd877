"""What the driver of a cluster can do at most, and what Ray costs per image.

The workers do no work: they answer every image at once with rows of a fixed content. So all time is
the driver's: planning, messages, and the store, which waits for the disk once for all rows that
have arrived together. Beside it the same run with such a worker in the driver's own process,
without Ray. All on this machine, with a Ray of its own.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Listed, Row, Times, in_turns, machine, whole_numbers
from dtpt.methods import PAPER_METHODS
from dtpt.runs.orders import Answered, Batch, Event, Place, Ready, WorkOrder
from dtpt.runs.store import Answer

if TYPE_CHECKING:
    from dtpt.runs.crews import Crew
    from dtpt.runs.setup import Setup

CLASSES = 100
ROW = Answer(0, 0.5, 1.0, 0.5, 0.4, ((0, 0.5),), 0, 0.5, bytes(200))


def cluster(
    *, images: int = 2000, actors: Listed = "1,2,4", batch: int = 8, rounds: int = 3
) -> Row:
    """Measure how many rows per second the driver of a cluster stores at most.

    Args:
        batch: Images of a message.
        rounds: Of each number of actors, in turns; the best counts.
    """
    from dtpt.runs.cluster.connection import connected

    about, counts = machine(), whole_numbers(actors, "--actors")
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder, ExitStack() as stack:
        setup = _setup(images, Path(folder))
        crews = {0: _alone(setup)}
        stack.enter_context(connected("ray=local", cores=sum(counts)))
        for count in counts:
            crews[count] = stack.enter_context(_crew(setup, count, batch=batch))
        runs = {str(count): partial(_run, setup, crews[count], batch=batch) for count in crews}
        times = in_turns(runs, rounds)
    return {
        "pictures": images,
        "batch": batch,
        "rounds": rounds,
        "methods": len(PAPER_METHODS),
        "rows": [_row(times, count, images=images) for count in crews],
        "machine": about,
    }


def _row(times: dict[str, Times[None]], actors: int, *, images: int) -> Row:
    taken, alone = times[str(actors)], times["0"].best
    return {
        "actors": actors,
        "seconds": taken.best,
        "processor_ms": 1000 * taken.best_processor / images,
        "pictures_per_second": images / taken.best,
        "rows_per_second": len(PAPER_METHODS) * images / taken.best,
        "overhead_ms": 1000 * (taken.best - alone) / images,
    }


def answers(batch: Batch) -> list[Event]:
    return [
        Answered(
            Place(batch.number, item.sample.id),
            image_key="key",
            answers=(ROW,) * len(item.methods),
        )
        for item in batch.items
    ]


class IdleActor:
    """A worker on a cluster that does nothing."""

    def start(self, _order: WorkOrder) -> Ready:
        return Ready()

    def work(self, batch: Batch) -> list[Event]:
        return answers(batch)

    def close(self) -> None: ...


class IdleReplica:
    """A worker in the driver's own process that does nothing."""

    def __init__(self, order: WorkOrder) -> None:
        self.order = order
        self._events: list[Event] = []

    @property
    def pending(self) -> int:
        return len(self._events)

    def add(self, batch: Batch) -> None:
        self._events.extend(answers(batch))

    def next(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def close(self) -> None: ...


def _setup(images: int, folder: Path) -> "Setup":
    """Prepare a run over images that are never opened."""
    from dtpt.data import Dataset, FileRef, Sample
    from dtpt.runs.setup import prepare

    samples = [Sample(f"{k:07d}", k % CLASSES, FileRef(folder / "none")) for k in range(images)]
    names = tuple(f"class number {k}" for k in range(CLASSES))
    dataset = Dataset("nothing", names, samples)
    return prepare(_options(folder), datasets=[dataset])


def _options(folder: Path) -> Any:
    from dtpt.options import EvalOptions

    return EvalOptions(dataset=("nothing",), method=PAPER_METHODS, output=folder, device="cpu")


def _order(setup: "Setup") -> WorkOrder:
    from dtpt.runs.resources import Resources
    from dtpt.runs.setup import work_order

    return work_order(setup, _options(Path()), resources=Resources(0, 1, 0))


def _alone(setup: "Setup") -> "Crew":
    from dtpt.runs.crews import InlineCrew

    replica: Any = IdleReplica(_order(setup))
    return InlineCrew(replica)


@contextmanager
def _crew(setup: "Setup", count: int, *, batch: int) -> Iterator["Crew"]:
    """Open so many idle actors, all of which have been started."""
    from dtpt.runs.cluster.crew import ClusterCrew
    from dtpt.runs.cluster.machines import Wishes

    crew = ClusterCrew(
        _order(setup),
        wishes=Wishes(device="cpu", replicas=count),
        goods={},
        pictures=batch,
        note=lambda _: None,
        record=lambda _: None,
        actor=IdleActor,
    )
    try:
        crew.wait_for(count)
        yield crew
    finally:
        crew.close()


def _run(setup: "Setup", crew: "Crew", *, batch: int) -> None:
    """Plan and do a whole run in a store of its own."""
    from dtpt.runs.planning import Plan
    from dtpt.runs.progress import Silent
    from dtpt.runs.scheduler import Scheduler
    from dtpt.runs.shards import Shard
    from dtpt.runs.store import Store

    with (
        tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder,
        Store(Path(folder) / "run.sqlite", setup.spec) as store,
        Plan(setup, store=store, shard=Shard()) as plan,
    ):
        store.begin_session({})
        scheduler = Scheduler(
            plan, crew, store=store, reporter=Silent(), max_failures=0.0, batch=batch
        )
        scheduler.run()
