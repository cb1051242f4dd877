"""What an operator sees: one JSON line per request, and numbers in Prometheus' text format.

Neither contains anything that a client sent: no names of files or classes, no addresses other than
those of `app.py`.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Write = Callable[[str], object]
SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # of the histogram
GONE = 499  # the client left before an answer began


class Requests:
    """Counts requests and how long they took."""

    def __init__(self) -> None:
        self.by_status: Counter[tuple[str, int]] = Counter()
        self._within: dict[str, Counter[float]] = {}
        self._total: dict[str, float] = {}

    def add(self, route: str, status: int, *, seconds: float) -> None:
        """Count one request."""
        self.by_status[route, status] += 1
        within = self._within.setdefault(route, Counter())
        within.update(bound for bound in (*SECONDS, float("inf")) if seconds <= bound)
        self._total[route] = self._total.get(route, 0.0) + seconds

    def lines(self) -> Iterable[str]:
        """Yield the counters as Prometheus reads them."""
        yield "# TYPE dtpt_requests_total counter"
        for (route, status), count in sorted(self.by_status.items()):
            yield f'dtpt_requests_total{{route="{route}",status="{status}"}} {count}'
        yield "# TYPE dtpt_request_seconds histogram"
        for route, within in sorted(self._within.items()):
            for bound in (*SECONDS, float("inf")):
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                sample = f'dtpt_request_seconds_bucket{{route="{route}",le="{shown}"}}'
                yield f"{sample} {within[bound]}"
            yield f'dtpt_request_seconds_sum{{route="{route}"}} {self._total[route]:.6f}'
            yield f'dtpt_request_seconds_count{{route="{route}"}} {within[float("inf")]}'


def gauges(values: Mapping[str, float], labels: Mapping[str, str]) -> Iterable[str]:
    r"""Yield present values, and one line whose labels describe the model.

    Example:
        >>> print("\n".join(gauges({"dtpt_places": 9}, {"name": "pocket"})))
        # TYPE dtpt_places gauge
        dtpt_places 9
        # TYPE dtpt_model_info gauge
        dtpt_model_info{name="pocket"} 1
    """
    for name, value in values.items():
        yield f"# TYPE {name} gauge"
        yield f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
    written = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    yield "# TYPE dtpt_model_info gauge"
    yield f"dtpt_model_info{{{written}}} 1"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Observer:
    """A layer around the service that counts and logs every request.

    Args:
        app: the service.
        requests: where it is counted.
        write: takes one line of JSON.
    """

    def __init__(self, app: ASGIApp, *, requests: Requests, write: Write) -> None:
        self.app = app
        self.requests = requests
        self.write = write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, then write down how it went."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, sent = time.monotonic(), GONE, 0

        async def sending(message: Message) -> None:
            nonlocal status, sent
            status = message.get("status", status)
            sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, sending)
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
