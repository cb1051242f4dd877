"""What a machine of a cluster is, whether it can help, and how many replicas it takes."""

import hashlib
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from dtpt.machine import free_memory, package_version, processor_name
from dtpt.runs.orders import WorkOrder
from dtpt.runs.resources import MEMORY_SHARE, MOST_WORKERS, Count


@dataclass(frozen=True)
class MachineFacts:
    """What a machine says about itself.

    Attributes:
        host: Its name.
        processor: Model name of its processor.
        machine: Its architecture.
        system: Its operating system.
        memory: Bytes that are free; None where nobody says.
        dtpt: Version.
        code: Hash of dtpt's source, because a version may stand for several.
        torch: Version.
        numpy: Version.
        pillow: Version.
    """

    host: str
    processor: str
    machine: str
    system: str
    memory: int | None
    dtpt: str
    code: str
    torch: str
    numpy: str
    pillow: str

    def environment(self) -> dict[str, Any]:
        """Return what of it can change a number in its last bits, and the host."""
        kept = asdict(self)
        return {name: kept[name] for name in ("host", "processor", "machine", "system", *LIBRARIES)}


LIBRARIES = ("torch", "numpy", "pillow")


def describe_here() -> MachineFacts:
    """Describe the machine on which this is called; torch is not imported.

    Example:
        >>> describe_here().code == describe_here().code
        True
    """
    return MachineFacts(
        host=socket.gethostname(),
        processor=processor_name(),
        machine=platform.machine(),
        system=platform.system(),
        memory=free_memory(),
        dtpt=package_version("dtpt"),
        code=code_digest(),
        torch=package_version("torch"),
        numpy=package_version("numpy"),
        pillow=package_version("pillow"),
    )


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a hash of dtpt's own source files."""
    package = Path(str(resources.files("dtpt")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def why_unfit(theirs: MachineFacts, ours: MachineFacts) -> str:
    """Say why a machine would not compute the same as the driver; "" when it would."""
    if (theirs.dtpt, theirs.code) == (ours.dtpt, ours.code):
        return ""
    if theirs.dtpt != ours.dtpt:
        return f"it has dtpt {theirs.dtpt}, the driver {ours.dtpt}; install the same on all"
    return f"its dtpt {theirs.dtpt} is other code than the driver's; install the same on all"


@dataclass(frozen=True)
class Wishes:
    """What a user wants of every machine.

    Attributes:
        device: "auto": accelerators where a machine has some, else its processor.
        threads: torch threads of a replica, which takes as many cores.
        replicas: Most copies of the model on a machine.
        workers: View-making processes beside each replica.
        replica_bytes: Memory of one copy of the model at work.
    """

    device: str = "auto"
    threads: int = 1
    replicas: Count = "auto"
    workers: Count = "auto"
    replica_bytes: int = 0


@dataclass(frozen=True)
class Share:
    """How a machine is used: copies of the model, on which device, and workers beside each."""

    replicas: int
    device: str
    workers: int
    cores: float
    accelerators: int = 0


def choose_share(
    offered: Mapping[str, float], wishes: Wishes, *, memory: int | None = None
) -> Share:
    """Choose how to use a machine; no replicas where it has too little of something.

    Args:
        offered: Ray's resources of the machine: "CPU", "GPU".
        wishes: What the user wants.
        memory: Bytes that are free on it.

    Example:
        >>> choose_share({"CPU": 8.0}, Wishes(threads=2))
        Share(replicas=4, device='cpu', workers=0, cores=2, accelerators=0)
        >>> choose_share({"CPU": 16.0, "GPU": 2.0}, Wishes())
        Share(replicas=2, device='cuda', workers=7, cores=8.0, accelerators=1)
    """
    cores, accelerators = offered.get("CPU", 0.0), int(offered.get("GPU", 0.0))
    if wishes.device != "cpu" and accelerators:
        copies = accelerators if wishes.replicas == "auto" else min(wishes.replicas, accelerators)
        each = cores // copies
        beside = max(int(each) - wishes.threads, 0)
        workers = min(beside, MOST_WORKERS) if wishes.workers == "auto" else wishes.workers
        return Share(copies, "cuda", workers, each, 1)
    if wishes.device not in ("auto", "cpu"):
        return Share(0, wishes.device, 0, 0)
    copies = int(cores // wishes.threads)
    if wishes.replicas != "auto":
        copies = min(copies, wishes.replicas)
    if memory is not None and wishes.replica_bytes:
        copies = min(copies, int(MEMORY_SHARE * memory) // wishes.replica_bytes)
    workers = 0 if wishes.workers == "auto" else wishes.workers
    return Share(max(copies, 0), "cpu", workers, wishes.threads)


def order_for(order: WorkOrder, share: Share) -> WorkOrder:
    """Return the work order of a machine's replicas."""
    return replace(order, device=share.device, workers=share.workers)
