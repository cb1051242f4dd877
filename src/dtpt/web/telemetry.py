"""For the operator: one JSON line per request, and counters in Prometheus' text format.

Neither contains anything that a client sent: no names of files or classes, and no addresses other
than those of the routes.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Write = Callable[[str], object]
BOUNDS = ("0.005", "0.025", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "120")
DISCONNECTED = 499  # the client left before a response began


Family = tuple[str, str, Mapping[str, float]]  # name, kind, samples by their labels


class Histogram:
    """Cumulative counts by upper bound, as Prometheus reads them."""

    def __init__(self, bounds: Sequence[str]) -> None:
        self._bounds = (*bounds, "+Inf")
        self.samples: dict[str, float] = defaultdict(int)

    def add(self, labels: str, value: float) -> None:
        for bound in self._bounds:
            self.samples[f'_bucket{{{labels},le="{bound}"}}'] += value <= float(bound)
        self.samples[f"_sum{{{labels}}}"] += value
        self.samples[f"_count{{{labels}}}"] += 1


class Requests:
    """Counts requests and their durations by route; keys are the labels of Prometheus' samples."""

    def __init__(self) -> None:
        self._requests: dict[str, int] = defaultdict(int)
        self._seconds = Histogram(BOUNDS)

    def add(self, route: str, status: int, *, seconds: float) -> None:
        self._requests[f'{{route="{route}",status="{status}"}}'] += 1
        self._seconds.add(f'route="{route}"', seconds)

    def text(
        self, gauges: Mapping[str, int], info: Mapping[str, str], *, further: Iterable[Family] = ()
    ) -> str:
        """Return the counters, present values, and one line whose labels describe the model."""
        labels = ",".join(f'{name}="{escaped(text)}"' for name, text in info.items())
        families: list[Family] = [
            ("dtpt_requests_total", "counter", self._requests),
            ("dtpt_request_seconds", "histogram", self._seconds.samples),
            *further,
            *((name, "gauge", {"": value}) for name, value in gauges.items()),
            ("dtpt_model_info", "gauge", {f"{{{labels}}}": 1}),
        ]
        lines = []
        for name, kind, samples in families:
            lines.append(f"# TYPE {name} {kind}")
            lines += [f"{name}{suffix} {value}" for suffix, value in samples.items()]
        return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Observer:
    """ASGI layer that counts every request and writes one line of JSON about it."""

    def __init__(self, app: ASGIApp, *, requests: Requests, write: Write) -> None:
        self.app = app
        self.requests = requests
        self.write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, sent = time.monotonic(), DISCONNECTED, 0

        async def observed_send(message: Message) -> None:
            nonlocal status, sent
            status = message.get("status", status)
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, observed_send)
        finally:
            seconds = time.monotonic() - started
            route = getattr(scope.get("route"), "path", "other")
            self.requests.add(route, status, seconds=seconds)
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "method": scope["method"] if scope["method"] in ("GET", "POST") else "other",
                "route": route,
                "status": status,
                "code": scope.get("refusal"),
                "seconds": round(seconds, 4),
                "sent": sent,
            }
            self.write(json.dumps(line))
