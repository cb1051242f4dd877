"""The commands that are disturbed, what each needs beforehand, and what its result is.

Results are compared with those of an undisturbed run of the same command.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handmade import write_five
from probability_runs import write_probabilities
from tiny_runs import draw_images, exported, tiny_clip

from dtpt.clip.loading.save import save_model
from dtpt.runs import open_run

METHODS = "zero-shot,tpt,d-tpt"


@dataclass(frozen=True)
class World:
    """What all commands share and none may change."""

    home: Path

    @property
    def model(self) -> str:
        return f"local-dir:{self.home / 'tiny'}"

    @property
    def images(self) -> Path:
        return self.home / "images"

    def make(self) -> "World":
        save_model(tiny_clip(), self.home / "tiny", tokenizer_json=None)
        draw_images(self.images, per_class=4)
        write_five(self.home / "five")
        write_probabilities(self.home / "labelled", samples=120)
        lines = ["confidence,correct", *(f"0.{k % 90 + 10},{k % 2}" for k in range(400))]
        (self.home / "scores.csv").write_text("\n".join(lines))
        (self.home / "classes.txt").write_text("bird\ncat\ndog\n")
        return self


@dataclass(frozen=True)
class Place:
    """Where one round works: copies that may be disturbed, and the output."""

    folder: Path

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    def make(self, world: World) -> "Place":
        shutil.copytree(world.images, self.images)
        self.output.mkdir()
        return self


@dataclass(frozen=True)
class Command:
    """What is typed, and what has to be there in the end."""

    name: str
    words: Callable[[World, Place], Sequence[object]]
    result: Callable[[Place, str], Any]  # of the place and the standard output
    prepare: Callable[[World, Place], None] = lambda world, place: None
    other_results: frozenset[str] = frozenset()  # faults that change what is computed
    is_run: bool = False  # evaluates images


def _eval(*more: object, command: str = "eval") -> Callable[[World, Place], list[object]]:
    def words(world: World, place: Place) -> list[object]:
        typed = [command, "--model", world.model, "--dataset", "folder:images"]
        typed += ["--views", 4, "--threads", 1, "--rho", 0.5, "--output", "output", *more]
        return typed

    return words


def _rows(place: Place, _: str) -> bytes:
    with open_run(place.output) as run:
        assert run.is_complete
        return exported(run)


def _printed(place: Place, printed: str) -> str:
    return printed


def _report(place: Place, _: str) -> dict[str, str]:
    files = (path for path in place.output.rglob("*.*") if path.suffix in (".md", ".csv", ".tex"))
    return {path.name: re.sub(r"Made by .*", "", path.read_text()) for path in files}


def _calibration(place: Place, _: str) -> Any:
    return json.loads((place.output / "calibration.json").read_text())


def _exports(place: Place, _: str) -> list[str]:
    # a process that is killed while it writes leaves its hidden temporary file behind
    paths = [path for path in sorted(place.output.glob("*.json*")) if path.name[0] != "."]
    texts = [path.read_text() for path in paths]
    return [re.sub(r'"exported": "[^"]*"', "", text) for text in texts]


def _settings(place: Place, _: str) -> Any:
    return json.loads((place.folder / "config" / "models.json").read_text())["models"].keys()


def _shards(world: World, place: Place) -> None:
    for number in (1, 2):
        shutil.copy(world.home / f"shards/shard-{number}-of-2.sqlite", place.output)


def _add_model(world: World, place: Place) -> list[object]:
    return ["models", "add", "mine", world.home / "tiny", "--json"]


COMMANDS = (
    Command("eval", _eval("--method", METHODS, "--workers", 1), _rows, is_run=True),
    Command("eval --workers 2", _eval("--method", METHODS, "--workers", 2), _rows, is_run=True),
    Command(
        "eval --view-workers 1",
        _eval("--method", METHODS, "--workers", 1, "--view-workers", 1),
        _rows,
        is_run=True,
    ),
    Command(
        "eval @auto",
        _eval("--method", "d-tpt@auto=0.9", "--workers", 1, "--no-cache"),
        _rows,
        is_run=True,
        other_results=frozenset({"unreadable image"}),  # λ is selected once, without that image
    ),
    Command(
        "sweep",
        _eval("--method", "d-tpt", "--lambda", "1e5,1e6", "--workers", 1, command="sweep"),
        _rows,
        is_run=True,
    ),
    Command("merge", lambda world, place: ["merge", "output"], _rows, _shards),
    Command(
        "export",
        lambda world, place: [
            "export",
            world.home / "labelled",
            "--format",
            "results,jsonl,clip-benchmark",
            "--output",
            "output",
        ],
        _exports,
    ),
    Command("compare", lambda world, place: ["compare", world.home / "five"], _printed),
    Command(
        "report",
        lambda world, place: [
            "report",
            world.home / "five",
            "--output",
            "output",
            "--resamples",
            100,
        ],
        _report,
    ),
    Command(
        "calibrate",
        lambda world, place: [
            "calibrate",
            world.home / "labelled",
            "--method",
            "zero-shot",
            "--error",
            0.7,
            "--output",
            "output/calibration.json",
        ],
        _calibration,
    ),
    Command(
        "predict",
        lambda world, place: [
            "predict",
            "images/cat/000.png",
            "--model",
            world.model,
            "--classes-file",
            world.home / "classes.txt",
            "--method",
            "tpt",
            "--views",
            4,
            "--threads",
            1,
        ],
        _printed,
    ),
    Command("score", lambda world, place: ["score", world.home / "scores.csv"], _printed),
    Command(
        "datasets check",
        lambda world, place: ["datasets", "check", "folder:images", "--deep"],
        _printed,
    ),
    Command("doctor RUN", lambda world, place: ["doctor", world.home / "labelled"], _printed),
    Command("methods", lambda world, place: ["methods"], _printed),
    Command("models add", _add_model, _settings),
    Command("cache verify", lambda world, place: ["cache", "verify"], lambda place, printed: ""),
    Command("paper", lambda world, place: ["paper"], _printed),
)
