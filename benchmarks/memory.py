"""Peak memory of some work, measured in a process of its own: nothing else has run in it."""

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from dtpt.errors import DtptError

ROOT = Path(__file__).parents[1]


class BenchmarkError(DtptError):
    """A benchmark that cannot be run with these options."""


def grown_mb(target: str, arguments: Mapping[str, object]) -> float:
    """Return by how many MB a fresh process grew at most while some work was done once.

    Args:
        target: "module:function"; the function prepares the work, which is not counted, and returns
            it as something to call.
        arguments: of that function, as JSON.
    """
    command = [sys.executable, "-m", __name__, target, json.dumps(arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise BenchmarkError(f"Measuring the memory of {target} failed: {reason[0]}")
    return float(done.stdout)


def _growth(target: str, arguments: Mapping[str, object]) -> float:
    module, _, function = target.partition(":")
    work = getattr(import_module(module), function)(**arguments)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the kernel drops earlier peaks
        before = _status_mb("VmRSS")
    except OSError:  # another system: then only growth beyond the earlier peak counts
        before = _peak_mb()
    work()
    return _peak_mb() - before


def _peak_mb() -> float:
    try:
        return _status_mb("VmHWM")
    except OSError:
        unit = 1024**2 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _status_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    print(_growth(sys.argv[1], json.loads(sys.argv[2])))
