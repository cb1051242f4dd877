"""Joining a Ray cluster, or starting one on this machine, and how its nodes are used.

Ray itself is imported in functions, so that the rest of dtpt works without it.
"""

import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from dtpt.errors import RunError

SECONDS_TO_REACH = 5.0
SETTINGS = 4  # type of a frame of HTTP/2
MEMORY_FRACTION = 0.8  # of what is free; the rest is for caches and others
MOST_VIEW_WORKERS = 8
# settings that silence Ray; inherited by what it starts here
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",  # workers are as important as the driver; Ray's default is 15
}


@dataclass(frozen=True)
class ResourceRequest:
    """What a user requests of every node."""

    device: str = "auto"  # accelerators where a node has some, else its processor
    threads: int = 1  # torch threads of a worker, which takes as many cores
    workers: int | Literal["auto"] = "auto"  # most on a node
    view_workers: int | Literal["auto"] = "auto"  # beside each worker
    worker_bytes: int = 0


@dataclass(frozen=True)
class Quota:
    """How a node is used."""

    workers: int = 0
    device: str = "cpu"
    view_workers: int = 0  # beside each worker
    cores: float = 0  # of each worker
    accelerators: int = 0  # of each worker


def choose_quota(
    offered: Mapping[str, float], request: ResourceRequest, *, memory: int | None = None
) -> Quota:
    """Choose how to use a node; no workers where it has too little of something.

    Args:
        offered: Ray's resources of the node: "CPU", "GPU".
        request: What the user requests.
        memory: Bytes that are free on it.

    Example:
        >>> choose_quota({"CPU": 8.0}, ResourceRequest(threads=2))
        Quota(workers=4, device='cpu', view_workers=0, cores=2, accelerators=0)
        >>> choose_quota({"CPU": 16.0, "GPU": 2.0}, ResourceRequest())
        Quota(workers=2, device='cuda', view_workers=7, cores=8.0, accelerators=1)
    """
    cores, accelerators = offered.get("CPU", 0.0), int(offered.get("GPU", 0.0))
    limit = request.workers
    if request.device != "cpu" and accelerators:
        workers = accelerators if limit == "auto" else min(limit, accelerators)
        each = cores // workers
        spare = max(int(each) - request.threads, 0)
        most = min(spare, MOST_VIEW_WORKERS)
        beside = most if request.view_workers == "auto" else request.view_workers
        return Quota(workers, "cuda", beside, each, 1)
    if request.device not in ("auto", "cpu"):
        return Quota(0, request.device)
    workers = int(cores // request.threads)
    if limit != "auto":
        workers = min(workers, limit)
    if memory is not None and request.worker_bytes:
        workers = min(workers, int(MEMORY_FRACTION * memory) // request.worker_bytes)
    beside = 0 if request.view_workers == "auto" else request.view_workers
    return Quota(max(workers, 0), "cpu", beside, request.threads)


def address_of(executor: str) -> str | None:
    """Return the address in "ray=ADDRESS"; None for "ray": a cluster that is found or started.

    Example:
        >>> address_of("ray=10.0.0.7:6379"), address_of("ray")
        ('10.0.0.7:6379', None)
    """
    return executor.partition("=")[2] or None


@contextmanager
def connected(executor: str, *, cores: int | None = None) -> Iterator[None]:
    """Be a driver of a cluster inside; one that was started for this is ended afterwards.

    A program that has called `ray.init` itself keeps its connection.

    Args:
        executor: "ray" or "ray=ADDRESS". Without an address: the cluster of RAY_ADDRESS, else the
            one that runs on this machine, else one that is started here; "ray=local" always starts
            one.
        cores: Of a cluster that is started here; as many as there are unless given.

    Raises:
        RunError: There is no cluster, or one with another version.
    """
    ray = _import_ray()
    with _quiet(ray):
        if ray.is_initialized():
            yield
            return
        address = address_of(executor)
        check_address(address or os.environ.get("RAY_ADDRESS", ""))
        try:
            _join(ray, address, cores=cores)
            yield
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Refuse within seconds an address without a cluster; Ray itself would try for minutes.

    Raises:
        RunError: With the reason.
    """
    if address in ("", "auto", "local"):
        return
    if "://" in address:
        raise RunError(
            f"{address!r} is not the address of a cluster's head: start the command on a node of "
            "the cluster and give host:port, for example --executor ray=10.0.0.7:6379."
        )
    parsed = re.fullmatch(r"\[?([^\s\]]+)\]?:(\d{1,5})", address)
    if parsed is None:
        raise RunError(f"--executor ray={address}: expected host:port, for example 10.0.0.7:6379.")
    try:
        with socket.create_connection((parsed[1], int(parsed[2])), SECONDS_TO_REACH) as connection:
            is_head = _speaks_http2(connection)
    except (OSError, OverflowError) as error:
        raise RunError(
            f"No Ray cluster answers at {address} ({error}). Start its head with `ray start "
            "--head --port 6379`, and give the address that this command prints."
        ) from error
    if not is_head:
        raise RunError(
            f"The service at {address} is not the head of a Ray cluster; perhaps its dashboard? "
            "Give the address that `ray start --head` prints, usually with port 6379."
        )


def _speaks_http2(connection: socket.socket) -> bool:
    """Check whether a service begins as Ray's head does, with a SETTINGS frame of HTTP/2."""
    if os.environ.get("RAY_USE_TLS") == "1":
        return True  # it does not answer plain text
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    connection.sendall(preface + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]))
    try:
        header = connection.recv(9, socket.MSG_WAITALL)
    except TimeoutError:
        return False
    return len(header) == 9 and header[3] == SETTINGS


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise RunError(
            "--executor ray needs the extra `ray` on every node: pip install 'dtpt[ray]'."
        ) from error
    return ray


def _join(ray: Any, address: str | None, *, cores: int | None) -> None:
    options: dict[str, Any] = {"address": address}
    if address in (None, "local"):  # only a new cluster takes settings
        options["include_dashboard"] = False
    if cores is not None:
        options["num_cpus"] = cores
    try:
        ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        raise RunError(_why_not_joined(error, address)) from error


def _why_not_joined(error: Exception, address: str | None) -> str:
    text = " ".join(str(error).split())
    where = f"the cluster at {address}" if address else "a Ray cluster"
    if "ersion mismatch" in text:
        return (
            f"Cannot join {where}: {text} Install the same versions of Ray and Python on all nodes."
        )
    hint = ""
    if "Failed to connect" in text:
        hint = " If it asks for a token, set RAY_AUTH_MODE=token here as well."
    return f"Cannot join {where}: {text[:300].rstrip('.')}.{hint}"


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Keep Ray's messages away from our output."""
    before = {name: os.environ.get(name) for name in QUIET}
    os.environ.update({name: value for name, value in QUIET.items() if before[name] is None})
    worker = ray._private.worker  # as its own debugger does; no public switch covers all messages
    enabled = worker._worker_logs_enabled
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = enabled
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def one_line(error: BaseException) -> str:
    """Return what an error of Ray says, short: its last line has what was raised."""
    from ray.exceptions import OutOfMemoryError

    if isinstance(error, OutOfMemoryError):
        used = re.search(r"was ([\d.]+\wB) used / ([\d.]+\wB)", str(error))
        figures = f", {used[1]} of {used[2]} were in use" if used else ""
        return f"memory ran out{figures}; free some, or give fewer --workers"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1].partition(" Some common causes")[0] if lines else type(error).__name__
    return text.rstrip(".") if len(text) <= 200 else f"{text[:200]}…"
