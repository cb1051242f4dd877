"""The scheduler: gives batches to a crew of replicas and writes the rows that come back.

It runs in the driver, is the only writer of the store, and knows replicas by a small protocol
(`dtpt.runs.crews.Crew`) alone, so that runs in one process, in several and on several machines
differ in nothing else. It holds the batches in work and nothing more.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dtpt.errors import RunError
from dtpt.runs.crews import Crew
from dtpt.runs.orders import Answered, Batch, Event, Item, Place, Returned, Struck
from dtpt.runs.planning import Plan
from dtpt.runs.progress import Reporter
from dtpt.runs.store import SampleInfo, Store

Weights = Mapping[tuple[int, int], tuple[float | None, ...]]

FAILURES_SHOWN = 20
ATTEMPTS = 3
"""Processes that may die on one picture before it is given up."""


@dataclass
class FailureLimit:
    """Stops a run when too many images of a data set cannot be read.

    At least one failure is tolerated (unless the share is 0), so that a small set is not stopped
    by its first damaged image.
    """

    dataset: str
    samples: int
    share: float
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> int:
        """Number of images that may fail."""
        return max(math.floor(self.share * self.samples), 1 if self.share > 0 else 0)

    def add(self, sample_id: str, reason: str) -> None:
        """Count an image once, whatever the number of seeds."""
        self.reasons[sample_id] = reason
        if len(self.reasons) <= self.allowed:
            return
        shown = list(self.reasons.items())[:FAILURES_SHOWN]
        listing = "".join(f"\n  {name}: {why}" for name, why in shown)
        raise RunError(
            f"{self.dataset}: {len(self.reasons)} images cannot be read, more than "
            f"{self.share:.1%} of {self.samples} (--max-failures):{listing}\n"
            "Repair them and run the same command again, or raise --max-failures."
        )


@dataclass(frozen=True)
class _Flight:
    """A picture in work."""

    batch: Batch
    item: Item


class Scheduler:
    """Brings everything that a plan lacks into the store.

    Args:
        plan: What is missing.
        crew: Who does it.
        store: Where rows go.
        reporter: Told about every picture.
        max_failures: Largest share of unreadable images of a data set.
        batch: Pictures of a batch.
        weights: λ that were found without labels, in the order of a stage's cells, by (task, seed).
    """

    def __init__(
        self,
        plan: Plan,
        crew: Crew,
        *,
        store: Store,
        reporter: Reporter,
        max_failures: float,
        batch: int = 1,
        weights: Weights | None = None,
    ) -> None:
        self._crew = crew
        self._weights = weights or {}
        self._store = store
        self._reporter = reporter
        self._stages = {(stage.task, stage.seed): stage for stage in plan.stages}
        self._limits = {
            stage.task: FailureLimit(stage.cells[0].dataset, stage.total, max_failures)
            for stage in plan.stages
        }
        self._batches = plan.batches(batch)
        self._again: deque[Batch] = deque()
        self._flying: dict[Place, _Flight] = {}
        self._deaths: Counter[tuple[int, int, str]] = Counter()
        self._begun: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Work until nothing is missing.

        Raises:
            RunError: Too many images fail, the disk is full, or no replica can do the work.
        """
        is_over = False
        while not is_over:
            while self._crew.has_room and (batch := self._next_batch()) is not None:
                self._submit(batch)
            is_over = self._crew.has_room and not self._flying
            if not is_over:
                self._handle(self._crew.collect())

    def _next_batch(self) -> Batch | None:
        if self._again:
            return self._again.popleft()
        batch = next(self._batches, None)
        if batch is None:
            return None
        return replace(batch, weights=self._weights.get((batch.task, batch.seed), ()))

    def _submit(self, batch: Batch) -> None:
        stage = self._stages[batch.task, batch.seed]
        if (batch.task, batch.seed) not in self._begun:
            self._begun.add((batch.task, batch.seed))
            self._reporter.start(stage.title, stage.total, done=stage.done)
        for item in batch.items:
            self._flying[Place(batch.number, item.sample.id)] = _Flight(batch, item)
        self._crew.submit(batch)

    def _handle(self, events: Sequence[Event]) -> None:
        """Bring what came back together into the store, then tell about it."""
        with self._store.together():
            stored = [done for event in events if (done := self._settle(event))]
        for title, replica in stored:
            self._reporter.advance(title, replica=replica)

    def _settle(self, event: Event) -> tuple[str, int | str] | None:
        """Store, repeat or give up; return the stage and replica of a picture that was stored."""
        if isinstance(event, Returned):
            for place in event.places:
                self._repeat(place)
        elif isinstance(event, Struck):
            return self._strike(event)
        elif isinstance(event, Answered):
            return self._write(event)
        return None

    def _repeat(self, place: Place) -> None:
        """Queue a picture again, alone, so that it cannot take others with it."""
        flight = self._flying.pop(place, None)
        if flight is not None:
            batch = flight.batch
            number = -1 - place.batch if place.batch >= 0 else place.batch  # own places, no clash
            self._again.append(replace(batch, number=number, items=(flight.item,)))

    def _strike(self, event: Struck) -> tuple[str, int | str] | None:
        """Try a picture on which a process died again, at most three times in all."""
        flight = self._flying.get(event.place)
        if flight is None:
            return None
        key = (flight.batch.task, flight.batch.seed, event.place.sample)
        self._deaths[key] += 1
        if self._deaths[key] < ATTEMPTS:
            self._repeat(event.place)
            return None
        reason = f"{ATTEMPTS} processes died while they worked on it ({event.reason})."
        return self._write(Answered(event.place, failure=reason))

    def _write(self, event: Answered) -> tuple[str, int | str] | None:
        """Store the rows of a picture; one that was answered before is dropped."""
        flight = self._flying.pop(event.place, None)
        if flight is None:
            return None
        stage, sample = self._stages[flight.batch.task, flight.batch.seed], flight.item.sample
        cells = [stage.cells[index] for index in flight.item.methods]
        info = SampleInfo(
            cells[0].dataset,
            sample.id,
            sample.label,
            sample.group,
            image_key=event.image_key or None,
            stamp=event.stamp or None,
        )
        if event.failure:
            self._store.write_failure(info, cells, reason=event.failure)
            self._limits[stage.task].add(sample.id, event.failure)
        else:
            self._store.write(info, dict(zip(cells, event.answers, strict=True)))
        self._store.encoded_images += event.is_new
        return stage.title, event.replica
