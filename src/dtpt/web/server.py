"""The process: socket, model, signals, and uvicorn between them and the service."""

import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import uvicorn

from dtpt.calibration import Calibration, read_calibration
from dtpt.clip.model import Clip
from dtpt.errors import CalibrationError, DtptError, os_error
from dtpt.files import printable
from dtpt.machine import choose_threads
from dtpt.web.app import Service, build_app
from dtpt.web.connection import BACKLOG, MOST_HEADER_BYTES, allow_open_files, protocol
from dtpt.web.evidence import read_evidence, recorded_evidence
from dtpt.web.guard import Access, logger
from dtpt.web.options import ServeOptions
from dtpt.web.playground import Playground
from dtpt.web.presets import classes_of
from dtpt.web.telemetry import Write

GRACE_SECONDS = 10  # for requests under way when the process is asked to stop


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = f"Cannot listen on {host}, port {port}: {os_error(error)}."
        raise DtptError(f"{reason} Choose another --port or --host.") from None


def start(
    listener: socket.socket,
    options: ServeOptions,
    *,
    access: Access,
    write: Write,
    ready: Callable[[], None],
) -> None:
    """Load the model, while connections wait in the listener, and serve them until a signal."""
    torch.set_num_threads(choose_threads(options.threads))
    runs = [cell for path in options.evidence for cell in read_evidence(path)]
    calibrations = {path: read_calibration(path) for path in options.calibration}
    model = options.load()
    for path, calibration in calibrations.items():
        _check_model(calibration, model, path=path)
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns about clients' forms
    for note in model.notes:
        logger.warning(note)
    playground = Playground(
        model,
        name=options.model,
        limits=options.limits,
        evidence=runs or recorded_evidence(model, classes_of),
        calibrations=list(calibrations.values()),
    )
    allow_open_files()
    server = make_server(Service(playground), access=access, write=write, ready=ready)

    def stop(_number: int, _frame: object) -> None:
        server.should_exit = True

    # uvicorn replaces these handlers while it runs; at its end it restores them and raises the
    # signal again, which must not end the process with an error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(sockets=[listener])


def _check_model(calibration: Calibration, model: Clip, *, path: Path) -> None:
    if calibration.setup.fingerprint != model.fingerprint:
        name = calibration.setup.model
        raise CalibrationError(f"{printable(path)} is for another --model, {name}.")


def make_server(
    service: Service, *, access: Access, write: Write, ready: Callable[[], None] | None = None
) -> uvicorn.Server:
    """Return a server that is not running yet: `server.run(sockets=[listener])`."""
    config = uvicorn.Config(
        build_app(service, access=access, write=write, ready=ready),
        http=protocol(service.playground.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",  # its warnings are about what clients send
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    service.is_stopping = lambda: server.should_exit
    return server
