"""Progress of a run: a bar on a terminal, a line every 30 seconds elsewhere, or nothing."""

import sys
import time
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import TaskID

SECONDS_BETWEEN_LINES = 30.0


class Reporter(Protocol):
    """What the runner tells while it works."""

    def start(self, title: str, total: int, *, done: int) -> None:
        """Begin a stage of `total` images, `done` of which are stored already."""
        ...

    def advance(self) -> None:
        """One image is stored."""
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

    def advance(self) -> None:
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


class Lines:
    """One line per 30 seconds and one at the end of each stage."""

    def __init__(
        self, stream: TextIO | None = None, *, every: float = SECONDS_BETWEEN_LINES
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._every = every
        self._title = ""
        self._total = self._done = self._new = 0
        self._began = self._told = 0.0

    def start(self, title: str, total: int, *, done: int) -> None:
        """Begin a stage and say what is stored already."""
        self._title, self._total, self._done, self._new = title, total, done, 0
        self._began = self._told = time.monotonic()
        if done:
            self.note(f"{title}: {done} of {total} images are stored already")

    def advance(self) -> None:
        """Count an image and tell when it is time or the stage is over."""
        self._done += 1
        self._new += 1
        now = time.monotonic()
        if now - self._told >= self._every or self._done == self._total:
            self._told = now
            self.note(self._line(now - self._began))

    def _line(self, seconds: float) -> str:
        rate = self._new / max(seconds, 1e-9)
        left = (self._total - self._done) / max(rate, 1e-9)
        ending = "" if self._done == self._total else f", {format_seconds(left)} left"
        return f"{self._title}: {self._done}/{self._total} images, {rate:.2f} images/s{ending}"

    def note(self, text: str) -> None:
        """Write one line at once."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Do nothing."""


class Bar:
    """A bar with images per second and time left."""

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
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task: TaskID | None = None
        self._began, self._new = 0.0, 0
        self._progress.start()

    def start(self, title: str, total: int, *, done: int) -> None:
        """Add a bar for the stage."""
        self._began, self._new = time.monotonic(), 0
        self._task = self._progress.add_task(title, total=total, completed=done, rate="")

    def advance(self) -> None:
        """Move the bar by one image."""
        self._new += 1
        if self._task is not None:
            rate = self._new / max(time.monotonic() - self._began, 1e-9)
            self._progress.update(self._task, advance=1, rate=f"{rate:.1f} images/s")

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
