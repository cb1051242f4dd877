"""A server in a thread of this process, and plain ways to talk to it."""

import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from dtpt.web.answering import Playground
from dtpt.web.app import Service, make_service
from dtpt.web.limits import Limits
from dtpt.web.security import access
from dtpt.web.server import listen, make_server

CLASSES = ["cat", "two-hump camel", "tropical drink"]
SETTINGS = {"classes": CLASSES, "methods": ["zero-shot", "d-tpt"], "views": 8}
BOUNDARY = "boundary-of-the-tests"
LIMITS = Limits(waiting=2, body_bytes=500_000, body_seconds=1.0, header_seconds=1.0, deadline=30.0)


@dataclass
class Running:
    """A server in a thread of this process."""

    port: int
    service: Service
    log: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, _, body = self.ask("GET", path)
        assert status == 200, body
        return json.loads(body)

    def predict(
        self, picture: bytes, settings: dict[str, Any], headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        body, own = form(picture, settings)
        status, _, answer = self.ask(
            "POST", "/v1/predict", body=body, headers=own | (headers or {})
        )
        return status, json.loads(answer)

    def predict_known(self, settings: dict[str, Any]) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        body = json.dumps(settings).encode()
        status, _, answer = self.ask("POST", "/v1/predict", body=body, headers=headers)
        return status, json.loads(answer)

    def raw(self, data: bytes, *, timeout: float = 20) -> bytes:
        """Send bytes as they are and return everything until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            return everything(connection)

    def until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        """Wait until something is so."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it never came to be"
            time.sleep(0.01)

    def until_idle(self, seconds: float = 20) -> None:
        """Wait until every place is given back."""
        self.until(lambda: self.service.worker.taken == 0, seconds)


def everything(connection: socket.socket) -> bytes:
    """Receive until the other side closes."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def form(picture: bytes, settings: dict[str, Any] | bytes) -> tuple[bytes, dict[str, str]]:
    """Return a multipart body and its headers."""
    text = settings if isinstance(settings, bytes) else json.dumps(settings).encode()
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=".encode()
    parts = [head + b'"picture"; filename="secret name.png"\r\n\r\n' + picture]
    parts.append(head + b'"settings"\r\n\r\n' + text)
    body = b"\r\n".join(parts) + f"\r\n--{BOUNDARY}--\r\n".encode()
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return body, {"Content-Type": kind, "X-Dtpt-Request": "1"}


def png(width: int = 40, height: int = 32, *, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return written.getvalue()


@contextmanager
def running(playground: Playground, *, token: str | None = None) -> Iterator[Running]:
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    service = make_service(playground)
    found = Running(port, service)
    server = make_server(
        service, access=access("127.0.0.1", port, token=token), write=found.log.append
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield found
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
