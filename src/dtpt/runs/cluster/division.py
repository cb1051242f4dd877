"""How a run would be divided among the machines of a cluster, and how long it would take."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dtpt.errors import RunError
from dtpt.options import EvalOptions
from dtpt.runs.cluster.connection import connected
from dtpt.runs.cluster.goods import goods_of, moved_batch, moved_order
from dtpt.runs.cluster.machines import order_for
from dtpt.runs.cluster.opening import batch_size, check_leaving, plain_order, wishes_of
from dtpt.runs.orders import Batch, Item, Search, Stopped
from dtpt.runs.reading import open_run
from dtpt.runs.setup import Setup, prepare

if TYPE_CHECKING:
    from dtpt.runs.cluster.supply import Machine

SECONDS_TO_ANSWER = 120.0
SECONDS_TO_MEASURE = 600.0
TIMED = 4  # pictures of each data set

Kind = tuple[str, str]
"""What decides the speed of a machine's replicas: processor and device."""


@dataclass(frozen=True)
class MachineShare:
    """What one machine would do.

    Attributes:
        name: Of the machine.
        processor: Its model name.
        device: On which its replicas compute.
        replicas: Copies of the model there.
        pictures: About how many it would answer, counted under each seed.
        picture_seconds: What one picture takes one replica, on average over the data sets.
    """

    name: str
    processor: str
    device: str
    replicas: int
    pictures: int
    picture_seconds: float


@dataclass(frozen=True)
class Division:
    """How a run would be divided.

    Attributes:
        pictures: That lack rows, counted under each seed.
        batch: Pictures that a machine is asked for at a time.
        seconds: What it would take, once the replicas have been started.
        machines: Their shares.
        refusals: Which machines would not be used, and why.
    """

    pictures: int
    batch: int
    seconds: float
    machines: tuple[MachineShare, ...]
    refusals: tuple[str, ...]


def divide(options: EvalOptions, *, note: Callable[[str], None]) -> Division:
    """Look at a cluster, measure each kind of machine on a few pictures, and divide the run.

    Nothing of the run is computed or written; machines that lack the data are sent it.

    Args:
        options: What is to be run.
        note: Tells people something.

    Raises:
        RunError: No machine can work.
    """
    setup = prepare(options)
    check_leaving(setup)
    missing = missing_pictures(setup, options)
    with connected(options.engine):
        machines, refusals = _machines(setup, options, note=note)
        if not machines:
            raise RunError(f"No machine of the cluster can work. {'; '.join(refusals[:3])}")
        seconds = _measure(setup, options, machines=machines)
    shares = share_out(machines, seconds, missing=missing)
    rate = sum(one.share.replicas / _average(seconds[kind(one)], missing) for one in machines)
    pictures = sum(missing.values())
    return Division(
        pictures=pictures,
        batch=batch_size(setup, options, pictures=pictures),
        seconds=pictures / rate,
        machines=shares,
        refusals=tuple(refusals),
    )


def missing_pictures(setup: Setup, options: EvalOptions) -> dict[int, int]:
    """Return, by number of the data set, how many pictures lack rows, counted under each seed."""
    done: dict[tuple[str, int], int] = {}
    with suppress(RunError), open_run(options.output) as run:
        for cell, (successful, _) in run.counts().items():
            key = (cell.dataset, cell.seed)
            done[key] = min(done.get(key, successful), successful)
    return {
        number: sum(
            max(len(task.dataset) - done.get((task.dataset.name, seed), 0), 0)
            for seed in setup.spec.seeds
        )
        for number, task in enumerate(setup.tasks)
    }


def kind(machine: "Machine") -> Kind:
    """Return what decides the speed of a machine's replicas: processor and device."""
    return (machine.facts.processor if machine.facts else "", machine.share.device)


def share_out(
    machines: "list[Machine]",
    seconds: Mapping[Kind, Mapping[int, float]],
    *,
    missing: Mapping[int, int],
) -> tuple[MachineShare, ...]:
    """Divide pictures in proportion to what machines do in a second."""
    each = [_average(seconds[kind(one)], missing) for one in machines]
    rates = [one.share.replicas / time for one, time in zip(machines, each, strict=True)]
    whole = sum(missing.values())
    return tuple(
        MachineShare(
            one.name, *kind(one), one.share.replicas, round(whole * rate / sum(rates)), time
        )
        for one, rate, time in zip(machines, rates, each, strict=True)
    )


def _average(seconds: Mapping[int, float], missing: Mapping[int, int]) -> float:
    """Return the mean seconds of a picture, over the pictures that are missing."""
    whole = sum(missing.values())
    if not whole:
        return sum(seconds.values()) / len(seconds)
    return sum(seconds[number] * count for number, count in missing.items()) / whole


def _machines(
    setup: Setup, options: EvalOptions, *, note: Callable[[str], None]
) -> tuple["list[Machine]", list[str]]:
    """Greet all machines that are there; return those that can work, and why others cannot."""
    from dtpt.runs.cluster.fleet import Fleet
    from dtpt.runs.cluster.mailbox import Mailbox

    mail = Mailbox()
    ready: list[Machine] = []
    fleet = Fleet(
        mail,
        wishes=wishes_of(setup, options),
        goods=goods_of(setup, options.model),
        joined=ready.append,
        left=lambda _: None,
        note=note,
    )
    deadline = time.monotonic() + SECONDS_TO_ANSWER
    fleet.look()
    while fleet.may_grow and time.monotonic() < deadline:
        mail.take(0.5)
        fleet.look()
    fleet.close()
    return ready, fleet.refusals


def _measure(
    setup: Setup, options: EvalOptions, *, machines: "list[Machine]"
) -> dict[Kind, dict[int, float]]:
    """Return seconds per picture of each data set, on one machine of each kind.

    All its replicas work at the same time, because they share its memory.
    """
    import ray

    order = replace(plain_order(setup, options), cache=False)
    first = {kind(one): one for one in reversed(machines)}
    actors = {key: _replicas(machine) for key, machine in first.items()}
    try:
        started = [
            actor.start.remote(moved_order(order_for(order, machine.share), machine.received))
            for key, machine in first.items()
            for actor in actors[key]
        ]
        for said in _answers(started):
            if isinstance(said, Stopped):
                raise RunError(said.message)
        measured = {
            key: [actor.measure.remote(_batches(setup, machine)) for actor in actors[key]]
            for key, machine in first.items()
        }
        return {key: _mean(_answers(answers)) for key, answers in measured.items()}
    finally:
        for actor in (one for several in actors.values() for one in several):
            ray.kill(actor)


def _replicas(machine: "Machine") -> list[Any]:
    from dtpt.runs.cluster.actors import ReplicaActor
    from dtpt.runs.cluster.fleet import on_machine

    share = machine.share
    made = on_machine(
        ReplicaActor, node=machine.node, cores=share.cores, accelerators=share.accelerators
    )
    return [made.remote() for _ in range(share.replicas)]


def _answers(references: list[Any]) -> list[Any]:
    import ray

    from dtpt.runs.cluster.supply import in_one_line

    try:
        return list(ray.get(references, timeout=SECONDS_TO_MEASURE))
    except ray.exceptions.RayError as error:
        raise RunError(f"A machine cannot be measured: {in_one_line(error)}.") from error


def _mean(several: list[dict[int, float]]) -> dict[int, float]:
    return {number: sum(one[number] for one in several) / len(several) for number in several[0]}


def _batches(setup: Setup, machine: "Machine") -> list[Batch | Search]:
    """Return, for each data set, a picture to warm up and some to be timed."""
    found: list[Batch | Search] = []
    for number, task in enumerate(setup.tasks):
        methods = tuple(range(len(task.methods)))
        items = [Item(sample, methods) for sample in task.dataset.limited(TIMED + 1).samples]
        for some in (items[:1], items[1:] or items):
            batch = Batch(len(found), number, setup.spec.seeds[0], tuple(some))
            found.append(moved_batch(batch, machine.received.get(number)))
    return found
