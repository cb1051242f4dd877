"""Rounds of disturbed commands.

    python tests/chaos/chaos_rounds.py FOLDER ROUNDS SEED [FIRST]

A round depends on the seed and its number alone: it chooses a command and a fault, runs the command
with the fault, and then without. It holds when

* the command ended with one of our exit codes, without a traceback, and left no process behind;
* every store that it left is sound (`dtpt doctor RUN`), and what it only read is as it was;
* the command without the fault ends with code 0 and the result of a run that nothing disturbed.

One line of JSON for each round, then one with all counts.
"""

import hashlib
import json
import random
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import conftest  # noqa: F401 - the paths of the modules below

# isort: split
import torch
import torch._dynamo  # the first optimiser would import these two, in every process
import torch.fx.experimental.symbolic_shapes
from chaos_commands import COMMANDS, Command, Place, World
from chaos_faults import Fault, unmount_all, usable_faults
from chaos_inputs import INPUT_FAULTS
from chaos_process import Process, start, until_alone, wait

from dtpt.cli.doctor import examine_run

MOST_PRINTED = 4000


@dataclass
class Bench:
    """What all rounds share."""

    folder: Path
    seed: int
    world: World = field(init=False)
    references: dict[str, tuple[Any, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = World(self.folder / "world")
        self.world.home.mkdir(parents=True)
        self.world.make()
        place = Place(self.folder / "shards").make(self.world)
        for number in (1, 2):
            words = [*COMMANDS[0].words(self.world, place), "--shard", f"{number}/2"]
            done = run(words, place)
            assert done.code == 0, done.stderr
        (self.world.home / "shards").mkdir()
        for path in place.output.glob("*.sqlite"):
            path.rename(self.world.home / "shards" / path.name)
        self.digest = digest_of(self.world.home)

    def reference(self, command: Command) -> tuple[Any, float]:
        """Return the result of an undisturbed command, and the seconds that it took."""
        if command.name not in self.references:
            place = Place(self.folder / f"reference {command.name}").make(self.world)
            command.prepare(self.world, place)
            process = run(command.words(self.world, place), place)
            assert process.code == 0, process.stderr
            seconds = time.monotonic() - process.started
            self.references[command.name] = command.result(place, process.stdout), seconds
        return self.references[command.name]


def run(words: Any, place: Place) -> Process:
    process = start(words, place.folder)
    wait(process)
    return process


def digest_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def one_round(bench: Bench, number: int) -> dict[str, Any]:
    """Disturb one command; return what happened, with what did not hold."""
    rng = random.Random(f"{bench.seed} {number}")
    fault = rng.choice([*usable_faults(), *INPUT_FAULTS])
    commands = [c for c in COMMANDS if c.is_run or not fault.only_runs]
    commands = [c for c in commands if fault.name not in c.other_results]
    command = rng.choice([*commands, *(c for c in commands if c.is_run)])  # twice as often
    expected, usual = bench.reference(command)
    place = Place(bench.folder / f"round {number}").make(bench.world)
    command.prepare(bench.world, place)
    report: dict[str, Any] = {"round": number, "command": command.name, "fault": fault.name}
    words = command.words(bench.world, place)
    try:
        if isinstance(fault, Fault):
            broken = _disturb(fault, words, place, rng=rng, usual=usual, report=report)
        else:
            broken = fault.act(rng, words, place, usual, report)
        broken += _unsound(place)
        again = run(words, place)
        report["again"] = again.code
        if again.code != 0:
            broken.append(f"again: code {again.code}: {again.stderr[-MOST_PRINTED:]}")
        elif command.result(place, again.stdout) != expected:
            broken.append("another result than without the fault")
        broken += _unsound(place)
    finally:
        unmount_all()
    if digest_of(bench.world.home) != bench.digest:
        broken.append("what was only read has changed")
    return {**report, "broken": broken}


def _disturb(
    fault: Fault,
    words: Any,
    place: Place,
    *,
    rng: random.Random,
    usual: float,
    report: dict[str, Any],
) -> list[str]:
    broken = []
    with fault.around(rng, place) as note:
        processes = []
        for _ in range(fault.processes):
            processes.append(start(words, place.folder, before=fault.inside(rng)))
            pause = time.monotonic() + rng.uniform(0, 0.5) * usual
            if len(processes) < fault.processes:
                wait(*processes, until=lambda end=pause: time.monotonic() > end)
        note += fault.outside(rng, processes, usual)
        wait(*processes)
        for process in processes:
            if not until_alone(process):
                broken.append("it left processes")
            if process.code not in fault.codes:
                broken.append(f"code {process.code}")
            if "Traceback" in process.stderr:
                broken.append(f"traceback: {process.stderr[-MOST_PRINTED:]}")
            if process.code == 2 and not process.stderr.strip():
                broken.append("code 2 without a message")
        if fault.is_known and any(process.code for process in processes):
            broken.append(f"code {processes[0].code}: {processes[0].stderr[-MOST_PRINTED:]}")
        if fault.processes > 1 and all(process.code for process in processes):
            broken.append("no writer succeeded")
    codes = [process.code for process in processes]
    report.update(note=note, codes=codes, message=processes[-1].stderr[-200:].strip())
    return broken


def _unsound(place: Place) -> list[str]:
    """Return what is wrong with the stores of a round."""
    found = []
    for path in place.output.rglob("*.sqlite"):
        if not any(part.startswith(".") for part in path.relative_to(place.folder).parts):
            errors = examine_run(path)["errors"]
            found += [text for text in errors if "no run yet" not in text]
    return found


def main(folder: Path, rounds: int, seed: int, first: int) -> int:
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    started, counts, broke = time.monotonic(), Counter[str](), 0
    bench = Bench(folder, seed)
    for number in range(first, first + rounds):
        report = one_round(bench, number)
        broke += bool(report["broken"])
        counts[report["fault"]] += 1
        print(json.dumps(report), flush=True)
    total = {"seed": seed, "rounds": rounds, "held": rounds - broke, "broke": broke}
    print(json.dumps({**total, "faults": counts, "seconds": round(time.monotonic() - started)}))
    return int(broke > 0)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[2:]]
    sys.exit(main(Path(sys.argv[1]), numbers[0], numbers[1], (*numbers, 0)[2]))
