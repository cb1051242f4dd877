"""What runs on the machines of a cluster: plain classes, which Ray makes actors of.

Nothing is sent but work orders, batches of sample ids and rows. Every error that a replica raises
on purpose comes back as a record; what Ray reports beside that is a fault of the machine.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from dtpt.data import Sample
from dtpt.errors import DtptError, ImageError
from dtpt.runs.cluster.goods import (
    Content,
    Parcel,
    Probe,
    lacking,
    received_folder,
    unpack,
)
from dtpt.runs.cluster.machines import MachineFacts, describe_here
from dtpt.runs.orders import Answered, Batch, Event, Ready, Search, Stopped, Struck, WorkOrder

if TYPE_CHECKING:
    from dtpt.runs.replica import Replica


class Porter:
    """Stands at the door of a machine: says what it is and has, and takes what it is sent."""

    def describe(self) -> MachineFacts:
        """Return what the machine is."""
        return describe_here()

    def lacks(self, probes: Mapping[int, Probe]) -> dict[int, str]:
        """Return what is not here, and why it is thought so."""
        reasons = {number: probe.why_absent() for number, probe in probes.items()}
        return {number: reason for number, reason in reasons.items() if reason}

    def expect(self, parcel: Parcel) -> tuple[str, list[int]]:
        """Return the folder of a parcel, and which of its files have still to be sent."""
        return str(received_folder(parcel.digest)), lacking(parcel)

    def take(self, parcel: Parcel, content: Content) -> None:
        """Write a piece of a parcel."""
        unpack(parcel, content)


class ReplicaActor:
    """One copy of the model on a machine."""

    def __init__(self) -> None:
        self._replica: Replica | None = None
        self._samples: dict[str, Sample] = {}

    def start(self, order: WorkOrder) -> Ready | Stopped:
        """Load the model."""
        import torch

        from dtpt.runs.replica import Replica

        torch.set_num_threads(order.threads)
        try:
            self._replica = Replica(order)
        except DtptError as error:
            return Stopped(str(error))
        return Ready()

    def work(self, batch: Batch | Search | None) -> list[Event]:
        """Take a batch and say what became of pictures, of this batch or earlier ones.

        With processes that make views beside us some pictures stay in work until the next call, so
        that nobody waits; None lets them all come.
        """
        replica = self._replica
        if replica is None:
            raise RuntimeError("work before start")
        if batch is not None:
            replica.add(batch)
        kept = 2 * replica.order.workers if batch is not None else 0
        if isinstance(batch, Batch):
            self._samples.update((item.sample.id, item.sample) for item in batch.items)
        events: list[Event] = []
        while replica.pending > kept:
            events.extend(self._explained(event) for event in replica.next())
        return events

    def measure(self, batches: Sequence[Batch]) -> dict[int, float]:
        """Return the seconds of a picture in the last batch of each data set, by its number."""
        seconds = {}
        for batch in batches:
            began = time.perf_counter()
            self.work(batch)
            self.work(None)
            seconds[batch.task] = (time.perf_counter() - began) / len(batch.items)
        return seconds

    def _explained(self, event: Event) -> Event:
        """Add to a failure what is in the file, unless that cannot be read either."""
        if not isinstance(event, Answered | Struck):
            return event
        sample = self._samples.pop(event.place.sample, None)
        if isinstance(event, Answered) and event.failure and sample is not None:
            with suppress(ImageError):
                return replace(event, image_key=sample.image.key())
        return event

    def close(self) -> None:
        """Write what the cache holds and end the processes beside us."""
        if self._replica is not None:
            self._replica.close()
