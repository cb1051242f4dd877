"""Host, origin, header and token of requests; headers of every response."""

import pytest
from live_server import SETTINGS, form, png, running

from dtpt.errors import DtptError
from dtpt.web.guard import Access, Refusal, access, check_request
from dtpt.web.options import Limits, ServeOptions
from dtpt.web.playground import Playground

TOKEN = "correct-horse-battery"


def scope(host: str | None, *, method: str = "GET", path: str = "/v1/models", **headers: str):
    pairs = [] if host is None else [(b"host", host.encode())]
    pairs += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    server = ("192.0.2.7", 8000)
    return {"type": "http", "method": method, "path": path, "headers": pairs, "server": server}


def refused(given: dict[str, object], allowed: Access) -> str:
    try:
        check_request(given, allowed)
    except Refusal as refusal:
        return refusal.code
    return ""


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000"])
def test_its_own_names_are_accepted(host):
    assert refused(scope(host), access("127.0.0.1", 8000)) == ""


@pytest.mark.parametrize(
    "host",
    [
        "localhost.evil.example:8000",
        "evil.localhost:8000",
        "127.0.0.1.evil.example:8000",
        "evil-127.0.0.1:8000",
        "127.0.0.1:8001",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:80000",
        "127.0.0.1:8000@evil.example",
        "evil.example",
        "0.0.0.0:8000",
        "[::1]:8000",
        "[::ffff:127.0.0.1]:8000",
        "2130706433:8000",
        "127.1:8000",
        "127.0.0.1:8000, evil.example",
        " 127.0.0.1:8000",
        "",
        None,
    ],
)
def test_other_forms_of_the_host_are_refused(host):
    assert refused(scope(host), access("127.0.0.1", 8000)) == "host_refused"


def test_two_hosts_are_refused():
    given = scope("127.0.0.1:8000")
    given["headers"].append((b"host", b"127.0.0.1:8000"))
    assert refused(given, access("127.0.0.1", 8000)) == "host_refused"


def test_ipv6_is_written_in_brackets():
    allowed = access("::1", 8000)
    assert refused(scope("[::1]:8000"), allowed) == ""
    for host in ("::1:8000", "[::1]", "[0:0:0:0:0:0:0:1]:8000", "[::1]:8000.evil.example"):
        assert refused(scope(host), allowed) == "host_refused"


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "http://localhost.evil.example:8000",
        "http://127.0.0.1:8000.evil.example",
        "http://evil.example/http://127.0.0.1:8000",
        "http://127.0.0.1:8001",
        "http://127.0.0.1",
        "https://127.0.0.1:8000",
        "file://",
        "http://[::1]:8000",
        "chrome-extension://abcdefgh",
        "",
    ],
)
def test_other_origins_are_refused(origin):
    given = scope("127.0.0.1:8000", origin=origin)
    assert refused(given, access("127.0.0.1", 8000)) == "origin_refused"


def test_its_own_origin_is_accepted():
    given = scope("127.0.0.1:8000", origin="http://127.0.0.1:8000")
    assert refused(given, access("127.0.0.1", 8000)) == ""


def test_names_behind_a_proxy_must_be_given():
    allowed = access("127.0.0.1", 8000, names=["dtpt.example.org"])
    assert refused(scope("dtpt.example.org", origin="https://dtpt.example.org"), allowed) == ""
    assert refused(scope("x.dtpt.example.org"), allowed) == "host_refused"


def test_a_server_on_all_addresses_answers_to_the_one_it_was_reached_at():
    allowed = access("0.0.0.0", 8000, token=TOKEN)
    authorization = f"Bearer {TOKEN}"
    own = scope("192.0.2.7:8000", origin="http://192.0.2.7:8000", authorization=authorization)
    assert refused(own, allowed) == ""
    other = scope("192.0.2.8:8000", authorization=authorization)
    assert refused(other, allowed) == "host_refused"
    assert refused(scope("evil.example:8000", authorization=authorization), allowed)


def test_another_address_needs_a_long_token():
    with pytest.raises(DtptError, match="--token"):
        access("0.0.0.0", 8000)
    for token in ("short", "", "ключ-ключ-ключ-ключ", "line\nbreak-line-break"):
        with pytest.raises(DtptError, match="16"):
            access("0.0.0.0", 8000, token=token)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "header_missing"),
        ({"content_type": "text/plain"}, "header_missing"),
        ({"content_type": "multipart/form-data; boundary=x"}, "header_missing"),
        ({"content_type": "application/x-www-form-urlencoded"}, "header_missing"),
        ({"content_type": "text/plain; application/json"}, "header_missing"),
        ({"content_type": "application/json"}, ""),
        ({"content_type": "multipart/form-data; boundary=x", "x_dtpt_request": "1"}, ""),
    ],
)
def test_a_post_must_be_one_that_no_foreign_form_can_send(headers, code):
    given = scope("127.0.0.1:8000", method="POST", **headers)
    assert refused(given, access("127.0.0.1", 8000)) == code


@pytest.fixture(scope="module")
def guarded(tiny_clip):
    with running(Playground(tiny_clip, name="tiny", limits=Limits()), token=TOKEN) as started:
        yield started


@pytest.mark.parametrize(
    "given", [None, "", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"bearer {TOKEN}"]
)
def test_a_wrong_token_is_refused_everywhere_but_on_the_page(guarded, given):
    headers = {} if given is None else {"Authorization": given}
    for path in ("/v1/models", "/v1/classes", "/metrics", "/openapi.json", "/nothing"):
        assert guarded.request("GET", path, headers=headers)[0] == 401
    for path in ("/", "/static/app.js", "/healthz", "/readyz"):
        assert guarded.request("GET", path, headers=headers)[0] == 200


def test_the_right_token_opens(guarded):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.request("GET", "/v1/models", headers=headers)[0] == 200
    assert guarded.predict(png(), SETTINGS, headers)[0] == 200
    assert guarded.predict(png(), SETTINGS)[0] == 401


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/v1/models", "/healthz", "/nothing"])
def test_every_response_has_the_security_headers(server, path):
    _, headers, _ = server.request("GET", path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_refused_requests_have_them_too(server):
    _, headers, body = server.request("GET", "/", headers={"Host": "evil.example"})
    assert headers["x-content-type-options"] == "nosniff"
    assert b"host_refused" in body


def test_no_permission_is_given_to_other_sites(server):
    headers = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    status, answered, _ = server.request("OPTIONS", "/v1/predict", headers=headers)
    assert status == 403
    assert not [name for name in answered if name.startswith("access-control")]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/server.py",
        "/static/....//app.py",
        "/static/%00",
        "/v1/classes/../../etc/passwd",
        "/v1/classes/%2e%2e%2fopenmoji",
        "/v1/examples/..%2f..%2fetc%2fpasswd",
        "/v1/thumbnails/..%2fx",
        "//etc/passwd",
    ],
)
def test_no_path_of_a_client_reaches_the_disk(server, path):
    status, _, body = server.request("GET", path)
    assert status == 404
    assert b"root:" not in body
    assert b"import" not in body


def test_log_lines_hold_nothing_that_a_client_sent(server):
    before = len(server.log)
    settings = {**SETTINGS, "classes": ["my secret", "other"]}
    server.predict(png(), settings)
    server.request("GET", "/my-secret-path?my=secret")
    server.request("GET", "/", headers={"Host": "my-secret.example"})
    server.until(lambda: len(server.log) >= before + 3)  # a line is written when all was sent
    assert "secret" not in "".join(server.log)


def test_a_foreign_form_never_reaches_the_handlers(server):
    body, headers = form(png(), SETTINGS)
    del headers["X-Dtpt-Request"]
    status, _, answer = server.request("POST", "/v1/predict", body=body, headers=headers)
    assert (status, b"header_missing" in answer) == (403, True)


def test_published_limits_hold_no_secret_of_the_operator():
    options = ServeOptions(token=TOKEN, evidence=("/secret",), waiting=3)
    assert options.limits.waiting == 3
    assert not options.limits.model_dump().keys() & {"token", "evidence", "host"}
