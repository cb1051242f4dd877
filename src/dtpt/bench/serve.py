"""`dtpt bench serve`: what the HTTP service costs beside the library, and how it stands a crowd.

The server runs in its own process (`dtpt serve` with one torch thread), the library in this one.
Every question brings a picture that was not asked about before, so that nothing is answered from
memory; both sides decode it, make its views, encode them and tune.
"""

import http.client
import io
import json as json_format
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from dtpt.bench.machine import Machine, describe_machine, torch_threads
from dtpt.bench.options import Json, whole_numbers
from dtpt.errors import BenchmarkError

CLASSES = ("fox", "cat face", "wolf", "bicycle", "banana", "ice", "hammer", "sailboat")
METHOD = "d-tpt"
WAITING = 40  # places of the server, enough for the largest group of clients below the crowd
ROUNDS = 5
START = "from dtpt.cli.main import run; run()"


@dataclass(frozen=True)
class Group:
    """What some clients saw that asked at the same time, each its next question after an answer.

    Attributes:
        clients: How many.
        answers_per_second: Of all together.
        p50: Median latency in seconds.
        p95: 95 % of the answers came within this time.
        refused: Answers 503.
    """

    clients: int
    answers_per_second: float
    p50: float
    p95: float
    refused: int


@dataclass(frozen=True)
class Measurement:
    """What was measured.

    Attributes:
        model: Name.
        views: Per picture.
        library_seconds: Of one answer of `Classifier.predict`, median of the best round.
        service_seconds: The same over HTTP with one client.
        overhead: Service divided by library, minus 1.
        library_processor_seconds: Processor time of one answer, best round.
        service_processor_seconds: The same of the server's process.
        processor_overhead: Service divided by library, minus 1.
        groups: By number of clients.
        requests: Sent for the memory figure.
        memory_growth: Bytes by which the server's resident memory grew with them.
        cache_growth: Bytes by which its bounded cache of features grew.
        crowd: Clients that asked at the same moment, once each.
        crowd_statuses: What they were answered.
        machine: On which.
    """

    model: str
    views: int
    library_seconds: float
    service_seconds: float
    overhead: float
    library_processor_seconds: float
    service_processor_seconds: float
    processor_overhead: float
    groups: list[Group]
    requests: int
    memory_growth: int
    cache_growth: int
    crowd: int
    crowd_statuses: dict[str, int]
    machine: Machine


def bench_serve(
    *,
    model: str = "pocket",
    views: int = 64,
    clients: str = "1,4,32",
    answers: int = 40,
    requests: int = 1000,
    crowd: int = 200,
    json: Json = False,
) -> None:
    """Measure the HTTP service against the library, its memory, and a crowd of clients.

    Args:
        model: See `dtpt models`.
        views: Per picture, the original included.
        clients: Sizes of the groups that ask at the same time.
        answers: Per round of library and service, and per client of a group.
        requests: For the memory figure, after warming up; 0 leaves it out.
        crowd: Clients that ask at the same moment, once each; 0 leaves it out.
        json: Print JSON.
    """
    sizes = whole_numbers(clients, "--clients")
    with torch_threads(1):
        found = measure(model, views, sizes=sizes, answers=answers, requests=requests, crowd=crowd)
    if json:
        print(json_format.dumps(asdict(found), indent=1))
        return
    print(
        f"One answer takes {1000 * found.library_seconds:.1f} ms by the library and "
        f"{1000 * found.service_seconds:.1f} ms over HTTP ({100 * found.overhead:+.0f} %; "
        f"processor time {100 * found.processor_overhead:+.0f} %)."
    )
    for group in found.groups:
        print(
            f"{group.clients} clients: {group.answers_per_second:.1f} answers/s, median "
            f"{1000 * group.p50:.0f} ms, 95 % within {1000 * group.p95:.0f} ms, "
            f"{group.refused} times 503"
        )
    print(
        f"{found.requests} requests: memory {found.memory_growth / 1e6:+.1f} MB, of which the "
        f"bounded cache {found.cache_growth / 1e6:+.1f} MB"
    )
    print(f"{found.crowd} clients at once were answered: {found.crowd_statuses}.")


def measure(
    model: str, views: int, *, sizes: Sequence[int], answers: int, requests: int, crowd: int
) -> Measurement:
    """Start a server and measure everything."""
    pictures = different_pictures()
    with _server(model) as (process, port):
        service = _Service(port, process.pid, views)
        library, over_http = _in_rounds(model, service, answers=answers, pictures=pictures)
        groups = [_group(service, size, answers=answers, pictures=pictures) for size in sizes]
        memory, cache = _resident(process.pid), service.cache_bytes()
        for _ in range(requests):
            service.ask(next(pictures))
        memory, cache = _resident(process.pid) - memory, service.cache_bytes() - cache
        statuses = _crowd(service, crowd, pictures=pictures)
    return Measurement(
        model=model,
        views=views,
        library_seconds=library[0],
        service_seconds=over_http[0],
        overhead=over_http[0] / library[0] - 1,
        library_processor_seconds=library[1],
        service_processor_seconds=over_http[1],
        processor_overhead=over_http[1] / library[1] - 1,
        groups=groups,
        requests=requests,
        memory_growth=memory,
        cache_growth=cache,
        crowd=crowd,
        crowd_statuses=statuses,
        machine=describe_machine(),
    )


def different_pictures(size: int = 128) -> Iterator[bytes]:
    """Yield PNGs, no two with the same pixels; making one costs the server nothing.

    Example:
        >>> pictures = different_pictures()
        >>> next(pictures) == next(pictures)
        False
    """
    pixels = np.full((size, size, 3), 255, np.uint8)
    pixels[size // 4 : 3 * size // 4, size // 4 : 3 * size // 4] = (230, 110, 30)
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
    process = subprocess.Popen(  # noqa: S603 (our own command)
        [sys.executable, "-c", START, "serve", *options, "--device", "cpu", "--quiet"],
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
class _Service:
    """A running server and what it is asked."""

    port: int
    process: int
    views: int

    def ask(self, picture: bytes) -> int:
        """Send one question and return the status of the answer."""
        settings = {"classes": CLASSES, "methods": [METHOD], "views": self.views}
        head = b'--x\r\nContent-Disposition: form-data; name="'
        body = head + b'picture"; filename="p"\r\n\r\n' + picture + b"\r\n"
        body += (
            head + b'settings"\r\n\r\n' + json_format.dumps(settings).encode() + b"\r\n--x--\r\n"
        )
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
        """Return how much memory the server's cache holds."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("dtpt_cache_bytes ")))


def _in_rounds(
    model: str, service: _Service, *, answers: int, pictures: Iterator[bytes]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return wall and processor seconds of one answer: of the library, and over HTTP."""
    from dtpt.clip.loading import load_model
    from dtpt.prediction import Classifier

    classifier = Classifier(
        load_model(model, device="cpu"), CLASSES, method=METHOD, views=service.views
    )
    classifier.predict(next(pictures))
    service.ask(next(pictures))
    library, over_http = [], []
    for _ in range(ROUNDS):
        seconds, started = [], time.process_time()
        for picture in [next(pictures) for _ in range(answers)]:
            begun = time.perf_counter()
            classifier.predict(picture)
            seconds.append(time.perf_counter() - begun)
        library.append((float(np.median(seconds)), (time.process_time() - started) / answers))
        seconds, started = [], _processor_seconds(service.process)
        for picture in [next(pictures) for _ in range(answers)]:
            begun = time.perf_counter()
            service.ask(picture)
            seconds.append(time.perf_counter() - begun)
        spent = _processor_seconds(service.process) - started
        over_http.append((float(np.median(seconds)), spent / answers))
    return _best(library), _best(over_http)


def _best(rounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(wall for wall, _ in rounds), min(processor for _, processor in rounds)


def _group(service: _Service, clients: int, *, answers: int, pictures: Iterator[bytes]) -> Group:
    """Let some clients ask one question after the other."""
    given = [[next(pictures) for _ in range(answers)] for _ in range(clients)]
    seconds: list[float] = []
    refused: list[float] = []

    def client(own: Sequence[bytes]) -> None:
        for picture in own:
            begun = time.perf_counter()
            status = service.ask(picture)
            (seconds if status == 200 else refused).append(time.perf_counter() - begun)

    crowd = [threading.Thread(target=client, args=(own,)) for own in given]
    begun = time.perf_counter()
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    spent = time.perf_counter() - begun
    p50, p95 = np.quantile(seconds, (0.5, 0.95)) if seconds else (float("nan"), float("nan"))
    return Group(clients, len(seconds) / spent, float(p50), float(p95), len(refused))


def _crowd(service: _Service, clients: int, *, pictures: Iterator[bytes]) -> dict[str, int]:
    """Let many clients ask at the same moment and count what they are told."""
    statuses: Counter[str] = Counter()
    together = threading.Barrier(max(1, clients))

    def client(picture: bytes) -> None:
        together.wait()
        try:
            status = str(service.ask(picture))
        except OSError as error:
            status = type(error).__name__
        statuses[status] += 1

    crowd = [threading.Thread(target=client, args=(next(pictures),)) for _ in range(clients)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    return dict(statuses)


def _resident(process: int) -> int:
    """Return the resident memory of a process in bytes (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _processor_seconds(process: int) -> float:
    """Return the processor time that a process has used (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
