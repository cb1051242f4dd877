"""Refusals reach clients that are still sending, and no request prints a traceback."""

import asyncio
import json
import signal
import socket
import struct

import httpx
import pytest
from live_server import LIMITS, PATIENCE, SETTINGS, form, png
from test_serving import start

PARALLEL = 200
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"


async def statuses(address: str, *, body: bytes, headers: dict[str, str]) -> list[int | str]:
    """Post a body with many clients at once; return each one's status, or its error."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)

    async def send(client: httpx.AsyncClient) -> int | str:
        try:
            return (await client.post(address, content=body, headers=headers)).status_code
        except httpx.HTTPError as error:
            return type(error).__name__

    async with httpx.AsyncClient(limits=limits, timeout=PATIENCE, trust_env=False) as client:
        return await asyncio.gather(*(send(client) for _ in range(PARALLEL)))


def test_every_asynchronous_client_reads_that_its_body_is_too_large(server):
    headers = {"Content-Type": "application/json"}
    address = f"http://{server.host}/v1/predict"
    body = b" " * (4 * LIMITS.max_body_bytes)
    found = asyncio.run(statuses(address, body=body, headers=headers))
    assert set(found) == {413}


def test_every_asynchronous_client_reads_that_the_server_is_busy(held):
    body, headers = form(bytes(4_000_000), SETTINGS)
    held_up = [form(png(), SETTINGS)] * (LIMITS.waiting + 1)
    address = f"http://{held.host}/v1/predict"

    async def fill_and_send() -> list[int | str]:
        async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
            tasks = [
                asyncio.create_task(client.post(address, content=content, headers=kind))
                for content, kind in held_up
            ]
            await asyncio.to_thread(held.until_taken, len(held_up))
            found = await statuses(address, body=body, headers=headers)
            held.service.playground.free.set()
            assert {(await task).status_code for task in tasks} == {200}
            return found

    with held.service.playground.hold():
        assert set(asyncio.run(fill_and_send())) == {503}


def test_every_asynchronous_client_reads_that_it_is_refused(server):
    headers = {"Content-Type": "text/plain"}  # as a form of another site
    address = f"http://{server.host}/v1/predict"
    found = asyncio.run(statuses(address, body=b"x" * 1_000_000, headers=headers))
    assert set(found) == {403}


def test_what_is_dropped_after_a_refusal_is_limited(server):
    head = f"POST /nowhere HTTP/1.1\r\nHost: {server.host}\r\nContent-Type: application/json\r\n"
    chunk = b"186a0\r\n" + b"x" * 100_000 + b"\r\n"
    sent = 0
    with server.connect() as connection:
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            while sent < 100 * LIMITS.max_body_bytes:
                connection.sendall(chunk)
                sent += 100_000
        except OSError:
            pass
    assert sent < 40 * LIMITS.max_body_bytes


def test_what_is_not_http_gets_json_with_the_limit(server):
    response = server.raw(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n")
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"nosniff" in head
    error = json.loads(body)["error"]
    assert (error["code"], "32,768" in error["remedy"]) == ("http_malformed", True)


def odd_requests(host: str) -> list[bytes]:
    """Return what breaks clients, servers and libraries, as bytes for one connection each."""
    own = f"Host: {host}\r\nX-Dtpt-Request: 1\r\n".encode()
    post = b"POST /v1/predict HTTP/1.1\r\n" + own
    json_ = post + b"Content-Type: application/json\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n"
    bodies = (b"", b"{", b"\xff\xfe\x00", b"[" * 1000, b'"\\ud800"', b'{"classes": [1e999]}', b"\0")
    kinds = (b"", b"\xff", b"text/plain; charset=x", b"multipart/form-data; boundary=\xff\xff")
    return [
        *(json_ + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies),
        *(post + b"Content-Type: " + kind + b"\r\nContent-Length: 3\r\n\r\nabc" for kind in kinds),
        json_ + chunked + b"zz\r\nnot a length",
        json_.replace(b"/v1/predict", b"/nowhere") + chunked + b"3\r\nabc\r\nzz\r\n",
        json_ + b"Content-Length: 5\r\n" + chunked + b"0\r\n\r\n",
        json_ + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n",
        json_ + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        *(
            b"GET %s HTTP/1.1\r\n" % path + own + UPGRADE + b"\r\n"
            for path in (b"/", b"/v1/models")
        ),
        b"GET /%ff%00%f0 HTTP/1.1\r\n" + own + b"\r\n",
        b"GET /v1/classes/%ff?x=%ff HTTP/1.1\r\n" + own + b"\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n" + own + b"\r\n",
        b"GET / HTTP/1.1\r\n" + own + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + own + b"X: y\r\n" * 20_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: \xff\xff\r\nAuthorization: \xff\r\n\r\n",
        *(b"%s * HTTP/1.1\r\n" % word + own + b"\r\n" for word in (b"OPTIONS", b"TRACE", b"HEAD")),
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0" * 100_000,
        b"GET /healthz HTTP/1.1\r\n" + own + b"\r\nnonsense\r\n\r\n",
    ]


def send_and_leave(port: int, data: bytes, *, reset: bool) -> None:
    """Send bytes on a connection; wait a moment for a response, or reset the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(data)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                connection.settimeout(0.05)
                connection.recv(65536)
        except OSError:  # the server has closed it
            pass


@pytest.mark.slow
def test_no_request_leaves_a_line_on_stderr():
    process, port = start("--deadline", "1")
    host = f"127.0.0.1:{port}"
    client = httpx.Client(base_url=f"http://{host}", timeout=PATIENCE, trust_env=False)
    requests = odd_requests(host)
    body, headers = form(png(), {**SETTINGS, "views": 64})
    whole = f"POST /v1/predict HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
    for accept in ("*/*", "application/x-ndjson"):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        full = f"{whole}{lines}Accept: {accept}\r\n\r\n".encode() + body
        requests += [full, full[: len(full) // 2]]
    for data in requests:
        for reset in (False, True):
            send_and_leave(port, data, reset=reset)
    many = {"classes": [f"class {n}" for n in range(1000)], "methods": ["d-tpt"], "steps": 10}
    body, headers = form(png(), many)
    assert client.post("/v1/predict", content=body, headers=headers).status_code == 504
    late = {**headers, "Accept": "application/x-ndjson"}
    assert "deadline" in client.post("/v1/predict", content=body, headers=late).text
    assert client.get("/healthz").json() == {"alive": True}
    client.close()
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")
    assert '"status": 500' not in output
