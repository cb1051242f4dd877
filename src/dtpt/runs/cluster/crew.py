"""The crew of a cluster: replicas on its machines behind the interface that the scheduler knows."""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError

from dtpt.data import Sample
from dtpt.errors import ImageError, RunError
from dtpt.runs.cluster.actors import ReplicaActor
from dtpt.runs.cluster.fleet import DEATHS_AT_START, Fleet, on_machine
from dtpt.runs.cluster.goods import Goods, moved_batch, moved_order
from dtpt.runs.cluster.machines import Wishes, order_for
from dtpt.runs.cluster.mailbox import Mailbox
from dtpt.runs.cluster.supply import Machine, in_one_line
from dtpt.runs.orders import (
    Answered,
    Batch,
    Event,
    Found,
    Place,
    Ready,
    Returned,
    Search,
    Stopped,
    Struck,
    WorkOrder,
)

SECONDS_TO_END = 5.0
SECONDS_ALONE = 600.0
LOOK_SECONDS = 0.5
MOST_EVENTS = 256  # that are stored together


@dataclass(frozen=True)
class _Slot:
    """A picture that a replica has before it: its sample, data set, and the size of its batch."""

    sample: Sample
    task: int
    size: int


@dataclass(eq=False)
class _Member:
    """A replica on a machine, and what it has before it."""

    machine: Machine
    actor: Any
    places: dict[Place, _Slot] = field(default_factory=dict)  # the oldest first
    calls: int = 0
    is_ready: bool = False
    is_lost: bool = False


class ClusterCrew:
    """Replicas on the machines of a cluster; those that die are replaced, new machines join.

    Args:
        order: What the replicas need to know.
        wishes: How machines shall be used.
        goods: What machines need: the model (-1), data sets by their numbers.
        pictures: Of a batch, usually.
        note: Tells people something.
        record: Told, for the run's store, about every machine that works.
        actor: What runs on the machines.
        patience: Seconds without any machine after which the run is given up.
    """

    def __init__(
        self,
        order: WorkOrder,
        *,
        wishes: Wishes,
        goods: Mapping[int, Goods],
        pictures: int,
        note: Callable[[str], None],
        record: Callable[[dict[str, Any]], None],
        actor: type = ReplicaActor,
        patience: float = SECONDS_ALONE,
    ) -> None:
        self._order = order
        self._depth = max(order.depth, pictures + 1)  # one batch at work and one before it
        self._actor = actor
        self._record = record
        self._patience = patience
        self._alone_since = time.monotonic()
        self._members: dict[_Member, None] = {}
        self._free: OrderedDict[_Member, None] = OrderedDict()  # with room, idle ones first
        self._backlog: deque[Batch | Search] = deque()
        self._events: list[Event] = []
        self._flying = 0
        self._mail = Mailbox()
        self._fleet = Fleet(
            self._mail, wishes=wishes, goods=goods, joined=self._use, left=self._leave, note=note
        )

    @property
    def has_room(self) -> bool:
        """Whether a replica should have more pictures, or nobody has any."""
        return not self._backlog and (bool(self._free) or not self._flying)

    def submit(self, batch: Batch | Search) -> None:
        """Give a batch to a replica with room, an idle one first; without one it waits here."""
        self._flying += len(batch.places)
        if self._free:
            self._send(next(iter(self._free)), batch)
        else:
            self._backlog.append(batch)

    def collect(self) -> list[Event]:
        """Wait for any replica; meanwhile machines may come and go."""
        while not self._events:
            self._wait()
        while len(self._events) < MOST_EVENTS and self._mail.take(0):
            pass  # what has arrived meanwhile
        events, self._events = self._events, []
        return events

    def wait_for(self, replicas: int) -> None:
        """Wait until so many replicas are ready."""
        while sum(member.is_ready for member in self._members) < replicas:
            self._wait()

    def _wait(self) -> None:
        """Handle the next answer, and look from time to time who is there."""
        self._mail.take(LOOK_SECONDS)
        self._fleet.look()
        self._check_machines()

    def _check_machines(self) -> None:
        """Give up when no machine can work and none is likely to come."""
        if self._members or self._fleet.may_grow:
            self._alone_since = time.monotonic()
            return
        seconds = time.monotonic() - self._alone_since
        refusals = self._fleet.refusals
        if refusals and len(refusals) == len(self._fleet.machines):
            raise RunError(f"No machine of the cluster can work. {'; '.join(refusals[:3])}.")
        if seconds > self._patience:
            raise RunError(
                f"The cluster has had no machine to work on for {seconds:.0f} seconds. Every "
                "finished image is kept: run the same command again when there are machines."
            )

    def _use(self, machine: Machine) -> None:
        """Start replicas on a machine."""
        for _ in range(machine.share.replicas):
            self._start(machine)

    def _start(self, machine: Machine) -> None:
        share = machine.share
        kind = on_machine(
            self._actor, node=machine.node, cores=share.cores, accelerators=share.accelerators
        )
        member = _Member(machine, kind.remote())
        self._members[member] = None
        self._mail.when(
            member.actor.start.remote(self._order_for(machine)).future(),
            then=partial(self._started, member),
            otherwise=partial(self._died, member),
        )

    def _order_for(self, machine: Machine) -> WorkOrder:
        order = order_for(self._order, machine.share)
        return moved_order(order, machine.received) if machine.received else order

    def _started(self, member: _Member, said: Ready | Stopped) -> None:
        if member.is_lost:
            return
        machine = member.machine
        if isinstance(said, Stopped):
            self._lose(member)
            if not machine.refusal:
                self._fleet.refuse(machine, said.message.rstrip("."))
            return
        if not machine.has_worked:
            self._welcome(machine)
        member.is_ready = True
        machine.early_deaths = 0
        self._set_free(member)
        while self._backlog and self._free:
            self._send(next(iter(self._free)), self._backlog.popleft())
        self._events.append(Returned(()))  # nothing came back, but there is room now

    def _welcome(self, machine: Machine) -> None:
        machine.has_worked = True
        if machine.facts is not None:
            share = machine.share
            facts = {**machine.facts.environment(), "device": share.device}
            self._record({**facts, "replicas": share.replicas})

    def _send(self, member: _Member, batch: Batch | Search) -> None:
        samples = (
            batch.samples if isinstance(batch, Search) else [item.sample for item in batch.items]
        )
        for place, sample in zip(batch.places, samples, strict=True):
            member.places[place] = _Slot(sample, batch.task, len(samples))
        self._call(member, moved_batch(batch, member.machine.received.get(batch.task)))

    def _call(self, member: _Member, batch: Batch | Search | None) -> None:
        member.calls += 1
        self._free.pop(member, None)
        if batch is not None:
            self._set_free(member)
        self._mail.when(
            member.actor.work.remote(batch).future(),
            then=partial(self._answered, member),
            otherwise=partial(self._died, member),
        )

    def _set_free(self, member: _Member) -> None:
        """Let a replica with room have more; one that has nothing comes first."""
        if len(member.places) < self._depth:
            self._free[member] = None
            self._free.move_to_end(member, last=bool(member.places))

    def _answered(self, member: _Member, events: list[Event]) -> None:
        if member.is_lost:
            return  # what it had is done by others; a row shall not come twice
        member.calls -= 1
        for event in events:
            if isinstance(event, Answered) and self._is_contradicted(member, event):
                return
            if isinstance(event, Found):
                self._forget_search(member, event)
            slot = None
            if isinstance(event, Answered | Struck):
                slot = member.places.pop(event.place, None)
                self._flying -= slot is not None
            if isinstance(event, Answered) and slot is not None:
                event = _as_seen_here(event, slot, machine=member.machine)
            self._events.append(event)
        if member.places and not member.calls:
            self._call(member, None)  # nothing follows: let all that it keeps come
        self._set_free(member)
        if not events:
            self._events.append(Returned(()))  # there may be room now

    def _forget_search(self, member: _Member, event: Found) -> None:
        for place in [place for place in member.places if place.batch == event.number]:
            del member.places[place]
            self._flying -= 1

    def _is_contradicted(self, member: _Member, event: Answered) -> bool:
        """Leave a machine out that cannot read a picture which can be read here."""
        slot = member.places.get(event.place)
        if slot is None or not event.failure or event.image_key:
            return False  # done, or the picture itself is damaged
        try:
            slot.sample.image.key()
        except ImageError:
            return False
        reason = f"it lacks {slot.sample.id} ({event.failure.rstrip('.')})"
        remedy = "complete the data there, or remove it all to be sent it"
        self._fleet.refuse(member.machine, f"{reason}; {remedy}")
        self._leave(member.machine)
        return True

    def _died(self, member: _Member, error: Exception) -> None:
        """Give back what a replica had before it, and start another one where it was."""
        if member.is_lost:
            return
        self._fleet.look(now=True)  # if its machine is gone, this gives everything back
        machine = member.machine
        if machine.is_gone:
            return
        self._lose(member, reason=_blame(error))
        machine.early_deaths += not member.is_ready
        if machine.early_deaths < DEATHS_AT_START:
            self._start(machine)
        elif not any(one.machine is machine for one in self._members):
            why = in_one_line(error)
            self._fleet.refuse(machine, f"replicas die there as soon as they start ({why})")

    def _lose(self, member: _Member, *, reason: str = "") -> None:
        """Forget a replica; the picture it was on, if that stood alone, has to do with the end."""
        member.is_lost = True
        self._members.pop(member, None)
        self._free.pop(member, None)
        with suppress(Exception):  # it may be dead already
            ray.kill(member.actor)
        places = list(member.places)
        self._flying -= len(places)
        if reason and places and member.places[places[0]].size == 1:
            self._events.append(Struck(places.pop(0), reason))
        self._events.append(Returned(tuple(places)))

    def _leave(self, machine: Machine) -> None:
        for member in [one for one in self._members if one.machine is machine]:
            self._lose(member)

    def close(self) -> None:
        """End all replicas; in an interrupted run at once."""
        try:
            if not self._flying:
                ending = [member.actor.close.remote() for member in self._members]
                if ending:
                    ray.wait(ending, num_returns=len(ending), timeout=SECONDS_TO_END)
        except (RayActorError, RayTaskError, GetTimeoutError):
            pass
        finally:
            for member in list(self._members):
                self._lose(member)
            self._fleet.close()


def _as_seen_here(event: Answered, slot: _Slot, *, machine: Machine) -> Answered:
    """Return an answer with its machine, and with the file as it looks here if it was sent."""
    if event.failure:
        return replace(event, replica=machine.name, image_key="")
    if slot.task not in machine.received:
        return replace(event, replica=machine.name)
    with suppress(ImageError):
        return replace(event, replica=machine.name, stamp=slot.sample.image.stamp())
    return replace(event, replica=machine.name)


def _blame(error: Exception) -> str:
    """Return why a picture may have killed its replica; "" when it was the machine or network."""
    if isinstance(error, ActorUnavailableError) or "node has died" in str(error):
        return ""
    return in_one_line(error)
