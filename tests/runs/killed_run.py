"""Kills a run again and again at random moments, from a process that is warm already.

Importing torch takes seconds, so every run is forked from here, where it is loaded; no thread has
been started before. As many runs are killed at work on images, some more while they start.

    python killed_run.py IMAGES OUTPUT KILLS
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # the first optimiser would import these two, in every run
import torch.fx.experimental.symbolic_shapes
from tiny_runs import TINY_OPTIONS, WITH_STREAMS, tiny_clip

from dtpt.data import load_dataset
from dtpt.errors import RunError
from dtpt.runs import EvalOptions, open_run, run_options, schedule
from dtpt.runs.progress import Silent


class Signal(Silent):
    """Writes a byte to a pipe before the first image and after each."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def start(self, title: str, total: int, *, done: int) -> None:
        os.write(self._pipe, b"!")

    def advance(self, title: str, *, worker: int | str = 0) -> None:
        os.write(self._pipe, b"!")


def fork(work: Callable[[Signal], None]) -> tuple[int, int]:
    """Start a run; return its process id and the pipe to which it writes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(Signal(write))
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    return child, read


def end(child: int, pipe: int) -> int:
    os.close(pipe)
    return os.waitpid(child, 0)[1]


def finished(output: Path, images: int) -> float:
    """Which fraction of the rows is stored."""
    try:
        with open_run(output) as run:
            counts = run.counts().values()
            return sum(ok for ok, _ in counts) / (images * len(counts))
    except RunError:
        return 0.0


def main() -> None:
    images, output, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    model = tiny_clip()
    dataset = load_dataset(f"folder:{images}")
    schedule.ROWS_OF_PART = 3
    chosen = {**TINY_OPTIONS, **WITH_STREAMS}
    options = EvalOptions(output=output, dataset=(dataset.name,), **chosen)
    generator = random.Random(0)

    def work(reporter: Signal) -> None:
        run_options(options, model=model, datasets=[dataset], reporter=reporter).close()

    for kill in range(kills):
        if kill % 5 == 0:  # while the store is opened and the run is planned
            child, pipe = fork(work)
            time.sleep(generator.uniform(0, 0.05))
            os.kill(child, signal.SIGKILL)
            end(child, pipe)
        child, pipe = fork(work)
        os.read(pipe, 1)
        # whatever the machine's speed: the images shall last for all kills
        if finished(output, len(dataset)) < 0.7 * kill / kills:
            os.read(pipe, 1)
        time.sleep(generator.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        if not os.WIFSIGNALED(end(child, pipe)):
            sys.exit(f"the run ended after {kill} kills only")
    sys.exit(os.waitstatus_to_exitcode(end(*fork(work))))


if __name__ == "__main__":
    main()
