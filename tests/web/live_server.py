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

from dtpt.web.app import Service
from dtpt.web.guard import access
from dtpt.web.options import Limits
from dtpt.web.playground import Playground
from dtpt.web.server import listen, make_server

CLASSES = ["cat", "two-hump camel", "tropical drink"]
SETTINGS = {"classes": CLASSES, "methods": ["zero-shot", "d-tpt"], "views": 8}
BOUNDARY = "boundary-of-the-tests"
PATIENCE = 120  # seconds; machines that run tests may be busy
LIMITS = Limits(
    waiting=2, max_body_bytes=500_000, body_seconds=PATIENCE, header_seconds=PATIENCE, deadline=600
)


class HeldPlayground(Playground):
    """Waits within a prediction, like a large model, until it is freed or its job ends."""

    def __init__(self, model, **rest) -> None:
        super().__init__(model, **rest)
        self.free = threading.Event()
        self.free.set()
        self.responses = []

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()

    def predict(self, image, settings, *, job):
        while not self.free.wait(0.01):
            job.progress("features")(16, 64)
        self.responses.append(super().predict(image, settings, job=job))
        return self.responses[-1]


@dataclass
class Running:
    """A server in a thread of this process."""

    port: int
    service: Service
    log: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, _, body = self.request("GET", path)
        assert status == 200, body
        return json.loads(body)

    def predict(
        self, image: bytes, settings: dict[str, Any], headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        body, form_headers = form(image, settings)
        status, _, response = self.request(
            "POST", "/v1/predict", body=body, headers=form_headers | (headers or {})
        )
        return status, json.loads(response)

    def predict_known(self, settings: dict[str, Any]) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        body = json.dumps(settings).encode()
        status, _, response = self.request("POST", "/v1/predict", body=body, headers=headers)
        return status, json.loads(response)

    def raw(self, data: bytes) -> bytes:
        """Send bytes as they are and return everything until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return receive_all(connection)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, "timed out"
            time.sleep(0.01)

    def until_idle(self) -> None:
        """Wait until every slot is free."""
        self.until(lambda: self.service.worker.taken == 0)

    def until_taken(self, slots: int = 1) -> None:
        self.until(lambda: self.service.worker.taken == slots)


def receive_all(connection: socket.socket) -> bytes:
    """Receive until the other side closes."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def form(image: bytes, settings: dict[str, Any] | bytes) -> tuple[bytes, dict[str, str]]:
    """Return a multipart body and its headers."""
    text = settings if isinstance(settings, bytes) else json.dumps(settings).encode()
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=".encode()
    parts = [head + b'"image"; filename="secret name.png"\r\n\r\n' + image]
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
    service = Service(playground)
    started = Running(port, service)
    server = make_server(
        service, access=access("127.0.0.1", port, token=token), write=started.log.append
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.01)
        yield started
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"
