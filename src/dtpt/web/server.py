"""The process: a socket, signals, and uvicorn between them and the service."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dtpt.calibration import Calibration, read_calibration
from dtpt.clip.loading import load_model
from dtpt.clip.model import Clip
from dtpt.errors import CalibrationError, DtptError, os_error
from dtpt.files import printable
from dtpt.web.answering import Playground
from dtpt.web.app import Service, build_app, make_service
from dtpt.web.evidence import RunEvidence
from dtpt.web.limits import Limits
from dtpt.web.security import Access
from dtpt.web.telemetry import Write

GRACE_SECONDS = 10  # for answers under way when the process is asked to stop
CONNECTIONS = 512  # more are turned away with 503 by uvicorn itself
MOST_HEADER_BYTES = 32_768


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one.

    Raises:
        DtptError: the address is not ours or taken.

    Example:
        >>> with listen("127.0.0.1", 0) as free:
        ...     free.getsockname()[0]
        '127.0.0.1'
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(CONNECTIONS)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = os_error(error)
        raise DtptError(
            f"Cannot listen on {host}, port {port}: {reason}. Choose another --port."
        ) from None
    return listener


def start(
    listener: socket.socket,
    *,
    model: str,
    device: str,
    threads: int | None,
    evidence: Sequence[Path],
    calibrations: Sequence[Path],
    limits: Limits,
    access: Access,
    write: Write,
    ready: Callable[[], None],
) -> None:
    """Load a model, say that it is ready, and answer until the process is asked to stop.

    Args:
        listener: see `listen`; connections wait in it while the model is loaded.
        model: as for `load_model`.
        device: as for `load_model`.
        threads: of torch on the CPU; None leaves torch's choice.
        evidence: runs that say how often answers were right.
        calibrations: files of `dtpt calibrate`.
        limits: of requests and of memory.
        access: who may ask.
        write: takes one log line per request.
        ready: called when questions are taken.
    """
    if threads is not None:
        if threads < 1:
            raise DtptError(f"--threads is {threads}; expected 1 or more.")
        torch.set_num_threads(threads)
    sources, given = [RunEvidence(path) for path in evidence], _read(calibrations)
    loaded = load_model(model, device=device)
    _check(given, loaded)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    for remark in loaded.notes:
        logging.getLogger("dtpt.web").warning(remark)
    playground = Playground(
        loaded, name=model, limits=limits, evidence=sources, calibrations=list(given.values())
    )
    service = make_service(playground)
    make_server(service, access=access, write=write, ready=ready).run(sockets=[listener])


def _read(paths: Sequence[Path]) -> dict[Path, Calibration]:
    return {path: read_calibration(path) for path in paths}


def _check(calibrations: Mapping[Path, Calibration], model: Clip) -> None:
    """Raise for calibrations of another model: none of them could ever apply."""
    for path, calibration in calibrations.items():
        if calibration.setup.fingerprint != model.fingerprint:
            raise CalibrationError(
                f"{printable(path)} is for the model {calibration.setup.model} "
                f"({calibration.setup.fingerprint[:12]}…), not for {model.fingerprint[:12]}…: "
                "give the --model that it was made with."
            )


def make_server(
    service: Service,
    *,
    access: Access,
    write: Write,
    ready: Callable[[], None] | None = None,
) -> uvicorn.Server:
    """Return a server that is not running yet: `server.run(sockets=[listener])`.

    Args:
        service: what the routes share.
        access: who may ask.
        write: takes one log line per request.
        ready: called when questions are taken.
    """
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
    return _Server(config, service)


class _Server(uvicorn.Server):
    """Uvicorn that ends with exit code 0 when it is asked to stop."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on the first signal; uvicorn's own way sends it again when all is done."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread can hear signals
            return

        def stop(number: int, frame: Any) -> None:
            self._service.stopping = True
            self.handle_exit(number, frame)

        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, stop) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _protocol(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol that closes connections on which no request begins."""

    class Patient(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.loop.call_later(seconds, self._close_if_silent)

        def _close_if_silent(self) -> None:
            began: object = self.cycle  # None until a request's headers have arrived
            if began is None and not self.transport.is_closing():
                self.transport.close()

    return Patient
