"""Faults of inputs: images and cached features that change between a killed run and its end."""

import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chaos_commands import Place
from chaos_process import Process, start, wait
from PIL import Image, ImageOps

Act = Callable[[random.Random, Sequence[object], Place, float, dict[str, Any]], list[str]]


@dataclass(frozen=True)
class InputFault:
    """One kind of change; `act` returns what did not hold."""

    name: str
    act: Act
    only_runs: bool = True


def _run(words: Sequence[object], place: Place) -> Process:
    process = start(words, place.folder)
    wait(process)
    return process


def _kill_early(rng: random.Random, words: Sequence[object], place: Place, usual: float) -> None:
    process = start(words, place.folder)
    moment = time.monotonic() + rng.uniform(0.3, 1.5) * usual
    wait(process, until=lambda: time.monotonic() > moment)
    process.signal(signal.SIGKILL)
    wait(process)


def _changed_image(
    rng: random.Random,
    words: Sequence[object],
    place: Place,
    usual: float,
    report: dict[str, Any],
) -> list[str]:
    """An image becomes another one: never a row of each under one name."""
    _kill_early(rng, words, place, usual)
    path = rng.choice(sorted(place.images.rglob("*.png")))
    shutil.copy2(path, aside := place.folder / "aside.png")
    ImageOps.invert(Image.open(path).convert("RGB")).save(path)
    middle = _run(words, place)
    report.update(codes=[middle.code], note=path.name, message=middle.stderr[-200:].strip())
    shutil.copy2(aside, path)
    broken = []
    if middle.code not in (0, 2) or "Traceback" in middle.stderr:
        broken.append(f"code {middle.code}: {middle.stderr[-2000:]}")
    if middle.code == 2 and path.name not in middle.stderr:
        broken.append(f"the image is not named: {middle.stderr[-500:]}")
    if middle.code == 0:  # it had no row before, and has one of the other image now
        back = _run(words, place)
        if back.code != 2:
            broken.append("rows of another image were accepted")
        if (fresh := _run([*words, "--fresh"], place)).code:
            broken.append(f"--fresh: {fresh.stderr[-500:]}")
    return broken


def _unreadable_image(
    rng: random.Random,
    words: Sequence[object],
    place: Place,
    usual: float,
    report: dict[str, Any],
) -> list[str]:
    """An image is truncated for a while: its rows come later."""
    path = rng.choice(sorted(place.images.rglob("*.png")))
    shutil.copy2(path, aside := place.folder / "aside.png")
    path.write_bytes(path.read_bytes()[: rng.randrange(200)])
    middle = _run([*words, "--max-failures", "0.5"], place)
    report.update(codes=[middle.code], note=path.name, message=middle.stderr[-200:].strip())
    shutil.copy2(aside, path)
    named = path.name in middle.stderr
    return [] if middle.code == 1 and named else [f"code {middle.code}: {middle.stderr[-500:]}"]


def _damaged_cache(
    rng: random.Random,
    words: Sequence[object],
    place: Place,
    usual: float,
    report: dict[str, Any],
) -> list[str]:
    """Bytes of cached features change: they are never used."""
    first = _run(words, place)
    shards = [path for path in sorted((place.folder / "cache").rglob("*")) if path.is_file()]
    for path in shards:
        data = bytearray(path.read_bytes())
        if data and rng.random() < 0.5:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif data:
            del data[rng.randrange(len(data)) :]
        path.write_bytes(data)
    fresh = _run([*words, "--fresh"], place)
    report.update(codes=[first.code, fresh.code], note=f"{len(shards)} files")
    return [f"code {p.code}: {p.stderr[-500:]}" for p in (first, fresh) if p.code]


INPUT_FAULTS = (
    InputFault("changed image", _changed_image),
    InputFault("unreadable image", _unreadable_image),
    InputFault("damaged cache", _damaged_cache),
)
