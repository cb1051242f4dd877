"""For the operator: one JSON line per request, and counters in Prometheus' text format.

Neither contains anything that a client sent: no names of files or classes, and no addresses other
than those of the routes.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Write = Callable[[str], object]
SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, float("inf"))
DISCONNECTED = 499  # the client left before a response began


class Requests:
    """Counts requests and their durations by route."""

    def __init__(self) -> None:
        self._by_status: Counter[tuple[str, int]] = Counter()
        self._within: dict[str, Counter[float]] = {}
        self._sum: dict[str, float] = {}

    def add(self, route: str, status: int, *, seconds: float) -> None:
        self._by_status[route, status] += 1
        within = self._within.setdefault(route, Counter())
        within.update(bound for bound in SECONDS if seconds <= bound)
        self._sum[route] = self._sum.get(route, 0.0) + seconds

    def text(self, gauges: Mapping[str, int], info: Mapping[str, str]) -> str:
        """Return the counters, present values, and one line whose labels describe the model."""
        lines = ["# TYPE dtpt_requests_total counter"]
        for (route, status), count in sorted(self._by_status.items()):
            lines.append(f'dtpt_requests_total{{route="{route}",status="{status}"}} {count}')
        lines.append("# TYPE dtpt_request_seconds histogram")
        for route, within in sorted(self._within.items()):
            for bound in SECONDS:
                label = "+Inf" if bound == float("inf") else f"{bound:g}"
                name = f'dtpt_request_seconds_bucket{{route="{route}",le="{label}"}}'
                lines.append(f"{name} {within[bound]}")
            lines.append(f'dtpt_request_seconds_sum{{route="{route}"}} {self._sum[route]:.6f}')
            lines.append(f'dtpt_request_seconds_count{{route="{route}"}} {within[float("inf")]}')
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in info.items())
        lines += ["# TYPE dtpt_model_info gauge", f"dtpt_model_info{{{labels}}} 1"]
        return "\n".join(lines) + "\n"


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
