"""Whether the hub can be reached, found out fast; and its library kept quiet. Needs no torch."""

import logging
import os
import queue
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dtpt.errors import CheckpointError, os_error

PROBE_SECONDS = 1.5  # for finding the address and connecting; HF_HUB_ETAG_TIMEOUT replaces it
PORTS = {"http": 80, "https": 443}


def why_unreachable() -> str | None:
    """Return why the hub cannot be asked, None if something listens at its address.

    Connects to the endpoint (`HF_ENDPOINT`), or to the proxy that leads there, and hangs up.

    Raises:
        CheckpointError: the endpoint is no address at all.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        host, port = _gate(constants.ENDPOINT)
    except ValueError as error:
        raise CheckpointError(f"HF_ENDPOINT {constants.ENDPOINT!r}: {error}.") from error
    given = "HF_HUB_ETAG_TIMEOUT" in os.environ
    seconds = float(constants.HF_HUB_ETAG_TIMEOUT) if given else PROBE_SECONDS
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    # A thread, because looking up a name cannot be given a time limit; it may outlive its use.
    wait = {"seconds": seconds, "answers": answers}
    threading.Thread(target=_connect, args=(host, port), kwargs=wait, daemon=True).start()
    try:
        reason = answers.get(timeout=seconds)
    except queue.Empty:
        reason = f"no answer within {seconds:g} s"
    return None if reason is None else f"{host}:{port} cannot be reached: {reason}"


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the hub library's own warnings; what matters of them is in our errors."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def in_one_line(error: Exception) -> str:
    r"""Return kind and first line of one of the library's errors, which run over many.

    Example:
        >>> in_one_line(ValueError("no such repository\nRequest ID: 1"))
        'ValueError: no such repository'
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _gate(endpoint: str) -> tuple[str, int]:
    """Return host and port that a request to the endpoint connects to first."""
    parts = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme, 80)


def _connect(
    host: str, port: int, *, seconds: float, answers: "queue.SimpleQueue[str | None]"
) -> None:
    # Half of the time for each address: where IPv6 leads nowhere, IPv4 still gets its turn.
    try:
        socket.create_connection((host, port), timeout=seconds / 2).close()
        answers.put(None)
    except (OSError, ValueError) as error:
        answers.put(os_error(error))
