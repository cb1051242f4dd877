"""How `dtpt predict` and `Classifier.predict` keep up: with `dtpt eval`, and with one thread.

`folder`: the same images of a folder with the same method, classified by `dtpt predict --output`
and evaluated by `dtpt eval` without the feature cache, each a process of its own, start included.
`pool`: one classifier in a pool of threads, with the torch threads that it gets by itself and with
one thread set by hand, beside so many other processes that keep a core busy.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measuring
from benchmarks.waiting import beside_busy_processes
from dtpt.data import load_dataset

DATASET = "openmoji/activities"
_POOL = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import dtpt
import torch
workers, images, threads = map(int, sys.argv[1:4])
if threads:
    torch.set_num_threads(threads)
names = ["camel", "key", "owl", "pizza", "umbrella"]
classifier = dtpt.Classifier(dtpt.load_model("pocket", device="cpu"), names, method=sys.argv[4])
image = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
classifier.predict(image)
started = time.perf_counter()
with ThreadPoolExecutor(workers) as pool:
    list(pool.map(classifier.predict, [image] * images))
print(json.dumps(images / (time.perf_counter() - started)))
"""


def predict(
    *, images: int = 1000, method: str = "mean-views", pool: int = 8, busy: int = 4
) -> measuring.Row:
    """Measure images per second of predictions, against evaluation and against one thread.

    Args:
        images: In the folder; the pool gets a tenth as many, at least 16.
        method: With its default settings.
        pool: Python threads that share one classifier.
        busy: Other processes, each of which keeps one core busy while the pool works.
    """
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as name:
        rates = _folder(Path(name), images, method=method)
    tenth = max(16, images // 10)
    with beside_busy_processes(busy):
        by_itself, by_hand = (_pool(pool, tenth, threads=n, method=method) for n in (0, 1))
    return {
        "images": images,
        "method": method,
        "predict_per_second": rates["predict"],
        "eval_per_second": rates["eval"],
        "predict_over_eval": rates["predict"] / rates["eval"],
        "pool_per_second": by_itself,
        "pool_one_thread_per_second": by_hand,
        "pool_over_one_thread": by_itself / by_hand,
        "machine": measuring.machine(),
    }


def _folder(home: Path, images: int, *, method: str) -> dict[str, float]:
    data = load_dataset(DATASET)
    for index in range(images):
        sample = data.samples[index % len(data.samples)]
        path = home / "images" / data.classes[sample.label] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        sample.image.open().save(path)
    (home / "classes.txt").write_text("\n".join(data.classes))
    shared = ["--method", method, "--quiet"]
    folder, classes = str(home / "images"), str(home / "classes.txt")
    answers, run = str(home / "answers.csv"), str(home / "run")
    commands = {
        "eval": ["eval", "--dataset", f"folder:{folder}", "--no-cache", "--output", run],
        "predict": ["predict", folder, "--classes-file", classes, "--output", answers],
    }
    return {name: images / _seconds([*words, *shared]) for name, words in commands.items()}


def _seconds(words: list[str]) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-W", "ignore", "-m", "dtpt", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def _pool(workers: int, images: int, *, threads: int, method: str) -> float:
    words = [*map(str, (workers, images, threads)), method]
    environment = {name: value for name, value in os.environ.items() if name[:4] != "OMP_"}
    command = [sys.executable, "-W", "ignore", "-c", _POOL, *words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    rate: float = json.loads(done.stdout)
    return rate
