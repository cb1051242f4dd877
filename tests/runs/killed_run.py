"""Kills a run again and again at random moments, from a process that is warm already.

Importing torch takes seconds, so every victim is forked from here, where it is loaded; no thread
has been started before. A hundred victims are killed at work on images, some more while they start.

    python killed_run.py PICTURES OUTPUT KILLS
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo  # the first optimiser would import these two, in every victim
import torch.fx.experimental.symbolic_shapes
from tiny_runs import TINY_OPTIONS, tiny_clip

from dtpt.data import load_dataset
from dtpt.errors import RunError
from dtpt.runs import EvalOptions, open_run, run_options
from dtpt.runs.progress import Silent


class Whistle(Silent):
    """Tells the killer through a pipe that the first image is about to be evaluated."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def start(self, title: str, total: int, *, done: int) -> None:
        os.write(self._pipe, b"!")


def fork(work: Callable[[Whistle], None]) -> tuple[int, int]:
    """Start a victim; return its process id and the pipe on which it whistles."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(Whistle(write))
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    return child, read


def end(child: int, pipe: int) -> int:
    os.close(pipe)
    return os.waitpid(child, 0)[1]


def finished(output: Path) -> int:
    """How many images have all their rows."""
    try:
        with open_run(output) as run:
            return min(ok for ok, _ in run.counts().values())
    except RunError:
        return 0


def main() -> None:
    pictures, output, kills = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    model = tiny_clip()
    dataset = load_dataset(f"folder:{pictures}")
    options = EvalOptions(output=output, dataset=(dataset.name,), **TINY_OPTIONS)
    generator = random.Random(0)
    window = 0.05

    def work(whistle: Whistle) -> None:
        run_options(options, model=model, datasets=[dataset], reporter=whistle).close()

    for hit in range(kills):
        if hit % 5 == 0:  # while the store is opened and the run is planned
            child, pipe = fork(work)
            time.sleep(generator.uniform(0, 0.1))
            os.kill(child, signal.SIGKILL)
            end(child, pipe)
        child, pipe = fork(work)
        os.read(pipe, 1)
        time.sleep(generator.uniform(0, window))
        os.kill(child, signal.SIGKILL)
        if not os.WIFSIGNALED(end(child, pipe)):
            sys.exit(f"the run ended after {hit} kills only")
        # whatever the machine's speed: the work shall last for all kills
        ahead = finished(output) / len(dataset) > 0.7 * hit / kills
        window = window * 0.7 if ahead else min(window * 1.3, 1.0)
    code = os.waitstatus_to_exitcode(end(*fork(work)))
    print(f"{kills} kills, last run ended with {code}")
    sys.exit(code)


if __name__ == "__main__":
    main()
