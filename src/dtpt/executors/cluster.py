"""Joining a Ray cluster, or starting one on this machine, and how its nodes are used.

Ray itself is imported in functions, so that the rest of dtpt works without it.
"""

import atexit
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

from dtpt.errors import RunError

SECONDS_TO_REACH = 5.0
SECONDS_TO_ANSWER = 2.0  # of a head that has answered before
SETTINGS = 4  # type of a frame of HTTP/2
MEMORY_FRACTION = 0.8  # of what is free; the rest is for caches and others
MOST_VIEW_WORKERS = 8
SECONDS_TO_LEAVE = 5.0
# what of Ray's connection waits for an answer of the head when it is closed
WAITING = ("gcs_error_subscriber", "gcs_log_subscriber", "listener_thread", "logger_thread")
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
    """Choose how to use a node by Ray's resources and free bytes; no workers if it has too little.

    Example:
        >>> choose_quota({"CPU": 8.0}, ResourceRequest(threads=2))
        Quota(workers=4, device='cpu', view_workers=0, cores=2, accelerators=0)
        >>> choose_quota({"CPU": 16.0, "GPU": 2.0}, ResourceRequest())
        Quota(workers=2, device='cuda', view_workers=7, cores=8.0, accelerators=1)
    """
    cores, accelerators = offered.get("CPU", 0.0), int(offered.get("GPU", 0.0))
    limits = [] if request.workers == "auto" else [request.workers]
    fixed = None if request.view_workers == "auto" else request.view_workers
    if request.device != "cpu" and accelerators:
        workers = min([accelerators, *limits])
        each = cores // workers
        spare = min(max(int(each) - request.threads, 0), MOST_VIEW_WORKERS)
        return Quota(workers, "cuda", spare if fixed is None else fixed, each, 1)
    if request.device not in ("auto", "cpu"):
        return Quota(0, request.device)
    if memory is not None and request.worker_bytes:
        limits.append(int(MEMORY_FRACTION * memory) // request.worker_bytes)
    workers = min([int(cores // request.threads), *limits])
    return Quota(workers, "cpu", fixed or 0, request.threads)


@contextmanager
def connected(executor: str) -> Iterator[None]:
    """Be a driver of the cluster "ray=ADDRESS" inside; one that is started here ends afterwards.

    "ray" is the cluster of RAY_ADDRESS, else the one that runs on this machine, else one that is
    started here; "ray=local" always starts one. A program that has called `ray.init` itself keeps
    its connection.
    """
    try:
        import ray
    except ImportError as error:
        raise RunError(
            "--executor ray needs the extra `ray` on every node: pip install 'dtpt[ray]'."
        ) from error
    with quiet(ray):
        if ray.is_initialized():
            yield
            return
        address = executor.partition("=")[2] or None
        check_address(address or os.environ.get("RAY_ADDRESS", ""))
        with own_sigterm() as restore:
            try:
                _join(ray, address)
                restore()
                yield
            finally:
                _leave(ray)


def _leave(ray: Any) -> None:
    """End the connection; give up on a head that is away, for which Ray would wait for ever."""
    if not ray.is_initialized() or head_answers(ray.get_runtime_context().gcs_address):
        ray.shutdown()
        return
    worker = ray._private.worker.global_worker
    for name in WAITING:
        if hasattr(worker, name):
            setattr(worker, name, _Lost())
    ending = threading.Thread(target=ray.shutdown, daemon=True)
    ending.start()
    ending.join(SECONDS_TO_LEAVE)
    if ending.is_alive():
        atexit.unregister(ray.shutdown)  # it would wait once more when the process ends


class _Lost:
    """What Ray closes and joins without waiting, and what ends the thread that still polls it."""

    def close(self) -> None: ...

    def join(self) -> None: ...

    def poll(self) -> None:
        raise ConnectionError("the head is away")


@contextmanager
def own_sigterm() -> Iterator[Callable[[], None]]:
    """Handle SIGTERM as before, although Ray starts inside; call what is yielded when it has.

    Ray replaces Python's handler by one that exits with code 15, and the system's by one that
    prints a stack of C++ and aborts. Where a handler raises while Ray waits, Ray raises a plain
    KeyboardInterrupt instead. Both become what the handler raises.
    """
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield lambda: None  # Ray sets no handler in other threads
        return
    raised: list[BaseException] = []

    def handle(number: int, frame: FrameType | None) -> None:
        try:
            before(number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    try:
        yield lambda: _set_sigterm(handle)
    except (SystemExit, KeyboardInterrupt) as error:
        if isinstance(error, SystemExit) and error.code == signal.SIGTERM and not raised:
            with suppress(BaseException):
                handle(signal.SIGTERM, None)
        if raised and error is not raised[0]:
            raise raised[0] from None
        raise
    finally:
        if not raised:  # the handler itself may have set another one
            _set_sigterm(before)


def _set_sigterm(handler: Callable[[int, FrameType | None], Any]) -> None:
    signal.signal(signal.SIGTERM, handler)


def check_address(address: str) -> None:
    """Refuse within seconds an address without a cluster; Ray itself would try for minutes."""
    if address in ("", "auto", "local"):
        return
    parsed = re.fullmatch(r"\[?([^\s\]/]+)\]?:(\d{1,5})", address)
    if parsed is None:
        raise RunError(
            f"--executor ray={address}: expected host:port of the cluster's head, for example "
            "10.0.0.7:6379, on a node of the cluster."
        )
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


def head_answers(address: str) -> bool:
    """Check within seconds whether the head of our cluster is there; Ray itself would wait."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER) as head:
            return _speaks_http2(head)
    except OSError:
        return False


def is_closed(address: str) -> bool:
    """Check whether nobody listens at an address, as after a process has died.

    A process that is only slow, or stopped, still counts as listening.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


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


def _join(ray: Any, address: str | None) -> None:
    # only a new cluster takes settings
    options = {"include_dashboard": False} if address in (None, "local") else {}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **options)
    except (RuntimeError, ConnectionError, ValueError, OSError) as error:
        text = " ".join(str(error).split())[:500].rstrip(".")
        remedy = ""
        if "ersion mismatch" in text:
            remedy = " Install the same versions of Ray and Python on all nodes."
        elif "Failed to connect" in text:
            remedy = " If it needs a token, set RAY_AUTH_MODE=token here as well."
        where = f"the cluster at {address}" if address else "a Ray cluster"
        raise RunError(f"Cannot join {where}: {text}.{remedy}") from error


@contextmanager
def quiet(ray: Any) -> Iterator[None]:
    """Set what Ray reads when it starts, and keep its messages away from our output."""
    added = QUIET.keys() - os.environ.keys()
    os.environ.update({name: QUIET[name] for name in added})
    worker = ray._private.worker  # as its own debugger does; no public switch covers all messages
    enabled, worker._worker_logs_enabled = worker._worker_logs_enabled, False
    try:
        yield
    finally:
        worker._worker_logs_enabled = enabled
        for name in added:
            os.environ.pop(name, None)


def one_line(error: BaseException) -> str:
    """Return an error of Ray in one line: the last one has what was raised."""
    from ray.exceptions import OutOfMemoryError

    if isinstance(error, OutOfMemoryError):
        used = re.search(r"was ([\d.]+\wB) used / ([\d.]+\wB)", str(error))
        figures = f", {used[1]} of {used[2]} were in use" if used else ""
        return f"memory ran out{figures}; free some, or give fewer --workers"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1].partition(" Some common causes")[0] if lines else type(error).__name__
    return text.rstrip(".") if len(text) <= 200 else f"{text[:200]}…"
