"""`dtpt serve`: the playground, a local page and a small HTTP service."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dtpt.errors import DtptError


def serve(
    *,
    model: Annotated[str, Parameter(help="See `dtpt models`.")] = "pocket",
    host: Annotated[str, Parameter(help="Address; others than this machine need a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Parameter(help="0 takes a free one.")] = 8765,
    token: Annotated[
        str | None, Parameter(env_var="DTPT_TOKEN", help="Token that clients must send.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        Parameter(help="Further Host names, such as dtpt.example.org behind a proxy."),
    ] = None,
    evidence: Annotated[
        list[Path] | None,
        Parameter(help="Runs that show how often such predictions were correct."),
    ] = None,
    calibration: Annotated[
        list[Path] | None,
        Parameter(help="Files of `dtpt calibrate`: calibrated confidence, sets, abstention."),
    ] = None,
    device: Annotated[str, Parameter(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    threads: Annotated[int | None, Parameter(help="torch threads on the CPU.")] = None,
    waiting: Annotated[int, Parameter(help="Requests that may wait; more get 503.")] = 8,
    deadline: Annotated[float, Parameter(help="Seconds that a request may take.")] = 120.0,
    cache_mb: Annotated[int, Parameter(help="Memory for features of images.")] = 256,
    open_: Annotated[bool, Parameter("--open", help="Open a browser.")] = False,
    quiet: Annotated[bool, Parameter(help="No log line per request.")] = False,
) -> None:
    """Serve one page and an HTTP interface for one model, by default only to this machine.

    Images that are sent stay in memory. One JSON line per request goes to standard output.
    Stop it with Ctrl-C or SIGTERM.
    """
    _require_packages()
    from dtpt.web.limits import checked_limits
    from dtpt.web.security import access
    from dtpt.web.server import listen, start

    limits = checked_limits(waiting=waiting, deadline=deadline, cache_bytes=cache_mb * 1_000_000)
    access(host, port, token=token)  # refuses before anything is opened
    with listen(host, port) as listener:
        port = listener.getsockname()[1]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        start(
            listener,
            model=model,
            device=device,
            threads=threads,
            evidence=evidence or [],
            calibrations=calibration or [],
            limits=limits,
            access=access(host, port, names=allow_host or (), token=token),
            write=(lambda _: None) if quiet else _print_line,
            ready=lambda: _announce(address, model, browser=open_),
        )


def _require_packages() -> None:
    try:
        import fastapi  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise DtptError(
            f"dtpt serve needs more packages ({error}): pip install 'dtpt[serve]'"
        ) from None


def _print_line(line: str) -> None:
    with contextlib.suppress(OSError):  # a log that nobody reads stops no answer
        print(line, flush=True)


def _announce(address: str, model: str, *, browser: bool) -> None:
    print(f"dtpt: {model} answers on {address} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    if browser:
        import webbrowser

        webbrowser.open(address)
