"""How long methods without a gradient take on a feature pack, and how it grows.

A synthetic pack (views are noisy unit vectors around the direction of their class) is written and
evaluated by `dtpt eval` in processes of its own, from the pack to results.json. Memory is the
largest sum of the resident memory of all its processes; pages of the pack that the system keeps in
memory for several of them count several times.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks import measuring
from benchmarks.measuring import Row
from benchmarks.memory import BenchmarkError
from dtpt import FeatureModel, write_pack

METHODS = "zero-shot,mean-views,mean-logits,vte,vte:unit,zero,zero:released,mta"
NOISE = 1.5  # length of the noise, where the direction of the class has length 1
PIECE = 100  # images that are drawn at a time


def packs(
    *,
    images: int = 5000,
    views: int = 64,
    classes: int = 1000,
    dimensions: int = 512,
    methods: str = METHODS,
    workers: str = "auto",
) -> Row:
    """Write a pack and evaluate it; then half of its images, and a pack of half the classes."""
    facts = measuring.machine()
    rows = []
    for n, c in ((images, classes), (images // 2, classes), (images, classes // 2)):
        with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as name:
            began = time.perf_counter()
            pack = draw(Path(name), images=n, views=views, classes=c, dimensions=dimensions)
            written = time.perf_counter() - began
            words = ["--dataset", f"pack:{pack}", "--method", methods, "--workers", workers]
            used = measuring.processor_seconds()
            seconds, memory = evaluate([*words, "--output", str(Path(name) / "run"), "--quiet"])
            rows.append(
                {
                    "images": n,
                    "classes": c,
                    "pack_mb": sum(file.stat().st_size for file in pack.iterdir()) / 1e6,
                    "write_seconds": written,
                    "eval_seconds": seconds,
                    "processor_seconds": measuring.processor_seconds() - used,
                    "memory_mb": memory,
                }
            )
    return {"views": views, "dimensions": dimensions, "methods": methods, "rows": rows} | facts


def draw(folder: Path, *, images: int, views: int, classes: int, dimensions: int) -> Path:
    """Write a synthetic pack with text features; return its folder."""
    generator = np.random.default_rng(0)
    directions = generator.normal(size=(classes, dimensions))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    shape, labels = (images, views, dimensions), np.arange(images) % classes
    values = np.memmap(folder / "features", dtype=np.float16, mode="w+", shape=shape)
    for first in range(0, images, PIECE):
        part = slice(first, first + PIECE)
        noise = generator.standard_normal(values[part].shape, dtype=np.float32)
        values[part] = directions[labels[part], None] + NOISE / dimensions**0.5 * noise
    names = [f"class {number}" for number in range(classes)]
    text = FeatureModel(names, torch.from_numpy(directions))
    write_pack(folder / "pack", values, classes=names, labels=labels.tolist(), text=text)
    (folder / "features").unlink()
    return folder / "pack"


def evaluate(words: list[str]) -> tuple[float, float]:
    """Return the seconds of `dtpt eval` and the largest memory of its processes, in MB."""
    began, memory = time.perf_counter(), 0.0
    command = [sys.executable, "-m", "dtpt", "eval", *words]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            memory = max(memory, session_mb(process.pid))
            time.sleep(0.2)
    if process.returncode != 0:
        raise BenchmarkError(f"dtpt eval ended with exit code {process.returncode}.")
    return time.perf_counter() - began, memory


def session_mb(leader: int) -> float:
    """Return the resident memory of the processes of a session; 0 where the system hides it."""
    pages = 0
    for path in Path("/proc").glob("[0-9]*"):
        try:
            session = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[3])
            if session == leader:
                pages += int(path.joinpath("statm").read_text().split()[1])
        except OSError:  # it ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
