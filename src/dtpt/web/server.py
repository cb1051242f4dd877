"""The process: socket, model, signals, and uvicorn between them and the service."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dtpt.calibration import Calibration, read_calibration
from dtpt.clip.loading import load_model
from dtpt.clip.model import Clip
from dtpt.errors import CalibrationError, DtptError, os_error
from dtpt.files import printable
from dtpt.web.app import Service, build_app
from dtpt.web.evidence import read_evidence
from dtpt.web.guard import Access, logger
from dtpt.web.options import ServeOptions
from dtpt.web.playground import Playground
from dtpt.web.telemetry import Write

GRACE_SECONDS = 10  # for requests under way when the process is asked to stop
CONNECTIONS = 512  # uvicorn answers 503 to more
MOST_HEADER_BYTES = 32_768


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(CONNECTIONS)
    except OSError as error:
        listener.close()
        reason = os_error(error)
        raise DtptError(
            f"Cannot listen on {host}, port {port}: {reason}. Choose another --port or --host."
        ) from None
    return listener


def start(
    listener: socket.socket,
    options: ServeOptions,
    *,
    access: Access,
    write: Write,
    ready: Callable[[], None],
) -> None:
    """Load the model and serve requests until a signal stops the process.

    Connections wait in the listener while the model is loaded; `ready` is called after that.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    evidence = [cell for path in options.evidence for cell in read_evidence(path)]
    model = load_model(
        options.model,
        device=options.device,
        activation=options.activation,
        precision=options.precision,
    )
    calibrations = _read_calibrations(options.calibration, model)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    for note in model.notes:
        logger.warning(note)
    playground = Playground(
        model,
        name=options.model,
        limits=options.limits,
        evidence=evidence,
        calibrations=calibrations,
    )
    server = make_server(Service(playground), access=access, write=write, ready=ready)
    with _ends_normally(server):
        server.run(sockets=[listener])


def _read_calibrations(paths: Sequence[Path], model: Clip) -> list[Calibration]:
    calibrations = []
    for path in paths:
        calibration = read_calibration(path)
        if calibration.setup.fingerprint != model.fingerprint:
            raise CalibrationError(
                f"{printable(path)} is for the model {calibration.setup.model} "
                f"({calibration.setup.fingerprint[:12]}…), not for {model.fingerprint[:12]}…: "
                "give the --model that it was made with."
            )
        calibrations.append(calibration)
    return calibrations


def make_server(
    service: Service, *, access: Access, write: Write, ready: Callable[[], None] | None = None
) -> uvicorn.Server:
    """Return a server that is not running yet: `server.run(sockets=[listener])`."""
    config = uvicorn.Config(
        build_app(service, access=access, write=write, ready=ready),
        http=_protocol(service.playground.limits.header_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    service.is_stopping = lambda: server.should_exit
    return server


@contextlib.contextmanager
def _ends_normally(server: uvicorn.Server) -> Iterator[None]:
    """Let SIGINT and SIGTERM stop the server with exit code 0.

    Uvicorn stops at the first signal, then restores the handlers that it found and raises the
    signal again. It finds these, so nothing more happens.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return

    def stop(_number: int, _frame: object) -> None:
        server.should_exit = True  # also for a signal before uvicorn has its own handlers

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _protocol(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol that closes connections without a request in time."""

    class ImpatientProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(seconds, self._close_if_silent)

        def _close_if_silent(self) -> None:
            cycle: object = self.cycle  # None until the headers of a request have arrived
            if cycle is None and not self.transport.is_closing():
                self.transport.close()

    return ImpatientProtocol
