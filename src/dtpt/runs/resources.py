"""How many workers, threads and view workers a run uses on a machine.

* The thread count decides numbers in their last bits, so it must not depend on the machine: one
  thread per worker on a CPU, whatever the number of cores, unless `--threads` sets it.
* On a CPU, workers that each do everything for their own images keep all cores busy without
  waiting for each other: as many as cores and memory allow, and no view workers.
* An accelerator is fed by one worker, with view workers beside it; several by one worker each.
* A model or data set that only this process has is used here, with view workers beside it.
* A worker takes seconds to start, so there are no more than the work is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dtpt.executors.cluster import MEMORY_FRACTION, MOST_VIEW_WORKERS
from dtpt.executors.process import CAN_START
from dtpt.methods import ResolvedMethod, method_cost

if TYPE_CHECKING:
    from torch import nn

    from dtpt.clip.model import Clip

Count = int | Literal["auto"]

PROCESS_BYTES = 400_000_000  # Python with torch
SECONDS_TO_START = 4.0
SECONDS_PER_BYTE_AND_VIEW = 0.6e-9  # of the image tower's weights, on one core, at least
SECONDS_PER_BYTE_AND_CLASS = 0.1e-9  # of the text tower's weights: fewer tokens than a view has
SECONDS_PER_PRODUCT = 4e-11  # of a number of a view's and of a class's feature, with what follows
TOKENS_PER_CLASS = 10  # of a class name with what follows it
LARGEST_BATCH = 16  # views that go through the image tower together
FEW_IMAGES = 16  # below that, a process that makes views is not worth its start


@dataclass(frozen=True)
class Resources:
    """What a run uses."""

    workers: int  # copies of the model; 1 works in the driver's own process
    threads: int  # torch threads of each worker
    view_workers: int  # beside each worker


@dataclass(frozen=True)
class Machine:
    """What there is."""

    cores: int
    memory: int | None  # free bytes, where known
    device: str = "cpu"
    accelerators: int = 1  # that may be used, where the device is one


@dataclass(frozen=True)
class Work:
    """What is to be done."""

    images: int
    worker_bytes: int  # memory of one worker
    image_seconds: float  # on one core, roughly
    is_shippable: bool = True  # other processes can load the model and open the images
    is_rendered: bool = True  # views are made, not read from a pack


def choose_resources(
    machine: Machine,
    work: Work,
    *,
    workers: Count = "auto",
    view_workers: Count = "auto",
    threads: int | None = None,
) -> Resources:
    """Choose what is "auto"; explicit values are kept.

    Example:
        >>> small = Work(images=500, worker_bytes=10**9, image_seconds=0.2)
        >>> choose_resources(Machine(cores=8, memory=16 * 10**9), small)
        Resources(workers=8, threads=1, view_workers=0)
        >>> choose_resources(Machine(cores=8, memory=16 * 10**9, device="cuda"), small)
        Resources(workers=1, threads=1, view_workers=7)
        >>> choose_resources(Machine(cores=8, memory=None, device="cuda", accelerators=2), small)
        Resources(workers=2, threads=1, view_workers=3)
    """
    chosen = threads or 1
    copies = _workers(machine, work, workers=workers, view_workers=view_workers, threads=chosen)
    if not CAN_START:
        return Resources(1, chosen, 0)
    if view_workers != "auto":
        return Resources(copies, chosen, view_workers)
    does_all = copies > 1 and machine.device == "cpu"
    if does_all or work.images < FEW_IMAGES or not work.is_rendered:
        return Resources(copies, chosen, 0)
    beside = max(machine.cores // copies - chosen, 0)
    return Resources(copies, chosen, min(beside, MOST_VIEW_WORKERS))


def _workers(
    machine: Machine, work: Work, *, workers: Count, view_workers: Count, threads: int
) -> int:
    if not work.is_shippable:
        return 1
    if workers != "auto":
        return workers
    if machine.device != "cpu":
        return max(1, min(machine.accelerators, work.images // FEW_IMAGES))
    if view_workers != "auto":
        return 1
    worth = int(work.images * work.image_seconds / SECONDS_TO_START)  # work longer than start
    bounds = [machine.cores // threads, worth]
    if machine.memory is not None:
        bounds.append(int(MEMORY_FRACTION * machine.memory) // work.worker_bytes)
    return max(1, min(bounds))


def describe_work(
    model: "Clip", *, images: int, views: int, classes: int, is_shippable: bool
) -> Work:
    """Estimate memory and time of one worker from the shapes of a model.

    Memory: a process with torch, the weights and their packed copies, the kept graphs of two class
    lists, and what a batch of views takes on its way through the image tower (about forty times its
    pixels).
    """
    from dtpt.tuning.encoder import DEFAULT_BUDGET_BYTES, graph_bytes_per_token

    graph = min(DEFAULT_BUDGET_BYTES, classes * TOKENS_PER_CLASS * graph_bytes_per_token(model))
    pixels = 3 * 4 * model.preprocessing.size**2  # bytes of one view
    activations = 40 * pixels * min(views, LARGEST_BATCH) + pixels * views
    weights = _weight_bytes(model)
    return Work(
        images=images,
        worker_bytes=PROCESS_BYTES + weights + model.packed_bytes + 2 * graph + activations,
        image_seconds=SECONDS_PER_BYTE_AND_VIEW * views * _weight_bytes(model.visual),
        is_shippable=is_shippable,
    )


def pack_seconds(
    model: "Clip", methods: Sequence[ResolvedMethod], *, views: int, classes: int
) -> float:
    """Estimate the time of one image whose view features are known."""
    costs = [method_cost(method) for method in methods]
    passes = sum(cost.text_forward + cost.text_backward for cost in costs)
    text = 0 if model.text is None else _weight_bytes(model.text)
    products = len(methods) * views * classes * model.config.embed_dim
    tuning = SECONDS_PER_BYTE_AND_CLASS * passes * classes * text
    return tuning + SECONDS_PER_PRODUCT * products


def _weight_bytes(module: "nn.Module") -> int:
    return sum(weights.numel() * weights.element_size() for weights in module.parameters())
