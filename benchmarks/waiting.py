"""How many images a second one classifier predicts beside other work, by how torch's threads wait.

Threads of OpenMP that wait for each other either spin (`OMP_WAIT_POLICY=ACTIVE`, what torch does by
itself) or sleep (`PASSIVE`, which dtpt sets where nothing else is set). Each variant is a process
of its own that predicts for some seconds with the embedded model, beside so many processes that
keep one core busy each.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

from benchmarks import measuring
from benchmarks.measuring import Listed
from dtpt.machine import usable_cores

_PREDICT = """
import json, sys, time
import numpy as np, torch
import dtpt
threads, views, seconds = map(int, sys.argv[1:])
torch.set_num_threads(threads)
classes = ["camel", "key", "owl", "pizza", "umbrella"]
classifier = dtpt.Classifier(
    dtpt.load_model("pocket", device="cpu"), classes, method="d-tpt", views=views
)
image = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
classifier.predict(image)
started, processor, count = time.monotonic(), time.process_time(), 0
while not count or time.monotonic() < started + seconds:
    classifier.predict(image)
    count += 1
rate = count / (time.monotonic() - started)
print(json.dumps({"pictures_per_second": rate,
                  "processor_ms": 1000 * (time.process_time() - processor) / count}))
"""


def waiting(*, busy: Listed = "0,8", views: int = 16, seconds: int = 10) -> measuring.Row:
    """Measure predictions per second by the waiting policy of threads, beside other processes.

    Args:
        busy: Numbers of other processes, each of which keeps one core busy.
        views: Of each image.
        seconds: Of each measurement.
    """
    rows = []
    threads = sorted({1, usable_cores()})
    for others in measuring.whole_numbers(busy, "--busy", least=0):
        with beside_busy_processes(others):
            for policy, count in product(("ACTIVE", "PASSIVE"), threads):
                found = _predict(policy, threads=count, views=views, seconds=seconds)
                rows.append({"busy": others, "policy": policy, "threads": count, **found})
    return {"views": views, "rows": rows, "machine": measuring.machine()}


@contextmanager
def beside_busy_processes(count: int) -> Iterator[None]:
    """Keep so many cores busy in a block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _predict(policy: str, *, threads: int, views: int, seconds: int) -> measuring.Row:
    words = [sys.executable, "-W", "ignore", "-c", _PREDICT, *map(str, (threads, views, seconds))]
    environment = {name: value for name, value in os.environ.items() if name[:4] != "OMP_"}
    done = subprocess.run(
        words, env={**environment, "OMP_WAIT_POLICY": policy}, stdout=subprocess.PIPE, check=True
    )
    row: measuring.Row = json.loads(done.stdout)
    return row
