"""For the operator: one JSON line per request, and counters in Prometheus' text format.

Neither contains anything that a client sent: no names of files or classes, and no addresses other
than those of the routes.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Write = Callable[[str], object]
SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # of the histogram
DISCONNECTED = 499  # the client left before a response began


class Requests:
    """Counts requests and their durations by route."""

    def __init__(self) -> None:
        self._by_status: Counter[tuple[str, int]] = Counter()
        self._within: dict[str, Counter[float]] = {}
        self._seconds: Counter[str] = Counter()

    def add(self, route: str, status: int, *, seconds: float) -> None:
        self._by_status[route, status] += 1
        within = self._within.setdefault(route, Counter())
        within.update(bound for bound in (*SECONDS, float("inf")) if seconds <= bound)
        self._seconds[route] += seconds  # type: ignore[assignment]

    def lines(self) -> Iterable[str]:
        yield "# TYPE dtpt_requests_total counter"
        for (route, status), count in sorted(self._by_status.items()):
            yield f'dtpt_requests_total{{route="{route}",status="{status}"}} {count}'
        yield "# TYPE dtpt_request_seconds histogram"
        for route, within in sorted(self._within.items()):
            for bound in (*SECONDS, float("inf")):
                text = "+Inf" if bound == float("inf") else f"{bound:g}"
                sample = f'dtpt_request_seconds_bucket{{route="{route}",le="{text}"}}'
                yield f"{sample} {within[bound]}"
            yield f'dtpt_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}'
            yield f'dtpt_request_seconds_count{{route="{route}"}} {within[float("inf")]}'


def gauges(values: Mapping[str, int], labels: Mapping[str, str]) -> Iterable[str]:
    r"""Yield present values, and one line whose labels describe the model.

    Example:
        >>> print("\n".join(gauges({"dtpt_slots": 9}, {"name": "pocket"})))
        # TYPE dtpt_slots gauge
        dtpt_slots 9
        # TYPE dtpt_model_info gauge
        dtpt_model_info{name="pocket"} 1
    """
    for name, value in values.items():
        yield f"# TYPE {name} gauge"
        yield f"{name} {value}"
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    yield "# TYPE dtpt_model_info gauge"
    yield f"dtpt_model_info{{{pairs}}} 1"


def _escaped(text: str) -> str:
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
