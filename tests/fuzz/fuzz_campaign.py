"""Runs many damaged inputs against one loader, in a child process that may die.

A target holds when every input is loaded or refused with an error of ours. The child has a limit
of processor time for each input (the kernel ends it, also inside of C code), a limit of memory
that it may add, and reports every other outcome. When it is killed, the input is recorded, and a
new child goes on behind it.
"""

import json
import mmap
import os
import random
import re
import resource
import signal
import struct
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TextIO

CPU_SECONDS = 10.0  # for one input; processor time, so that a slow machine changes nothing
REAL_SECONDS = 600  # for one input that waits without working
MORE_BYTES = 512 << 20  # address space that loading may add, whatever a file declares
MOST_DEATHS = 20  # then the campaign ends
COUNTS = struct.Struct("<4Qd")  # number, loaded, refused, broke, slowest
PAGE = resource.getpagesize()


@dataclass(frozen=True)
class Target:
    """One loader: valid files, the kinds of damage, and the function that must survive them."""

    name: str
    valid: Sequence[bytes]
    mutations: Sequence[Callable[[bytes, random.Random], bytes]]
    load: Callable[[bytes, Path], object]  # of the input, with a folder for files
    refusals: tuple[type[Exception], ...]

    def input(self, number: int, *, seed: int) -> bytes:
        """Return input `number`, which depends on seed, target and number alone."""
        rng = random.Random(f"{seed} {self.name} {number}")
        return rng.choice(self.mutations)(rng.choice(self.valid), rng)


@dataclass(frozen=True)
class Replay(Target):
    """A target with inputs that are given."""

    inputs: Sequence[bytes] = ()

    def input(self, number: int, *, seed: int) -> bytes:
        return self.inputs[number]


@dataclass
class Breach:
    """An input that was neither loaded nor refused."""

    number: int
    what: str

    def __str__(self) -> str:
        return f"input {self.number}: {self.what}"


@dataclass
class Outcome:
    """What a campaign found."""

    attempts: int = 0
    loaded: int = 0
    refused: int = 0
    more_bytes: int = 0  # that the process needed beyond what it had before the first input
    slowest: float = 0.0  # processor seconds of one input
    seconds: float = 0.0
    breaches: list[Breach] = field(default_factory=list)

    @property
    def broke(self) -> int:
        return self.attempts - self.loaded - self.refused


def attack(target: Target, count: int, *, seed: int, folder: Path) -> Outcome:
    """Give a target so many inputs; return what happened."""
    outcome, started, first = Outcome(), time.monotonic(), 0
    progress = mmap.mmap(-1, COUNTS.size)  # shared with the child, and left when it dies
    deaths = 0
    while first < count and deaths < MOST_DEATHS:
        report = folder / "report.jsonl"
        report.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            _work(target, range(first, count), seed=seed, report=report, progress=progress)
        _, status, used = os.wait4(child, 0)
        number = _take(outcome, progress, report=report, peak=used.ru_maxrss * 1024)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            first = count
        else:
            deaths += 1
            outcome.attempts += 1
            outcome.breaches.append(Breach(number, _death(status)))
            first = number + 1
    outcome.seconds = time.monotonic() - started
    return outcome


def _death(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"the process ended with code {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    words = {
        signal.SIGPROF: f"hang: more than {CPU_SECONDS:g} s of processor time",
        signal.SIGALRM: f"hang: nothing for {REAL_SECONDS} s",
    }
    return words.get(number, f"the process died of {signal.Signals(number).name}")


def _take(outcome: Outcome, progress: mmap.mmap, *, report: Path, peak: int) -> int:
    """Add what a child counted and reported; return the number of its last input."""
    number, loaded, refused, broke, slowest = COUNTS.unpack(progress[:])
    outcome.loaded, outcome.refused = outcome.loaded + loaded, outcome.refused + refused
    outcome.attempts += loaded + refused + broke
    outcome.slowest = max(outcome.slowest, slowest)
    before, *breaches = map(json.loads, report.read_text().splitlines())
    outcome.more_bytes = max(outcome.more_bytes, peak - before)
    outcome.breaches += [Breach(*entry) for entry in breaches]
    progress[:] = bytes(COUNTS.size)
    return int(number)


def _memory() -> tuple[int, int]:
    """Return address space and resident bytes of this process."""
    size, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(size) * PAGE, int(resident) * PAGE


def _work(
    target: Target, numbers: range, *, seed: int, report: Path, progress: mmap.mmap
) -> NoReturn:
    """Handle the inputs in the child, which never returns."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)  # what libraries print, also from C
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        for data in target.valid:  # what libraries load at their first use is not an input's
            target.load(data, report.parent)
        size, resident = _memory()
        soft = size + MORE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (soft, resource.getrlimit(resource.RLIMIT_AS)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with report.open("w", buffering=1) as stream:
            print(resident, file=stream)
            _handle_all(target, numbers, seed=seed, stream=stream, progress=progress)
        code = 0
    finally:
        os._exit(code)


def _handle_all(
    target: Target, numbers: range, *, seed: int, stream: TextIO, progress: mmap.mmap
) -> None:
    folder, seen, slowest = Path(stream.name).parent, set(), 0.0
    counts = {"loaded": 0, "refused": 0, "broke": 0}
    for number in numbers:
        progress[:] = COUNTS.pack(number, *counts.values(), slowest)
        data = target.input(number, seed=seed)  # an error ends the child: the fuzzer is wrong
        result, what, used = _handle(target, data, folder=folder)
        counts[result] += 1
        slowest = max(slowest, used)
        if result == "broke" and what not in seen:  # the first of a kind
            seen.add(what)
            print(json.dumps([number, what]), file=stream)
    progress[:] = COUNTS.pack(numbers[-1], *counts.values(), slowest)


def _handle(target: Target, data: bytes, *, folder: Path) -> tuple[str, str, float]:
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, REAL_SECONDS)
    started = time.process_time()
    result, what = "broke", ""
    try:
        target.load(data, folder)
        result = "loaded"
    except target.refusals:
        result = "refused"
    except BaseException as error:  # Rust's panics are no Exception
        what = describe(error)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return result, what, time.process_time() - started


def describe(error: BaseException) -> str:
    """Return an error's class, text and the last lines of our own code that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/dtpt/" in f.filename][-2:] or frames[-1:]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(ours))
    text = re.sub(r"\d+", "#", " ".join(str(error).split()))[:120]
    return f"{type(error).__name__} at {where}: {text}"


def summary(target: Target, outcome: Outcome) -> str:
    """Return one line of figures."""
    return (
        f"{target.name}: {outcome.attempts:,} attempts, {outcome.loaded:,} loaded, "
        f"{outcome.refused:,} refused, {outcome.broke} broke; at most "
        f"{max(0, outcome.more_bytes) / 2**20:.0f} MiB more and {outcome.slowest:.2f} s for one "
        f"input; {outcome.seconds:.1f} s"
    )
