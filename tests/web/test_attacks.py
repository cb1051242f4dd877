"""Hostile and broken requests: refused, and the next valid one succeeds."""

import json
import random
import resource
import threading

import pytest
from live_server import LIMITS, SETTINGS, HeldPlayground, form, png, receive_all, running

from dtpt.web.playground import Playground

FORM = "multipart/form-data; boundary=x"


@pytest.fixture(autouse=True)
def still_works(server):
    """After every attack a valid request succeeds, no slot is lost, and there was no bug."""
    yield
    server.until_idle()
    status, response = server.predict(png(), SETTINGS)
    assert status == 200, response
    assert not [line for line in server.log if '"status": 500' in line]


@pytest.fixture(scope="module")
def impatient(tiny_clip):
    """A server that waits two seconds for headers and for bodies."""
    limits = LIMITS.model_copy(update={"body_seconds": 2.0, "header_seconds": 2.0})
    with running(Playground(tiny_clip, name="tiny", limits=limits)) as started:
        yield started


def head(server, *, path: str = "/v1/predict", method: str = "POST", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {server.host}", "X-Dtpt-Request: 1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def code_of(response: bytes) -> str:
    return json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"]


def test_a_body_with_a_too_large_stated_length_is_refused_before_it_is_sent(server):
    response = server.raw(head(server, Content_Type=FORM, Content_Length="10000000000"))
    assert code_of(response) == "body_too_large"


def test_a_chunked_body_is_cut_off_at_the_limit(server):
    chunk = b"186a0\r\n" + b"x" * 100_000 + b"\r\n"
    with server.connect() as connection:
        connection.sendall(head(server, Content_Type=FORM, Transfer_Encoding="chunked"))
        sent = 0
        try:
            while sent < 100 * LIMITS.max_body_bytes:
                connection.sendall(chunk)
                sent += 100_000
        except OSError:  # the server has closed the connection
            pass
    assert sent < 30 * LIMITS.max_body_bytes


@pytest.mark.parametrize("length", ["-1", "1e9", "99999999999999999999999999", "abc"])
def test_odd_lengths_are_refused(server, length):
    response = server.raw(head(server, Content_Type="application/json", Content_Length=length))
    assert response.split(b" ")[1] in (b"400", b"413")


def test_a_slow_body_loses_its_slot(impatient):
    with impatient.connect() as connection:
        connection.sendall(head(impatient, Content_Type=FORM, Content_Length="1000") + b"--x\r\n")
        response = receive_all(connection)
    assert code_of(response) == "body_too_slow"
    impatient.until_idle()


def test_a_connection_without_a_request_is_closed(impatient):
    with impatient.connect() as connection:
        connection.sendall(b"GET / HTT")
        assert connection.recv(1000) == b""


def test_slow_bodies_fill_slots_but_not_the_memory(server):
    request = head(server, Content_Type=FORM, Content_Length="400000") + b"x" * 100_000
    slow = [server.connect() for _ in range(LIMITS.waiting + 1)]
    for connection in slow:
        connection.sendall(request)
    server.until_taken(len(slow))
    assert {code_of(server.raw(request)) for _ in range(10)} == {"busy"}
    for connection in slow:
        connection.close()


def test_a_decompression_bomb_is_refused_by_its_header(server, bomb):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status, response = server.predict(bomb, SETTINGS)
    assert (status, response["error"]["code"]) == (413, "image_too_large")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x",
        b"--x\r\n\r\n\r\n--x--",
        b"--x\r\nContent-Disposition: form-data\r\n\r\nvalue\r\n--x--\r\n",
        b"--x\r\nContent-Disposition: form-data; name=image\r\n\r\n",
        b"--y\r\nContent-Disposition: form-data; name=image\r\n\r\n1\r\n--y--",
        b"--x\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n" * 1000 + b"--x--",
        b"\r\n" * 100_000,
        b"\xff\xfe" * 1000,
    ],
)
def test_broken_forms_are_refused(server, body):
    headers = {"Content-Type": FORM, "X-Dtpt-Request": "1"}
    status, _, response = server.request("POST", "/v1/predict", body=body, headers=headers)
    assert (status, json.loads(response)["error"]["code"]) == (400, "body_malformed")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=" + "x" * 300, 400),
        ("image/png", 415),
        ("", 415),
    ],
)
def test_odd_content_types_are_refused(server, kind, status):
    headers = {"Content-Type": kind, "X-Dtpt-Request": "1"}
    assert server.request("POST", "/v1/predict", body=b"xyz", headers=headers)[0] == status


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"classes": NaN}', b'{"a":' * 5000),
        *(b"\xff\xff", b'{"classes": [' + b"1," * 100_000 + b"1]}"),
    ],
)
def test_broken_json_is_refused(server, text):
    for headers in ({"Content-Type": "application/json"}, None):
        body = text
        if headers is None:
            body, headers = form(png(), text)
        status, _, response = server.request("POST", "/v1/predict", body=body, headers=headers)
        assert (status, json.loads(response)["error"]["code"]) == (422, "settings_invalid")
        assert len(response) < 1000


def test_pipelined_requests_are_answered_in_order(server):
    one = f"GET /healthz HTTP/1.1\r\nHost: {server.host}\r\n".encode()
    response = server.raw(one + b"\r\n" + one + b"\r\n" + one + b"Connection: close\r\n\r\n")
    assert response.count(b"HTTP/1.1 200 OK") == 3


def test_a_smuggled_second_request_is_not_answered(server):
    kind = {"Content_Type": "application/json"}
    both = head(server, Content_Length="5", Transfer_Encoding="chunked", **kind)
    response = server.raw(both + b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n")
    assert b"dtpt_requests_total" not in response


@pytest.mark.parametrize("line", [b"GET\r\n\r\n", b"\x16\x03\x01\x02", b"PRI * HTTP/2.0\r\n\r\n"])
def test_what_is_not_http_is_refused(impatient, line):
    assert impatient.raw(line)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 403")


def test_endless_headers_are_refused(server):
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for _ in range(2000):
                connection.sendall(b"X: " + b"y" * 1000 + b"\r\n")
        except OSError:
            return
        assert b"400" in connection.recv(1000)


def test_random_changes_of_an_image_never_cause_a_bug(server):
    random_ = random.Random(0)
    valid = png(24, 24)
    for _ in range(150):
        data = bytearray(valid)
        for _ in range(random_.randint(1, 8)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        status, response = server.predict(bytes(data), {**SETTINGS, "views": 2})
        assert status in (200, 413, 415, 422), response


@pytest.mark.parametrize("lines", [False, True], ids=["response", "lines"])
@pytest.mark.parametrize("moment", ["sent", "working"])
def test_work_ends_when_its_client_disconnects(held, moment, lines):
    body, headers = form(png(), SETTINGS)
    accept = {"Accept": "application/x-ndjson"} if lines else {}
    kind = headers["Content-Type"]
    request = head(held, Content_Length=str(len(body)), Content_Type=kind, **accept)
    with held.service.playground.hold():  # so that only a disconnected client can end it
        with held.connect() as connection:
            connection.sendall(request + body)
            if moment == "working":
                held.until_taken()
        held.until_idle()
    assert held.predict(png(), SETTINGS)[0] == 200


def test_disconnecting_in_the_middle_of_a_body_frees_the_slot(held):
    with held.connect() as connection:
        connection.sendall(head(held, Content_Type=FORM, Content_Length="400000") + b"x" * 1000)
        held.until_taken()
    held.until_idle()


def test_under_load_every_request_gets_a_result_or_a_time_to_try_again(held):
    responses: list[tuple[int, dict[str, str]]] = []
    body, headers = form(png(), {**SETTINGS, "methods": ["zero-shot"]})

    def send() -> None:
        status, received, _ = held.request("POST", "/v1/predict", body=body, headers=headers)
        responses.append((status, received))

    clients = [threading.Thread(target=send) for _ in range(60)]
    with held.service.playground.hold():
        for thread in clients:
            thread.start()
        held.until(lambda: len(responses) == 57)
        assert held.request("GET", "/healthz")[0] == 200
    for thread in clients:
        thread.join()
    statuses = [status for status, _ in responses]
    assert (statuses.count(503), statuses.count(200)) == (57, 3)  # one runs, two wait
    assert all(1 <= int(h["retry-after"]) <= 60 for status, h in responses if status == 503)


def test_work_ends_at_its_deadline(tiny_clip):
    limits = LIMITS.model_copy(update={"deadline": 0.1})
    playground = HeldPlayground(tiny_clip, name="tiny", limits=limits)
    with running(playground) as hasty, playground.hold():
        status, response = hasty.predict(png(), SETTINGS)
        assert (status, response["error"]["code"]) == (504, "deadline")
        hasty.until_idle()
