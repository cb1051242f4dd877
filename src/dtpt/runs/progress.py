"""Progress of a run: a bar on a terminal, a line every 30 seconds elsewhere, or nothing."""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 30.0
NODES_SHOWN = 8


class Reporter:
    """Shows the progress of a run, stages of which may overlap; this one shows notes alone."""

    def begin(self, total: int, *, done: int) -> None:
        """Announce the images of all stages together."""

    def start(self, title: str, total: int, *, done: int) -> None:
        """Begin a stage of `total` images, `done` of which are stored already."""

    def advance(self, title: str, *, worker: int | str = 0) -> None:
        """Count one stored image of a stage; `worker` is a number, or a node of a cluster."""

    def note(self, text: str) -> None:
        """Show a line that is not progress."""
        print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the display."""


class Silent(Reporter):
    """No output."""

    def note(self, text: str) -> None:
        pass


@dataclass
class _Stage:
    total: int
    done: int
    began: float
    by_worker: Counter[int | str] = field(default_factory=Counter)  # in this session

    def rate(self, now: float) -> float:
        return self.by_worker.total() / max(now - self.began, 1e-9)


class Lines(Reporter):
    """One line per 30 seconds and one at the end of each stage."""

    def __init__(
        self, stream: TextIO | None = None, *, every: float = SECONDS_BETWEEN_LINES
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._every = every
        self._stages: dict[str, _Stage] = {}
        self._last_line = time.monotonic()

    def start(self, title: str, total: int, *, done: int) -> None:
        self._stages[title] = _Stage(total, done, time.monotonic())
        if done:
            self.note(f"{title}: {done} of {total} images are stored already")

    def advance(self, title: str, *, worker: int | str = 0) -> None:
        stage = self._stages[title]
        stage.done += 1
        stage.by_worker[worker] += 1
        now = time.monotonic()
        if now - self._last_line >= self._every or stage.done == stage.total:
            self._last_line = now
            self.note(_line(title, stage, now=now))

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


def _line(title: str, stage: _Stage, *, now: float) -> str:
    rate = stage.rate(now)
    by_worker = f" ({_by_worker(stage.by_worker)})" if len(stage.by_worker) > 1 else ""
    left = (stage.total - stage.done) / max(rate, 1e-9)
    ending = "" if stage.done == stage.total else f", {format_seconds(left)} left"
    return f"{title}: {stage.done}/{stage.total} images, {rate:.2f} images/s{by_worker}{ending}"


def _by_worker(counts: Counter[int | str]) -> str:
    """Return how many images each worker did, in their order, or each node, the busiest first."""
    numbers = sorted(who for who in counts if isinstance(who, int))
    if numbers:
        return " + ".join(str(counts[number]) for number in numbers) + " by worker"
    shown = [f"{who} {count}" for who, count in counts.most_common(NODES_SHOWN)]
    others = len(counts) - len(shown)
    return ", ".join(shown) + (f", {others} more nodes" if others else "")


class Bar(Reporter):
    """A bar with images per second and time left for each stage."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        from dtpt.terminal import Console

        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False),  # brackets of names stay
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            redirect_stdout=False,  # rich would take sequences in what others print for its own
            redirect_stderr=False,
        )
        self._stages: dict[str, tuple[TaskID, _Stage]] = {}
        self._progress.start()

    def start(self, title: str, total: int, *, done: int) -> None:
        task = self._progress.add_task(title, total=total, completed=done, rate="")
        self._stages[title] = (task, _Stage(total, done, time.monotonic()))

    def advance(self, title: str, *, worker: int | str = 0) -> None:
        task, stage = self._stages[title]
        stage.by_worker[worker] += 1
        noun = "nodes" if isinstance(worker, str) else "workers"
        copies = f", {len(stage.by_worker)} {noun}" if len(stage.by_worker) > 1 else ""
        rate = f"{stage.rate(time.monotonic()):.1f} images/s{copies}"
        self._progress.update(task, advance=1, rate=rate)

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, crop=False)

    def close(self) -> None:
        self._progress.stop()


class Joined(Reporter):
    """Another display, with all stages of a run as one."""

    def __init__(self, inner: Reporter, title: str) -> None:
        self._inner, self._title = inner, title

    def begin(self, total: int, *, done: int) -> None:
        self._inner.start(self._title, total, done=done)

    def advance(self, title: str, *, worker: int | str = 0) -> None:  # noqa: ARG002
        self._inner.advance(self._title, worker=worker)

    def note(self, text: str) -> None:
        self._inner.note(text)

    def close(self) -> None:
        self._inner.close()


def make_reporter(*, quiet: bool) -> Reporter:
    if quiet:
        return Reporter()
    return Bar() if sys.stderr.isatty() else Lines()


def format_seconds(seconds: float) -> str:
    """Format a duration: 45 s, 12 min, 3.5 h.

    Example:
        >>> format_seconds(750)
        '12 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
