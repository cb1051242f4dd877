"""This machine: cores, memory, processor, versions. Imports neither NumPy nor torch.

`choose_threads` is the one rule for torch's threads. Workers that each answer their own images have
one: together they fill the cores and never wait for each other. A process that answers one image
after the other takes all cores it may use, which torch would not count by itself in a container
with a quota. Its threads sleep while they wait (see `dtpt/__init__.py`), so that this costs nothing
on a busy machine: docs/performance.md has the measurement. `dtpt eval` always has one thread,
because its numbers must not depend on the machine in their last bits.
"""

import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
CPU_INFO = Path("/proc/cpuinfo")
MEMORY_INFO = Path("/proc/meminfo")
LIBRARIES = ("torch", "numpy", "pillow")  # their versions can change a number in its last bits


def usable_cores() -> int:
    """Return the number of cores that affinity and control group leave to this process."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota, _, period = _read(CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def choose_threads(given: int | None = None, *, workers: int = 1) -> int:
    """Return the torch threads of each of some workers on a CPU.

    Example:
        >>> choose_threads(3), choose_threads(workers=4), choose_threads() == usable_cores()
        (3, 1, True)
    """
    return given or (1 if workers > 1 else usable_cores())


def free_memory() -> int | None:
    """Return the bytes of memory that this process can still get; None if unknown."""
    limits = []
    for line in _read(MEMORY_INFO).splitlines():
        if line.startswith("MemAvailable:"):
            limits.append(1024 * int(line.split()[1]))
    limit, used = _read(CGROUP / "memory.max").strip(), _read(CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        limits.append(max(int(limit) - int(used), 0))
    return min(limits) if limits else None


def processor_name() -> str:
    """Return the processor's model name; outside of Linux what Python knows of it."""
    lines = _read(CPU_INFO).splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), platform.processor() or platform.machine())


def package_version(name: str) -> str:
    """Return the version of an installed package, "unknown" where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def describe_machine() -> dict[str, str]:
    """Return what of this machine can change a number in its last bits, and the host's name.

    Example:
        >>> sorted(describe_machine())
        ['host', 'machine', 'numpy', 'pillow', 'processor', 'python', 'system', 'torch']
    """
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "host": socket.gethostname(),
        "processor": processor_name(),
        **{name: package_version(name) for name in LIBRARIES},
    }


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
