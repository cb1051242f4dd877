"""Peak memory of one way, measured in a process of its own: nothing else has been in it."""

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from dtpt.errors import BenchmarkError

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def grown_mb(target: str, arguments: Mapping[str, object]) -> float:
    """Return by how many MB a fresh process grew at most while some work was done once.

    Args:
        target: "module:function"; the function prepares the work (say, builds a model), which is
            not counted, and returns it as something to call.
        arguments: Of that function; they travel as JSON.

    Raises:
        BenchmarkError: The process failed, for instance because memory ran out.
    """
    command = [sys.executable, "-m", __name__, target, json.dumps(arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise BenchmarkError(f"Measuring the memory of {target} failed: {reason[0]}")
    return float(done.stdout)


def measure(target: str, arguments: Mapping[str, object]) -> float:
    """Prepare and do the work in this process; return by how many MB it grew at most."""
    module, _, function = target.partition(":")
    work = getattr(import_module(module), function)(**arguments)
    before = _start()
    work()
    return _peak() - before


def _start() -> float:
    """Return the memory in use, in MB, and let the kernel forget earlier peaks where it can."""
    try:
        _RESET.write_text("5")
    except OSError:  # another system: then only growth beyond the earlier peak is seen
        return _peak()
    return _status("VmRSS")


def _peak() -> float:
    try:
        return _status("VmHWM")
    except OSError:
        unit = 1024**2 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _status(field: str) -> float:
    """Return one line of the kernel's account of this process, in MB."""
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    print(measure(sys.argv[1], json.loads(sys.argv[2])))
