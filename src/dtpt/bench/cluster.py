"""`dtpt bench cluster`: what the driver of a cluster can do at most, and what Ray costs a picture.

The replicas do no work: they answer every picture at once with rows of a fixed content. So all time
is the driver's: planning, messages, and the store, which waits for the disk once for all rows that
have arrived together. Beside it the same run with such a replica in the driver's own process,
without Ray. All on this machine, with a Ray of its own. The ways take turns, and the best round of
each counts.
"""

import json as json_format
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from dtpt.bench.machine import Machine, describe_machine
from dtpt.bench.options import Json, whole_numbers
from dtpt.bench.timing import Times, in_turns
from dtpt.runs.orders import Answered, Batch, Event, Place, Ready, WorkOrder

from dtpt.runs.store import Answer

if TYPE_CHECKING:
    from dtpt.runs.crews import Crew

    from dtpt.runs.evaluation import Setup

METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt")
CLASSES = 100
ROW = Answer(0, 0.5, 1.0, 0.5, 0.4, ((0, 0.5),), 0, 0.5, bytes(200))


@dataclass(frozen=True)
class Ceiling:
    """What a driver does with replicas that do nothing.

    Attributes:
        actors: Replicas on the cluster; 0 for one in the driver's own process.
        seconds: For all pictures, in the best round.
        processor_ms: What a picture costs the driver's process of processor time, at best.
        pictures_per_second: Whose rows are stored.
        rows_per_second: The same in rows.
        overhead_ms: Milliseconds that a picture takes more than in the driver's own process.
    """

    actors: int
    seconds: float
    processor_ms: float
    pictures_per_second: float
    rows_per_second: float
    overhead_ms: float


@dataclass(frozen=True)
class Measurement:
    """All that was measured.

    Attributes:
        pictures: Of each way and round.
        batch: Pictures of a message.
        rounds: Of each way.
        methods: Rows of a picture.
        rows: One entry for each number of actors.
        machine: On which.
    """

    pictures: int
    batch: int
    rounds: int
    methods: int
    rows: tuple[Ceiling, ...]
    machine: Machine


def bench_cluster(
    *,
    pictures: Annotated[int, Parameter(help="Pictures of each way.")] = 2000,
    actors: Annotated[str, Parameter(help="Numbers of actors, comma-separated.")] = "1,2,4",
    batch: Annotated[int, Parameter(help="Pictures of a message.")] = 8,
    rounds: Annotated[int, Parameter(help="Rounds, of which the best counts.")] = 3,
    json: Json = False,
) -> None:
    """Measure how many rows per second the driver of a cluster stores at most."""
    counts = whole_numbers(actors, "--actors")
    found = measure(pictures, counts, batch=batch, rounds=rounds)
    if json:
        print(json_format.dumps(asdict(found), indent=1))
        return
    for row in found.rows:
        name = f"{row.actors} actors" if row.actors else "without Ray"
        print(
            f"{name:12} {row.pictures_per_second:8.0f} pictures/s {row.rows_per_second:8.0f} "
            f"rows/s, {row.overhead_ms:+.2f} ms per picture, {row.processor_ms:.2f} ms of the "
            "driver's processor time"
        )


def measure(
    pictures: int, counts: Sequence[int], *, batch: int = 8, rounds: int = 3
) -> Measurement:
    """Measure the driver with replicas that do nothing.

    Args:
        pictures: Of each way and round.
        counts: Numbers of actors.
        batch: Pictures of a message.
        rounds: Of each way; the best one counts.
    """
    from dtpt.runs.cluster.connection import connected

    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder, ExitStack() as stack:
        setup = _setup(pictures, Path(folder))
        crews = {0: _alone(setup)}
        stack.enter_context(connected("ray=local", cores=sum(counts)))
        for count in counts:
            crews[count] = stack.enter_context(_crew(setup, count, batch=batch))
        ways = {str(count): partial(_run, setup, crews[count], batch=batch) for count in crews}
        times = in_turns(ways, rounds)
    rows = tuple(_ceiling(int(name), times, pictures=pictures) for name in times)
    return Measurement(pictures, batch, rounds, len(METHODS), rows, describe_machine())


def _ceiling(actors: int, times: Mapping[str, Times[None]], *, pictures: int) -> Ceiling:
    taken, alone = times[str(actors)], times["0"].best
    return Ceiling(
        actors=actors,
        seconds=taken.best,
        processor_ms=1000 * taken.best_processor / pictures,
        pictures_per_second=pictures / taken.best,
        rows_per_second=len(METHODS) * pictures / taken.best,
        overhead_ms=1000 * (taken.best - alone) / pictures,
    )


def answers(batch: Batch) -> list[Event]:
    """Answer every picture of a batch without looking at it."""
    return [
        Answered(
            Place(batch.number, item.sample.id),
            image_key="key",
            answers=(ROW,) * len(item.methods),
        )
        for item in batch.items
    ]


class IdleActor:
    """A replica on a cluster that does nothing."""

    def start(self, _order: WorkOrder) -> Ready:
        """Load nothing."""
        return Ready()

    def work(self, batch: Batch) -> list[Event]:
        """Answer at once."""
        return answers(batch)

    def close(self) -> None:
        """Have nothing to end."""


class IdleReplica:
    """A replica in the driver's own process that does nothing.

    Args:
        order: Says how many pictures it should have before it.
    """

    def __init__(self, order: WorkOrder) -> None:
        self.order = order
        self._events: list[Event] = []

    @property
    def pending(self) -> int:
        """Pictures that are answered and not told yet."""
        return len(self._events)

    def add(self, batch: Batch) -> None:
        """Answer at once."""
        self._events.extend(answers(batch))

    def next(self) -> list[Event]:
        """Tell the answers."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Have nothing to end."""


def _setup(pictures: int, folder: Path) -> "Setup":
    """Prepare a run over pictures that nobody opens."""
    from dtpt.data import Dataset, FileRef, Sample
    from dtpt.options import EvalOptions
    from dtpt.runs.evaluation import prepare

    samples = [Sample(f"{k:07d}", k % CLASSES, FileRef(folder / "none")) for k in range(pictures)]
    names = tuple(f"class number {k}" for k in range(CLASSES))
    dataset = Dataset("nothing", names, samples)
    options = EvalOptions(dataset=("nothing",), method=METHODS, output=folder, device="cpu")
    return prepare(options, datasets=[dataset])


def _order(setup: "Setup") -> WorkOrder:
    from dtpt.options import EvalOptions
    from dtpt.runs.evaluation import work_order
    from dtpt.runs.resources import Resources

    options = EvalOptions(dataset=("nothing",), method=METHODS)
    return work_order(setup, options, resources=Resources(0, 1, 0))


def _alone(setup: "Setup") -> "Crew":
    from dtpt.runs.crews import InlineCrew

    replica: Any = IdleReplica(_order(setup))
    return InlineCrew(replica)


@contextmanager
def _crew(setup: "Setup", count: int, *, batch: int) -> Iterator["Crew"]:
    """Open a crew of so many idle actors, all of which have been started."""
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
    from dtpt.runs.plan import Plan
    from dtpt.runs.progress import Silent
    from dtpt.runs.schedule import Scheduler
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
