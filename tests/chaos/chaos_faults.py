"""What happens to a command: every fault, what may come of it, and how it ends.

A fault acts in the command's own process before it starts (`inside`), on the processes while they
work (`outside`), or on the files before and after (`around`).
"""

import contextlib
import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from chaos_commands import Place
from chaos_process import Process, close_pipe, wait

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
NOBODY = 65534
REFUSED = frozenset({0, 1, 2})
NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS

Inside = Callable[[random.Random], Callable[[], object]]
Outside = Callable[[random.Random, list[Process], float], str]
Around = Callable[[random.Random, Place], AbstractContextManager[str]]


@dataclass(frozen=True)
class Fault:
    """One kind of disturbance."""

    name: str
    inside: Inside = lambda rng: lambda: None
    outside: Outside = lambda rng, processes, usual: ""
    around: Around = lambda rng, place: nullcontext("")
    codes: frozenset[int] = REFUSED  # that the command may end with
    processes: int = 1  # that are started on the same output
    needs_root: bool = False
    only_runs: bool = False  # only for commands that evaluate images
    is_known: bool = False  # the command ends with code 0 all the same


# ---- signals


def _later(number: int) -> Outside:
    def send(rng: random.Random, processes: list[Process], usual: float) -> str:
        moment = time.monotonic() + rng.uniform(0, 1.2) * usual
        wait(*processes, until=lambda: time.monotonic() > moment)
        processes[0].signal(number)
        return f"{signal.Signals(number).name} after {100 * (moment - processes[0].started):.0f} cs"

    return send


def _kill_helper(rng: random.Random, processes: list[Process], usual: float) -> str:
    """Kill one of the processes that the command has started."""
    moment = time.monotonic() + rng.uniform(0.2, 1.0) * usual
    wait(*processes, until=lambda: time.monotonic() > moment)
    helpers = [pid for pid in _group(processes[0].pid) if pid != processes[0].pid]
    if not helpers:
        return "no helper"
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(helpers), signal.SIGKILL)
    return f"one of {len(helpers)} helpers"


def _group(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == leader:
                    found.append(int(entry.name))
    return found


def _stop_reading(rng: random.Random, processes: list[Process], usual: float) -> str:
    moment = time.monotonic() + rng.choice((0.0, rng.uniform(0, 1))) * usual
    wait(*processes, until=lambda: time.monotonic() > moment)
    if processes[0].code is None:
        close_pipe(processes[0], 0)
    return "nobody reads the output"


# ---- limits


def _small_files(rng: random.Random) -> Callable[[], object]:
    most = int(10 ** rng.uniform(2, 6))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def _few_descriptors(rng: random.Random) -> Callable[[], object]:
    most = rng.randrange(4, 48)
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# ---- clock


def _jumping_clock(rng: random.Random) -> Callable[[], object]:
    seed, real = rng.random(), time.time

    def jump() -> None:
        jumps = random.Random(seed)
        years = 365 * 86400

        def now() -> float:
            return real() + jumps.choice((0, 0, -1, 1)) * jumps.uniform(0, 20 * years)

        time.time = now

    return jump


@contextlib.contextmanager
def _odd_times(rng: random.Random, place: Place) -> Iterator[str]:
    for path in place.images.rglob("*.png"):
        moment = rng.choice((0, 1, 4e9, time.time() + rng.uniform(-1e8, 1e8)))
        os.utime(path, (moment, moment))
    yield "files of 1970 to 2096"


# ---- folders


@contextlib.contextmanager
def _full_disk(rng: random.Random, place: Place) -> Iterator[str]:
    """A real file system of few bytes; afterwards it has many."""
    size = int(10 ** rng.uniform(3.7, 6))
    with _mounted(place.output, size):
        yield f"a disk of {size:,} bytes"
        _remount(place.output, "size=64m")


@contextlib.contextmanager
def _read_only(rng: random.Random, place: Place) -> Iterator[str]:
    with _mounted(place.output, 1 << 26):
        _remount(place.output, "ro")
        yield "read-only"
        _remount(place.output, "rw")


_MOUNTS: list[Path] = []


@contextlib.contextmanager
def _mounted(folder: Path, size: int) -> Iterator[None]:
    """Put a file system over a folder, with what was in it; it is taken away with `unmount_all`."""
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
    _MOUNTS.append(folder)
    with contextlib.suppress(OSError):
        for name, content in files.items():
            (folder / name).write_bytes(content)
    yield
    for name, content in files.items():  # as far as it did not fit
        if not (folder / name).exists() or (folder / name).stat().st_size < len(content):
            (folder / name).write_bytes(content)


def _remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def unmount_all() -> None:
    while _MOUNTS:
        subprocess.run(["umount", "--lazy", _MOUNTS.pop()], check=True)


# ---- another user


def _as_nobody(rng: random.Random) -> Callable[[], object]:
    def become() -> None:
        _open_to_others(Path(os.__file__))
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    return become


def _open_to_others(path: Path) -> None:
    """Let other users reach a file below a closed folder, in the view of this process alone."""
    closed = [p for p in path.parents if p != Path("/") and not p.stat().st_mode & 0o001]
    if not closed:
        return
    top = closed[-1]
    inner = next(p for p in [path, *path.parents] if p.parent == top)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NAMESPACE):
        raise OSError(ctypes.get_errno(), "unshare")
    aside = Path("/mnt") if Path("/mnt").is_dir() else Path("/media")
    for words in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "--bind", inner, aside],
        ["mount", "-t", "tmpfs", "-o", "mode=755", "none", top],
        ["mkdir", inner],
        ["mount", "--bind", aside, inner],
    ):
        subprocess.run(words, check=True)


@contextlib.contextmanager
def _others_may_write(rng: random.Random, place: Place) -> Iterator[str]:
    mode = rng.choice((0o755, 0o777))
    for path in (place.folder, place.output):
        path.chmod(mode)
    yield "may write" if mode == 0o777 else "may not write"
    for path in (place.folder, *place.folder.rglob("*")):
        with contextlib.suppress(OSError):
            os.chown(path, 0, 0)


# ---- all

_ANY_END = REFUSED | {130, 143, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT}

FAULTS = (
    Fault("kill", outside=_later(signal.SIGKILL), codes=_ANY_END),
    Fault("kill", outside=_later(signal.SIGKILL), codes=_ANY_END, only_runs=True),
    Fault("terminate", outside=_later(signal.SIGTERM), codes=_ANY_END),
    Fault("interrupt", outside=_later(signal.SIGINT), codes=_ANY_END),
    Fault("kill of a helper", outside=_kill_helper, only_runs=True),
    Fault("closed output", outside=_stop_reading, codes=REFUSED | {141}),
    Fault("full disk (limit of files)", inside=_small_files),
    Fault("full disk", around=_full_disk, needs_root=True),
    Fault("read-only disk", around=_read_only, needs_root=True),
    Fault("few file descriptors", inside=_few_descriptors),
    Fault("jumping clock", inside=_jumping_clock, around=_odd_times, is_known=True),
    Fault("another user", inside=_as_nobody, around=_others_may_write, needs_root=True),
    Fault("two writers", processes=2),
    Fault("two writers", processes=2, only_runs=True),
)


def usable_faults() -> list[Fault]:
    """Return the faults that this user and this system can make."""
    can_mount = IS_ROOT and sys.platform.startswith("linux")
    return [fault for fault in FAULTS if can_mount or not fault.needs_root]
