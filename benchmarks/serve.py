"""What the HTTP service costs beside the library, and how it behaves under load.

The server runs in its own process (`dtpt serve` with one torch thread), the library in this one.
Every request has an image that was not sent before, so that nothing comes from the cache; both
sides decode it, make its views, encode them and tune.
"""

import http.client
import io
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.measuring import Listed, Row, machine, torch_threads, whole_numbers
from benchmarks.memory import BenchmarkError
from dtpt.clip.loading import load_model
from dtpt.prediction import Classifier

CLASSES = ("fox", "cat face", "wolf", "bicycle", "banana", "ice", "hammer", "sailboat")
METHOD = "d-tpt"
WAITING = 40  # slots of the server's queue, enough for the largest group of clients
ROUNDS = 5
SIZE = 128  # pixels of an image


def serve(
    *,
    model: str = "pocket",
    views: int = 64,
    clients: Listed = "1,4,32",
    predictions: int = 40,
    requests: int = 1000,
    burst: int = 200,
) -> Row:
    """Measure the HTTP service against the library, its memory, and its behaviour under load.

    Args:
        predictions: Per round of library and service, and per client of a group.
        requests: For the memory figure, after warming up; 0 leaves it out.
        burst: Clients that send one request each at the same moment; 0 leaves it out.
    """
    sizes, images = whole_numbers(clients, "--clients"), new_images()
    with torch_threads(1), _server(model) as (process, port):
        about, service = machine(), Service(port, process.pid, views)
        library, over_http = _in_rounds(model, service, predictions=predictions, images=images)
        groups = [_group(service, size, predictions=predictions, images=images) for size in sizes]
        memory, cache = _resident(process.pid), service.cache_bytes()
        for _ in range(requests):
            service.ask(next(images))
        memory, cache = _resident(process.pid) - memory, service.cache_bytes() - cache
        statuses = _burst(service, burst, images=images)
    return {
        "model": model,
        "views": views,
        "library_seconds": library[0],
        "service_seconds": over_http[0],
        "overhead": over_http[0] / library[0] - 1,
        "library_processor_seconds": library[1],
        "service_processor_seconds": over_http[1],
        "processor_overhead": over_http[1] / library[1] - 1,
        "groups": groups,
        "requests": requests,
        "memory_growth": memory,
        "cache_growth": cache,
        "crowd": burst,
        "crowd_statuses": statuses,
        "machine": about,
    }


def new_images() -> Iterator[bytes]:
    """Yield PNGs, no two with the same pixels."""
    pixels = np.full((SIZE, SIZE, 3), 255, np.uint8)
    pixels[SIZE // 4 : 3 * SIZE // 4, SIZE // 4 : 3 * SIZE // 4] = (230, 110, 30)
    number = 0
    while True:
        number += 1
        pixels[0, 0] = [number & 255, number >> 8 & 255, number >> 16 & 255]
        written = io.BytesIO()
        Image.fromarray(pixels).save(written, "PNG", compress_level=1)
        yield written.getvalue()


@contextmanager
def _server(model: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    options = ["--model", model, "--port", "0", "--threads", "1", "--waiting", str(WAITING)]
    process = subprocess.Popen(
        [sys.executable, "-m", "dtpt", "serve", *options, "--device", "cpu", "--quiet"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stderr.readline() if process.stderr else ""
        if "http://" not in line:
            raise BenchmarkError(f"The server did not start: {line.strip()}")
        yield process, int(line.partition("http://")[2].partition("/")[0].rpartition(":")[2])
    finally:
        process.terminate()
        process.communicate(timeout=60)


@dataclass(frozen=True)
class Service:
    """A running server and the settings of its requests."""

    port: int
    process: int
    views: int

    def ask(self, image: bytes) -> int:
        """Send one request and return the status of the response."""
        settings = {"classes": CLASSES, "methods": [METHOD], "views": self.views}
        head = b'--x\r\nContent-Disposition: form-data; name="'
        body = head + b'image"; filename="p"\r\n\r\n' + image + b"\r\n"
        body += head + b'settings"\r\n\r\n' + json.dumps(settings).encode() + b"\r\n--x--\r\n"
        headers = {"Content-Type": "multipart/form-data; boundary=x", "X-Dtpt-Request": "1"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            connection.request("POST", "/v1/predict", body=body, headers=headers)
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def cache_bytes(self) -> int:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as response:
            lines = response.read().decode().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("dtpt_cache_bytes ")))


def _in_rounds(
    model: str, service: Service, *, predictions: int, images: Iterator[bytes]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return wall and processor seconds of one prediction: of the library, and over HTTP."""
    classifier = Classifier(
        load_model(model, device="cpu"), CLASSES, method=METHOD, views=service.views
    )
    classifier.predict(next(images))
    service.ask(next(images))
    library, over_http = [], []
    for _ in range(ROUNDS):
        given = [next(images) for _ in range(2 * predictions)]
        library.append(_round(classifier.predict, time.process_time, images=given[:predictions]))
        spent = lambda: _processor_seconds(service.process)  # noqa: E731
        over_http.append(_round(service.ask, spent, images=given[predictions:]))
    return _best(library), _best(over_http)


def _round(
    predict: Callable[[bytes], object], processor: Callable[[], float], *, images: Sequence[bytes]
) -> tuple[float, float]:
    """Return the median wall time of one prediction and its mean processor time."""
    seconds, started = [], processor()
    for image in images:
        began = time.perf_counter()
        predict(image)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds)), (processor() - started) / len(images)


def _best(rounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(wall for wall, _ in rounds), min(processor for _, processor in rounds)


def _group(service: Service, clients: int, *, predictions: int, images: Iterator[bytes]) -> Row:
    """Let some clients send one request after the other."""
    seconds: list[float] = []
    refused: list[float] = []

    def client(own: Sequence[bytes]) -> None:
        for image in own:
            began = time.perf_counter()
            status = service.ask(image)
            (seconds if status == 200 else refused).append(time.perf_counter() - began)

    given = [[next(images) for _ in range(predictions)] for _ in range(clients)]
    spent = _together(client, given)
    p50, p95 = np.quantile(seconds, (0.5, 0.95)) if seconds else (float("nan"), float("nan"))
    return {
        "clients": clients,
        "answers_per_second": len(seconds) / spent,
        "p50": float(p50),
        "p95": float(p95),
        "refused": len(refused),
    }


def _burst(service: Service, clients: int, *, images: Iterator[bytes]) -> dict[str, int]:
    """Let many clients send one request at the same moment and count the statuses."""
    statuses: Counter[str] = Counter()
    ready = threading.Barrier(max(1, clients))

    def client(image: bytes) -> None:
        ready.wait()
        try:
            status = str(service.ask(image))
        except OSError as error:
            status = type(error).__name__
        statuses[status] += 1

    _together(client, [next(images) for _ in range(clients)])
    return dict(statuses)


def _together(client: Callable[[Any], None], given: Sequence[Any]) -> float:
    """Run one thread per client and return the seconds until all have ended."""
    began = time.perf_counter()
    with ThreadPoolExecutor(max(1, len(given))) as pool:
        list(pool.map(client, given))
    return time.perf_counter() - began


def _resident(process: int) -> int:
    """Return the resident memory of a process in bytes (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processor_seconds(process: int) -> float:
    """Return the processor time that a process has used (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
