"""Requests that mean harm, or come from a bad line: refused, and the next good one is answered."""

import json
import random
import resource
import socket
import threading
import time

import pytest
from live_server import LIMITS, SETTINGS, everything, form, png, running

from dtpt.web.answering import Playground


@pytest.fixture(autouse=True)
def still_answers(server):
    """After every attack a good request is answered, no place is lost, nothing was a surprise."""
    yield
    server.until_idle()
    status, answer = server.predict(png(), SETTINGS)
    assert status == 200, answer
    assert not [line for line in server.log if '"status": 500' in line]


def head(server, *, path: str = "/v1/predict", method: str = "POST", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {server.host}", "X-Dtpt-Request: 1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def code_of(answer: bytes) -> str:
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(server):
    started = time.monotonic()
    kind = "multipart/form-data; boundary=x"
    answer = server.raw(head(server, Content_Type=kind, Content_Length="10000000000"))
    assert code_of(answer) == "body_too_large"
    assert time.monotonic() - started < LIMITS.body_seconds


def test_a_chunked_body_is_cut_off_at_the_limit(server):
    kind = "multipart/form-data; boundary=x"
    request = head(server, Content_Type=kind, Transfer_Encoding="chunked")
    chunk = b"186a0\r\n" + b"x" * 100_000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        sent = 0
        try:
            while sent < 100 * LIMITS.body_bytes:
                connection.sendall(chunk)
                sent += 100_000
        except OSError:  # the server closed: that is the point
            pass
    assert sent < 30 * LIMITS.body_bytes


@pytest.mark.parametrize("length", ["-1", "1e9", "99999999999999999999999999", "abc"])
def test_odd_lengths_are_refused(server, length):
    answer = server.raw(head(server, Content_Type="application/json", Content_Length=length))
    assert answer.split(b" ")[1] in (b"400", b"413")


def test_a_slow_body_loses_its_place_in_time(server):
    kind = "multipart/form-data; boundary=x"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head(server, Content_Type=kind, Content_Length="1000"))
        started = time.monotonic()
        connection.sendall(b"--x\r\n")
        answer = everything(connection)
    assert code_of(answer) == "body_too_slow"
    assert time.monotonic() - started < 10 * LIMITS.body_seconds


def test_a_connection_that_never_asks_is_closed(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"GET / HTT")
        assert connection.recv(1000) == b""


def test_slow_bodies_cannot_fill_the_memory_only_the_places(server):
    kind = "multipart/form-data; boundary=x"
    request = head(server, Content_Type=kind, Content_Length="400000") + b"x" * 100_000
    crowd = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(20)]
    for connection in crowd:
        connection.sendall(request)
    codes = [code_of(everything(connection)) for connection in crowd]
    for connection in crowd:
        connection.close()
    assert set(codes) == {"busy", "body_too_slow"}
    assert codes.count("body_too_slow") <= LIMITS.waiting + 1


def test_a_bomb_is_refused_by_its_header(server, bomb):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    status, answer = server.predict(bomb, SETTINGS)
    assert (status, answer["error"]["code"]) == (413, "picture_too_large")
    assert "13000 × 13000" in answer["error"]["message"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x",
        b"--x\r\n\r\n\r\n--x--",
        b"--x\r\nContent-Disposition: form-data\r\n\r\nvalue\r\n--x--\r\n",
        b"--x\r\nContent-Disposition: form-data; name=picture\r\n\r\n",
        b"--y\r\nContent-Disposition: form-data; name=picture\r\n\r\n1\r\n--y--",
        b"--x\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n" * 1000 + b"--x--",
        b"\r\n" * 100_000,
        b"\xff\xfe" * 1000,
    ],
)
def test_broken_forms_are_refused(server, body):
    headers = {"Content-Type": "multipart/form-data; boundary=x", "X-Dtpt-Request": "1"}
    status, _, answer = server.ask("POST", "/v1/predict", body=body, headers=headers)
    assert (status, json.loads(answer)["error"]["code"]) == (400, "body_malformed")


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
    assert server.ask("POST", "/v1/predict", body=b"xyz", headers=headers)[0] == status


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"classes": NaN}', b'{"a":' * 5000, b"\xff\xff"],
)
def test_broken_json_is_refused(server, text):
    for headers in ({"Content-Type": "application/json"}, None):
        body = text
        if headers is None:
            body, headers = form(png(), text)
        status, _, answer = server.ask("POST", "/v1/predict", body=body, headers=headers)
        assert (status, json.loads(answer)["error"]["code"]) == (422, "settings_invalid")


def test_pipelined_requests_are_answered_in_order(server):
    one = f"GET /healthz HTTP/1.1\r\nHost: {server.host}\r\n".encode()
    answer = server.raw(one + b"\r\n" + one + b"\r\n" + one + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_a_smuggled_second_request_is_no_request(server):
    kind = {"Content_Type": "application/json"}
    both = head(server, Content_Length="5", Transfer_Encoding="chunked", **kind)
    answer = server.raw(both + b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n")
    assert b"dtpt_requests_total" not in answer


@pytest.mark.parametrize("line", [b"GET\r\n\r\n", b"\x16\x03\x01\x02", b"PRI * HTTP/2.0\r\n\r\n"])
def test_what_is_no_http_is_turned_away(server, line):
    assert server.raw(line)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 403")


def test_endless_headers_are_turned_away(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for _ in range(2000):
                connection.sendall(b"X: " + b"y" * 1000 + b"\r\n")
        except OSError:
            return
        assert b"400" in connection.recv(1000)


def test_random_changes_of_a_picture_are_never_a_surprise(server):
    random_ = random.Random(0)
    good = {"PNG": png(24, 24)}
    for _ in range(150):
        data = bytearray(random_.choice(list(good.values())))
        for _ in range(random_.randint(1, 8)):
            data[random_.randrange(len(data))] = random_.randrange(256)
        status, answer = server.predict(bytes(data), {**SETTINGS, "views": 2})
        assert status in (200, 413, 415, 422), answer


class Slow(Playground):
    """Works in small pieces, so that a client can leave in the middle of any of them."""

    stages = ("views", "features", "methods")

    def predict(self, picture, settings, *, job):
        for stage in self.stages:
            for done in range(20):
                time.sleep(0.005)
                job.progress(stage)(done + 1, 20)
        return super().predict(picture, settings, job=job)


@pytest.fixture(scope="module")
def slow(tiny_clip):
    with running(Slow(tiny_clip, name="tiny", limits=LIMITS)) as found:
        yield found


@pytest.mark.parametrize("lines", [False, True], ids=["answer", "lines"])
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1, 0.2])
def test_work_ends_soon_after_its_client_has_gone(slow, seconds, lines):
    body, headers = form(png(), SETTINGS)
    accept = {"Accept": "application/x-ndjson"} if lines else {}
    request = head(
        slow, Content_Length=str(len(body)), Content_Type=headers["Content-Type"], **accept
    )
    with socket.create_connection(("127.0.0.1", slow.port), timeout=20) as connection:
        connection.sendall(request + body)
        time.sleep(seconds)
    slow.until_idle(2)
    assert slow.predict(png(), SETTINGS)[0] == 200


def test_leaving_in_the_middle_of_a_body_gives_the_place_back(slow):
    kind = "multipart/form-data; boundary=x"
    with socket.create_connection(("127.0.0.1", slow.port), timeout=20) as connection:
        connection.sendall(head(slow, Content_Type=kind, Content_Length="400000") + b"x" * 1000)
        time.sleep(0.05)
    slow.until_idle(2)


def test_a_crowd_gets_answers_or_is_told_to_come_again(slow):
    found: list[tuple[int, dict[str, str]]] = []
    body, headers = form(png(), {**SETTINGS, "methods": ["zero-shot"]})

    def ask() -> None:
        status, answered, _ = slow.ask("POST", "/v1/predict", body=body, headers=headers)
        found.append((status, answered))

    crowd = [threading.Thread(target=ask) for _ in range(60)]
    for thread in crowd:
        thread.start()
    started = time.monotonic()
    assert slow.ask("GET", "/healthz")[0] == 200
    assert time.monotonic() - started < 5
    for thread in crowd:
        thread.join()
    statuses = [status for status, _ in found]
    assert len(statuses) == 60
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 3
    assert all(1 <= int(h["retry-after"]) <= 60 for status, h in found if status == 503)


def test_an_answer_that_takes_too_long_is_given_up(tiny_clip):
    hasty = LIMITS.model_copy(update={"deadline": 0.1})
    with running(Slow(tiny_clip, name="tiny", limits=hasty)) as found:
        status, answer = found.predict(png(), SETTINGS)
        assert (status, answer["error"]["code"]) == (504, "deadline")
        found.until_idle(2)
