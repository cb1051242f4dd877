"""Progress of a run: a bar on a terminal, a line every 30 seconds elsewhere, or nothing."""

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 30.0
MACHINES_SHOWN = 8


class Reporter(Protocol):
    """What a run tells while it works; stages may overlap."""

    def start(self, title: str, total: int, *, done: int) -> None:
        """Begin a stage of `total` images, `done` of which are stored already."""
        ...

    def advance(self, title: str, *, replica: int | str = 0) -> None:
        """One image of a stage is stored; a replica, or a machine of a cluster, did it."""
        ...

    def note(self, text: str) -> None:
        """Tell something that is not progress."""
        ...

    def close(self) -> None:
        """Finish the display."""
        ...


class Silent:
    """Tells nothing."""

    def start(self, title: str, total: int, *, done: int) -> None:
        """Ignore the stage."""

    def advance(self, title: str, *, replica: int | str = 0) -> None:
        """Ignore the image."""

    def note(self, text: str) -> None:
        """Ignore the remark."""

    def close(self) -> None:
        """Do nothing."""


class Quiet(Silent):
    """Tells no progress, but what readers of the numbers should know."""

    def note(self, text: str) -> None:
        """Write one line at once."""
        print(text, file=sys.stderr, flush=True)


@dataclass
class _Stage:
    """How far a stage is."""

    total: int
    done: int
    began: float
    by_replica: Counter[int | str] = field(default_factory=Counter)

    @property
    def new(self) -> int:
        """Images of this session."""
        return self.by_replica.total()

    def rate(self, now: float) -> float:
        """Images per second in this session."""
        return self.new / max(now - self.began, 1e-9)


class Lines:
    """One line per 30 seconds and one at the end of each stage."""

    def __init__(
        self, stream: TextIO | None = None, *, every: float = SECONDS_BETWEEN_LINES
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._every = every
        self._stages: dict[str, _Stage] = {}
        self._told = time.monotonic()

    def start(self, title: str, total: int, *, done: int) -> None:
        """Begin a stage and say what is stored already."""
        self._stages[title] = _Stage(total, done, time.monotonic())
        if done:
            self.note(f"{title}: {done} of {total} images are stored already")

    def advance(self, title: str, *, replica: int | str = 0) -> None:
        """Count an image and tell when it is time or the stage is over."""
        stage = self._stages[title]
        stage.done += 1
        stage.by_replica[replica] += 1
        now = time.monotonic()
        if now - self._told >= self._every or stage.done == stage.total:
            self._told = now
            self.note(_line(title, stage, now=now))

    def note(self, text: str) -> None:
        """Write one line at once."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing."""


def _line(title: str, stage: _Stage, *, now: float) -> str:
    rate = stage.rate(now)
    by_replica = f" ({_shares(stage.by_replica)})" if len(stage.by_replica) > 1 else ""
    left = (stage.total - stage.done) / max(rate, 1e-9)
    ending = "" if stage.done == stage.total else f", {format_seconds(left)} left"
    return f"{title}: {stage.done}/{stage.total} images, {rate:.2f} images/s{by_replica}{ending}"


def _shares(counts: Counter[int | str]) -> str:
    """Say who did how many: replicas in their order, or machines by name, the busiest first."""
    numbers = sorted(who for who in counts if isinstance(who, int))
    if numbers:
        return " + ".join(str(counts[number]) for number in numbers) + " by replica"
    shown = [f"{who} {count}" for who, count in counts.most_common(MACHINES_SHOWN)]
    others = len(counts) - len(shown)
    return ", ".join(shown) + (f", {others} more machines" if others else "")


class Bar:
    """A bar with images per second and time left for each stage."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._progress: Progress = Progress(
            TextColumn("{task.description}", markup=False),  # brackets of names stay
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._stages: dict[str, tuple[TaskID, _Stage]] = {}
        self._progress.start()

    def start(self, title: str, total: int, *, done: int) -> None:
        """Add a bar for the stage."""
        task = self._progress.add_task(title, total=total, completed=done, rate="")
        self._stages[title] = (task, _Stage(total, done, time.monotonic()))

    def advance(self, title: str, *, replica: int | str = 0) -> None:
        """Move a bar by one image."""
        task, stage = self._stages[title]
        stage.by_replica[replica] += 1
        noun = "machines" if isinstance(replica, str) else "replicas"
        copies = f", {len(stage.by_replica)} {noun}" if len(stage.by_replica) > 1 else ""
        rate = f"{stage.rate(time.monotonic()):.1f} images/s{copies}"
        self._progress.update(task, advance=1, rate=rate)

    def note(self, text: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the bars as they are."""
        self._progress.stop()


def make_reporter(*, quiet: bool) -> Reporter:
    """Choose the display for stderr."""
    if quiet:
        return Quiet()
    return Bar() if sys.stderr.isatty() else Lines()


def format_seconds(seconds: float) -> str:
    """Write a duration for people: 45 s, 12 min, 3.5 h.

    Example:
        >>> format_seconds(750)
        '12 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
