"""`dtpt serve`: the playground, a local page and a small HTTP service."""

import contextlib
import sys
from importlib import import_module
from typing import Annotated

from dtpt.cli.flags import Config, flags
from dtpt.errors import DtptError
from dtpt.methods import load_plugins
from dtpt.web.options import ServeOptions


def serve(
    *,
    options: Annotated[ServeOptions, flags(ServeOptions)] = ServeOptions(),
    config: Config = None,
) -> None:
    """Serve one page and an HTTP interface for one model, by default only to this machine.

    Images that are sent stay in memory. One JSON line per request goes to standard output.
    Stop it with Ctrl-C or SIGTERM.
    """
    _require_packages()
    from dtpt.web.guard import access, bracketed
    from dtpt.web.server import listen, start

    host, token = options.host, options.token
    access(host, options.port, token=token)  # raises before anything is opened
    for problem in load_plugins()[1]:  # here, so that no request waits for an import
        print(problem, file=sys.stderr)
    with listen(host, options.port) as listener:
        port = listener.getsockname()[1]
        address = f"http://{bracketed(host)}:{port}/"
        start(
            listener,
            options,
            access=access(host, port, names=options.allow_host, token=token),
            write=(lambda _: None) if options.quiet else _print_line,
            ready=lambda: _announce(address, options),
        )


def _require_packages() -> None:
    try:
        for package in ("fastapi", "python_multipart", "uvicorn"):
            import_module(package)
    except ImportError as error:
        raise DtptError(f"{error}: install the packages with pip install 'dtpt[serve]'.") from None


def _print_line(line: str) -> None:
    with contextlib.suppress(OSError):  # a closed log must not stop the service
        print(line, flush=True)


def _announce(address: str, options: ServeOptions) -> None:
    print(f"dtpt: {options.model} serves {address} (Ctrl-C stops it)", file=sys.stderr, flush=True)
    if options.open_:
        import webbrowser

        webbrowser.open(address)
