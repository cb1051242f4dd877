"""Who may ask: checks of host, origin, header and token on every request.

A page of any site can make a browser send requests to this machine, and a name that an attacker
owns can be pointed at this machine's address. So the Host header must be exactly one that this
server answers to, an Origin header must be exactly its own, and a POST must carry something that a
form of another site cannot send (a JSON content type or a header of ours; both make a browser ask
for permission first, which nobody gets).
"""

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dtpt.errors import DtptError
from dtpt.web.refusals import Refusal

REQUEST_HEADER = "x-dtpt-request"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LEAST_TOKEN = 16
OPEN_PATHS = ("/", "/healthz", "/readyz", "/static/")  # the page can ask for a token only itself

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """What a request must show.

    Attributes:
        hosts: values of the Host header that are ours, port included where browsers include it.
        origins: values of the Origin header that are ours.
        token: that clients must know; None for everybody on this machine.
        every_address: the server listens on all addresses, so the one that a client connected to
            is ours too.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    token: str | None = None
    every_address: bool = False


def access(host: str, port: int, *, names: Iterable[str] = (), token: str | None = None) -> Access:
    """Return who may ask a server that listens on an address.

    Args:
        host: address, such as 127.0.0.1, ::1 or 0.0.0.0.
        port: of the socket.
        names: further values of the Host header, such as `dtpt.example.org` behind a proxy.
        token: that clients must send; needed unless the address is a loopback one.

    Raises:
        DtptError: an address that others can reach without a token, or a token that is too short.

    Example:
        >>> sorted(access("127.0.0.1", 8000).hosts)
        ['127.0.0.1:8000', 'localhost:8000']
        >>> sorted(access("::1", 80).origins)
        ['http://[::1]', 'http://[::1]:80', 'http://localhost', 'http://localhost:80']
    """
    _check_token(host, token)
    everywhere = host in ("0.0.0.0", "::")  # noqa: S104 (only compared)
    addresses = {_bracketed(host)} | ({"localhost"} if everywhere or host in LOOPBACK else set())
    own = {f"{address}:{port}" for address in addresses}
    if port == 80:
        own |= addresses
    given = {name.strip().lower() for name in names}
    origins = {f"http://{name}" for name in own | given} | {f"https://{name}" for name in given}
    return Access(frozenset(own | given), frozenset(origins), token, everywhere)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_token(host: str, token: str | None) -> None:
    if token is None:
        if host not in LOOPBACK:
            raise DtptError(
                f"{host} can be reached by others: give --token (or DTPT_TOKEN), for example the "
                "output of: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    elif len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise DtptError(f"A token needs at least {LEAST_TOKEN} printable ASCII characters.")


class Guard:
    """The outermost layer of the service: refuses what may not ask, adds headers to every answer.

    Args:
        app: what is guarded.
        access: who may ask.
    """

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            check_request(scope, self.access)
        except Refusal as refusal:
            scope["refusal"] = refusal.code
            headers = {"Connection": "close", **refusal.headers}
            answer = JSONResponse(refusal.body(), refusal.status, headers)
            await answer(scope, receive, sending)
            return
        await self.app(scope, receive, sending)


def check_request(scope: Scope, access: Access) -> None:
    """Look at the headers of a request.

    Raises:
        Refusal: it does not come from where it may come from.
    """
    headers = Headers(scope=scope)
    here = {_own_address(scope)} if access.every_address else set()
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or hosts[0].lower() not in access.hosts | here:
        raise Refusal("host_refused", f"This server is not called {_short(hosts)}.")
    ours = access.origins | {f"http://{host}" for host in here}
    if origins and (len(origins) != 1 or origins[0].lower() not in ours):
        raise Refusal("origin_refused", f"Requests from {_short(origins)} are refused.")
    if scope["method"] not in ("GET", "HEAD") and not _is_deliberate(headers):
        raise Refusal("header_missing", "The request could come from a form of another site.")
    if access.token is not None and not _is_open(scope["path"]):
        _check_bearer(headers.get("authorization", ""), access.token)


def _own_address(scope: Scope) -> str:
    host, port = scope["server"]
    return f"{_bracketed(host)}:{port}"


def _is_deliberate(headers: Headers) -> bool:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or REQUEST_HEADER in headers


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith("/static/")


def _check_bearer(given: str, token: str) -> None:
    """Compare in constant time; hashing hides the length too."""
    shown = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
    wanted = hashlib.sha256(f"Bearer {token}".encode()).digest()
    if not hmac.compare_digest(shown, wanted):
        challenge = {"WWW-Authenticate": "Bearer"}
        raise Refusal("token_missing", "The token is missing or wrong.", challenge)


def _short(values: list[str]) -> str:
    text = ", ".join(values) or "nothing"
    return repr(text[:80])
