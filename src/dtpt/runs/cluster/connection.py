"""Joining a Ray cluster, or starting one on this machine; nothing of Ray's noise."""

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dtpt.errors import RunError

SECONDS_TO_REACH = 5.0
SETTINGS = 4  # type of a frame of HTTP/2
# what Ray would tell or do without being asked; inherited by what it starts here
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",  # replicas are as important as we are; Ray would say 15
}


def address_of(engine: str) -> str | None:
    """Return the address in "ray=ADDRESS"; None for "ray": a cluster that is found or started.

    Example:
        >>> address_of("ray=10.0.0.7:6379"), address_of("ray")
        ('10.0.0.7:6379', None)
    """
    return engine.partition("=")[2] or None


@contextmanager
def connected(engine: str, *, cores: int | None = None) -> Iterator[None]:
    """Be a driver of a cluster inside; one that was started for this is ended afterwards.

    A program that has called `ray.init` itself keeps its connection.

    Args:
        engine: "ray" or "ray=ADDRESS". Without an address: the cluster of RAY_ADDRESS, else the one
            that runs on this machine, else one that is started here; "ray=local" always starts one.
        cores: Of a cluster that is started here; as many as there are unless given.

    Raises:
        RunError: Nothing answers there, or with another version.
    """
    ray = _ray()
    with _quiet(ray):
        if ray.is_initialized():
            yield
            return
        address = address_of(engine)
        check_address(address or os.environ.get("RAY_ADDRESS", ""))
        try:
            _join(ray, address, cores=cores)
            yield
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Refuse an address at which nothing answers, in seconds; Ray itself would try for minutes.

    Raises:
        RunError: It says why.
    """
    if address in ("", "auto", "local"):
        return
    if "://" in address:
        raise RunError(
            f"{address!r} is not the address of a cluster's head: start the command on a machine "
            "of the cluster and give host:port, for example --engine ray=10.0.0.7:6379."
        )
    found = re.fullmatch(r"\[?([^\s\]]+)\]?:(\d{1,5})", address)
    if found is None:
        raise RunError(f"--engine ray={address}: expected host:port, for example 10.0.0.7:6379.")
    try:
        with socket.create_connection((found[1], int(found[2])), SECONDS_TO_REACH) as there:
            is_head = _speaks_http2(there)
    except (OSError, OverflowError) as error:
        raise RunError(
            f"No Ray cluster answers at {address} ({error}). Start its head there with `ray start "
            "--head --port 6379`, and give the address that this command prints."
        ) from error
    if not is_head:
        raise RunError(
            f"What answers at {address} is not the head of a Ray cluster; perhaps its dashboard? "
            "Give the address that `ray start --head` prints, usually with port 6379."
        )


def _speaks_http2(there: socket.socket) -> bool:
    """Tell whether a service begins as Ray's head does, with a SETTINGS frame of HTTP/2."""
    if os.environ.get("RAY_USE_TLS") == "1":
        return True  # it cannot be asked in plain text
    there.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]))
    try:
        header = there.recv(9, socket.MSG_WAITALL)
    except TimeoutError:
        return False
    return len(header) == 9 and header[3] == SETTINGS


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise RunError(
            "--engine ray needs the extra `ray` on every machine: pip install 'dtpt[ray]'."
        ) from error
    return ray


def _join(ray: Any, address: str | None, *, cores: int | None) -> None:
    given: dict[str, Any] = {"address": address}
    if address in (None, "local"):  # only a new cluster can be told how to be
        given["include_dashboard"] = False
    if cores is not None:
        given["num_cpus"] = cores
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **given)
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        raise RunError(_why_not(error, address)) from error


def _why_not(error: Exception, address: str | None) -> str:
    """Say in one line why a cluster cannot be joined."""
    text = " ".join(str(error).split())
    where = f"the cluster at {address}" if address else "a Ray cluster"
    if "ersion mismatch" in text:
        return (
            f"Cannot join {where}: {text} Install the same versions of Ray and Python on all "
            "machines."
        )
    hint = ""
    if "Failed to connect" in text:
        hint = " If it asks for a token, set RAY_AUTH_MODE=token here as well."
    return f"Cannot join {where}: {text[:300].rstrip('.')}.{hint}"


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Keep Ray's messages away from our output: what matters is told in our own words."""
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update({name: value for name, value in QUIET.items() if before[name] is None})
    worker = ray._private.worker  # as its own debugger does; no public switch covers all messages
    told = worker._worker_logs_enabled
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = told
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
