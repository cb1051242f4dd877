"""Crews: the replicas of a run behind one small interface, in this process or in others."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Protocol

from dtpt.errors import RunError
from dtpt.processes import Companion, start, stop
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

if TYPE_CHECKING:
    from dtpt.runs.replica import Replica

SECONDS_TO_END = 5.0
SECONDS_FOR_A_PICTURE = 2.0  # when a run is interrupted: a small model finishes it in this time
DEATHS_AT_START = 3


class Crew(Protocol):
    """Takes batches while it has room and gives events back; the scheduler knows nothing else."""

    @property
    def has_room(self) -> bool:
        """Whether another batch can be taken now."""
        ...

    def submit(self, batch: Batch | Search) -> None:
        """Give a batch, or a search for λ, to a replica."""
        ...

    def collect(self) -> list[Event]:
        """Wait for an event and return all that are there then, to be stored together.

        There must be a batch whose pictures are not all done.

        Raises:
            RunError: No replica could do the work.
        """
        ...

    def close(self) -> None:
        """End all replicas."""
        ...


class InlineCrew:
    """One replica in this process."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica

    @property
    def has_room(self) -> bool:
        """Whether the replica should have more pictures before it."""
        return self._replica.pending < self._replica.order.depth

    def submit(self, batch: Batch | Search) -> None:
        """Give the batch to the replica."""
        self._replica.add(batch)

    def collect(self) -> list[Event]:
        """Do the work."""
        return self._replica.next()

    def close(self) -> None:
        """End the processes that make views."""
        self._replica.close()


@dataclass
class _Member:
    number: int
    companion: Companion
    places: dict[Place, None] = field(default_factory=dict)  # the oldest first
    working_on: Place | None = None
    is_ready: bool = False


class LocalCrew:
    """Replicas in processes of this machine; one that dies is replaced.

    Args:
        order: What the replicas need to know.
        count: Number of replicas.
        warm: Processes from `warm_up`, used first.
    """

    def __init__(self, order: WorkOrder, count: int, *, warm: Sequence[Companion] = ()) -> None:
        self._order = order
        self._started = 0
        self._early_deaths = 0
        self._events: list[Event] = []
        self._members: list[_Member] = []
        try:
            for index in range(count):
                self._members.append(self._join(warm[index] if index < len(warm) else None))
        except BaseException:
            self.close()
            raise

    def _join(self, companion: Companion | None = None) -> _Member:
        member = _Member(self._started, companion or start_replica(self._order.threads))
        self._started += 1
        with suppress(OSError):  # it died; `collect` finds out
            member.companion.pipe.send(self._order)
        return member

    @property
    def has_room(self) -> bool:
        """Whether a replica should have more pictures before it."""
        return any(len(member.places) < self._order.depth for member in self._members)

    def submit(self, batch: Batch | Search) -> None:
        """Give a batch to the replica with the fewest pictures before it."""
        member = min(self._members, key=lambda candidate: len(candidate.places))
        member.places.update(dict.fromkeys(batch.places))
        with suppress(OSError):  # it died; `collect` finds out
            member.companion.pipe.send(batch)

    def collect(self) -> list[Event]:
        """Wait for any replica."""
        while not self._events:
            ready = wait([member.companion.pipe for member in self._members])
            for member in [m for m in self._members if m.companion.pipe in ready]:
                try:
                    message = member.companion.pipe.recv()
                except (EOFError, OSError):
                    self._replace(member)
                else:
                    self._understand(member, message)
        events, self._events = self._events, []
        return events

    def _understand(self, member: _Member, message: Any) -> None:
        if isinstance(message, Stopped):
            raise RunError(message.message)
        if isinstance(message, Ready):
            member.is_ready = True
        elif isinstance(message, Place):
            member.working_on = message
        elif isinstance(message, Answered):
            member.places.pop(message.place, None)
            self._events.append(replace(message, replica=member.number))
        else:
            if isinstance(message, Struck):
                member.places.pop(message.place, None)
            elif isinstance(message, Found):
                for place in [place for place in member.places if place.batch == message.number]:
                    del member.places[place]
            self._events.append(message)

    def _replace(self, member: _Member) -> None:
        """Give back the pictures of a dead replica and start another one in its place."""
        ending = member.companion.describe_end()
        stop([member.companion])
        self._early_deaths += not member.is_ready
        if self._early_deaths >= DEATHS_AT_START:
            raise RunError(
                f"Processes that hold the model die as soon as they start ({ending}); often memory "
                "ran out. Every finished image is kept: run the same command again, with fewer "
                "--replicas."
            )
        blamed = member.working_on if member.working_on in member.places else None
        others = tuple(place for place in member.places if place != blamed)
        if blamed is not None:
            self._events.append(Struck(blamed, ending))
        if others:
            self._events.append(Returned(others))
        self._members[self._members.index(member)] = self._join()

    def close(self) -> None:
        """End all replicas; one that is in the middle of a large picture is killed."""
        is_busy = any(member.places for member in self._members)
        seconds = SECONDS_FOR_A_PICTURE if is_busy else SECONDS_TO_END
        stop([member.companion for member in self._members], seconds)
        self._members = []


def start_replica(threads: int) -> Companion:
    """Start a process that loads torch and then waits for its work order."""
    return start("dtpt.runs.replica:serve", environment={"OMP_NUM_THREADS": str(threads)})


@contextmanager
def warm_up(count: int, *, threads: int) -> Iterator[list[Companion]]:
    """Start processes that load torch meanwhile; those left in the list are ended at the end."""
    waiting: list[Companion] = []
    try:
        for _ in range(count):
            waiting.append(start_replica(threads))
        yield waiting
    finally:
        stop(waiting)
