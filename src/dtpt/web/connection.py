"""One HTTP connection: uvicorn's, with limits, and refusals that a client can still read.

When a socket is closed while data of the client is unread, the system resets the connection, and
a client that is still sending its body never sees the response. So after such a response only our
direction is closed; what the client still sends is read and dropped, within limits, until it
closes the connection as well.
"""

import asyncio
from functools import partial
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from dtpt.web.guard import HEADERS, Refusal
from dtpt.web.options import Limits

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

BACKLOG = 512  # connections that the system accepts before the process does
MOST_CONNECTIONS = 4096  # fewer if the system allows fewer open files
MOST_HEADER_BYTES = 32_768
SPARE_FILES = 64  # for everything else that the process opens
WANTED_FILES = MOST_CONNECTIONS + BACKLOG + SPARE_FILES
DROPPED_BODIES = 10  # bytes that are dropped of one connection, in largest bodies


def allow_open_files() -> None:
    """Ask the system for as many open files as `MOST_CONNECTIONS` need."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < WANTED_FILES and soft != resource.RLIM_INFINITY:
            most = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def most_connections() -> int:
    """Return how many connections this process can have open."""
    files = WANTED_FILES
    if resource is not None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = WANTED_FILES if soft == resource.RLIM_INFINITY else min(soft, WANTED_FILES)
    return max(SPARE_FILES, files - BACKLOG - SPARE_FILES)


class HalfClosing(asyncio.Transport):
    """A transport whose `close` ends our direction only while the client is sending."""

    def __init__(self, inner: asyncio.Transport, connection: "Connection") -> None:
        super().__init__()
        self.inner = inner
        self.is_half_closed = False
        self._connection = connection

    def close(self) -> None:
        if self.is_closing() or not self._connection.is_sending or self._is_unwritable():
            self.inner.close()
            return
        self.is_half_closed = True
        self.inner.resume_reading()
        self._connection.half_closed()

    def _is_unwritable(self) -> bool:
        """End our direction; return whether that fails, because the client does not read."""
        if self.inner.get_write_buffer_size():
            return True
        try:
            self.inner.write_eof()
        except OSError:  # the client has reset the connection
            return True
        return False

    def abort(self) -> None:
        self.inner.abort()

    def is_closing(self) -> bool:
        return self.is_half_closed or self.inner.is_closing()

    def write(self, data: Any) -> None:
        if not self.is_half_closed:
            self.inner.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self.inner.pause_reading()

    def resume_reading(self) -> None:
        self.inner.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.inner.set_protocol(protocol)


class Connection(H11Protocol):
    """uvicorn's HTTP connection with limits of time, bytes and number."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        *,
        app_state: dict[str, Any],
        limits: Limits,
        most: int,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._most = most
        self._dropped = 0  # bytes

    @property
    def is_sending(self) -> bool:
        """Whether the client may be sending what is not read: a body, or what is not HTTP."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(HalfClosing(transport, self))
        if len(self.connections) > self._most:
            transport.abort()
        self.loop.call_later(self._limits.header_seconds, self._close_if_silent)

    def _close_if_silent(self) -> None:
        cycle: object = self.cycle  # None until the headers of a request have arrived
        if cycle is None and not self.transport.is_closing():
            self.transport.close()

    def half_closed(self) -> None:
        """Drop what still comes, for a limited time; no response can be sent any more."""
        self._unset_keepalive_if_required()
        self._end_cycle()
        self.loop.call_later(self._limits.body_seconds, self.transport.close)

    def _end_cycle(self) -> None:
        """Tell the application that its client is gone, if it has not responded yet."""
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        cycle: Any = self.cycle
        is_answered = cycle is not None and cycle.response_complete
        if self.transport.is_closing() or (is_answered and self.is_sending):
            self._dropped += len(data)
            if self._dropped > DROPPED_BODIES * self._limits.max_body_bytes:
                self.transport.abort()
        if not self.transport.is_closing():
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, unless another response has begun."""
        del msg
        self._end_cycle()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = Refusal("http_malformed", "The request is not valid HTTP/1.1.").response()
            ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            headers = [*response.raw_headers, *ours]
            start = h11.Response(status_code=response.status_code, headers=headers)
            for event in (start, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def shutdown(self) -> None:
        if self.transport.is_closing():
            self.transport.close()
        else:
            super().shutdown()


def protocol(limits: Limits) -> Any:
    """Return what makes a connection, for uvicorn."""
    return partial(Connection, limits=limits, most=most_connections())
