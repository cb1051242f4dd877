"""How many copies of the model, threads and view-making processes a machine is best used with.

The rule, with its reasons:

* The thread count decides numbers in their last bits, so it must not depend on the machine: one
  thread per replica on a CPU, whatever the number of cores, unless `--threads` says otherwise.
* On a CPU, replicas that each do everything for their own pictures keep all cores busy without
  waiting for each other: as many as cores and memory allow, and none of them makes views elsewhere.
* An accelerator is fed by one replica; decoding and views are made in processes beside it.
* A model or data set that only this process has is used here, with views made beside it.
* A replica takes seconds to start, so there are no more than the work is worth.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dtpt.machine import free_memory, usable_cores
from dtpt.processes import CAN_START

if TYPE_CHECKING:
    from torch import nn

    from dtpt.clip.model import Clip

Count = int | Literal["auto"]

PROCESS_BYTES = 400_000_000  # Python with torch
MEMORY_SHARE = 0.8  # of what is free; the rest is for caches and others
SECONDS_TO_START = 4.0
SECONDS_PER_BYTE_AND_VIEW = 0.6e-9  # of the image tower's weights, on one core, at least
TOKENS_PER_CLASS = 10  # of a class name with what follows it
LARGEST_BATCH = 16  # views that go through the image tower together
MOST_WORKERS = 8
FEW_PICTURES = 16  # below that, a process that makes views is not worth its start


@dataclass(frozen=True)
class Resources:
    """What a run uses.

    Attributes:
        replicas: Copies of the model; 1 works in the driver's own process.
        threads: torch threads of each.
        workers: Processes that make views, beside each.
    """

    replicas: int
    threads: int
    workers: int


@dataclass(frozen=True)
class Machine:
    """What there is: cores, free memory in bytes (None when not known), and the kind of device."""

    cores: int
    memory: int | None
    device: str = "cpu"


@dataclass(frozen=True)
class Work:
    """What is to be done.

    Attributes:
        pictures: How many.
        replica_bytes: Memory of one copy of the model at work.
        picture_seconds: What one picture takes on one core, roughly.
        can_leave: Whether other processes can load the model and open the pictures.
    """

    pictures: int
    replica_bytes: int
    picture_seconds: float
    can_leave: bool = True


def choose_resources(
    machine: Machine,
    work: Work,
    *,
    replicas: Count = "auto",
    workers: Count = "auto",
    threads: int | None = None,
) -> Resources:
    """Choose what is "auto"; what is given is taken.

    Example:
        >>> small = Work(pictures=500, replica_bytes=10**9, picture_seconds=0.2)
        >>> choose_resources(Machine(cores=8, memory=16 * 10**9), small)
        Resources(replicas=8, threads=1, workers=0)
        >>> choose_resources(Machine(cores=8, memory=16 * 10**9, device="cuda"), small)
        Resources(replicas=1, threads=1, workers=7)
    """
    chosen = threads or 1
    copies = _replicas(machine, work, replicas=replicas, workers=workers, threads=chosen)
    if not CAN_START:
        return Resources(1, chosen, 0)
    if workers != "auto":
        return Resources(copies, chosen, workers)
    if copies > 1 or work.pictures < FEW_PICTURES:
        return Resources(copies, chosen, 0)
    return Resources(copies, chosen, min(max(machine.cores - chosen, 0), MOST_WORKERS))


def _replicas(
    machine: Machine, work: Work, *, replicas: Count, workers: Count, threads: int
) -> int:
    if not work.can_leave:
        return 1
    if replicas != "auto":
        return replicas
    if workers != "auto" or machine.device != "cpu":
        return 1
    bounds = [machine.cores // threads, _worth(work)]
    if machine.memory is not None:
        bounds.append(int(MEMORY_SHARE * machine.memory) // work.replica_bytes)
    return max(1, min(bounds))


def _worth(work: Work) -> int:
    """Return how many replicas the work is worth: each shall work longer than it takes to start."""
    return int(work.pictures * work.picture_seconds / SECONDS_TO_START)


def describe_work(
    model: "Clip", *, pictures: int, views: int, classes: int, can_leave: bool
) -> Work:
    """Estimate memory and time of one replica from the shapes of a model.

    Memory: a process with torch, the weights and their packed copies, the kept graphs of two class
    lists, and what a batch of views takes on its way through the image tower (about forty times its
    pixels).

    Args:
        model: The model.
        pictures: How many are to be evaluated.
        views: Of each.
        classes: Of the data set that has most of them.
        can_leave: Whether other processes can load the model and open the pictures.
    """
    from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES, graph_bytes_per_token

    graph = min(DEFAULT_BUDGET_BYTES, classes * TOKENS_PER_CLASS * graph_bytes_per_token(model))
    pixels = 3 * 4 * model.preprocessing.size**2  # bytes of one view
    activations = 40 * pixels * min(views, LARGEST_BATCH) + pixels * views
    return Work(
        pictures=pictures,
        replica_bytes=PROCESS_BYTES
        + _weight_bytes(model)
        + model.packed_bytes
        + 2 * graph
        + activations,
        picture_seconds=SECONDS_PER_BYTE_AND_VIEW * views * _weight_bytes(model.visual),
        can_leave=can_leave,
    )


def _weight_bytes(module: "nn.Module") -> int:
    return sum(weights.numel() * weights.element_size() for weights in module.parameters())


def this_machine(device: str = "cpu") -> Machine:
    """Return what this process may use, in a container its share of it."""
    return Machine(usable_cores(), free_memory(), device)
