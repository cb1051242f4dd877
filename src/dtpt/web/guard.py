"""What is refused before any work is done, and every error that a client can get.

A page of any site can make a browser send requests to this machine, and a host name that an
attacker owns can be pointed at this machine's address (DNS rebinding). So the Host header must be
exactly one of this server's names, an Origin header must be exactly its own, and a POST must carry
something that a form of another site cannot send: a JSON content type or a header of ours. Both
make a browser ask for permission first (CORS preflight), which no site gets.
"""

import asyncio
import hashlib
import hmac
import io
import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fastapi.exceptions import RequestValidationError
from PIL import Image
from pydantic import ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dtpt import errors
from dtpt.errors import DtptError, explain
from dtpt.web.options import Limits

# Status and remedy by code. The codes are part of the interface: docs/serve.md lists them.
CODES: dict[str, tuple[int, str]] = {
    "host_refused": (403, "Use the address that the server printed when it started."),
    "origin_refused": (403, "Open this server's own page; other sites have no access."),
    "header_missing": (403, "Send JSON, or the header X-Dtpt-Request: 1 with other contents."),
    "token_missing": (401, "Send the header Authorization: Bearer TOKEN."),
    "not_found": (404, "See /openapi.json for the addresses that exist."),
    "wrong_method": (405, "See /openapi.json for the methods of this address."),
    "image_unknown": (404, "Send the image itself again; it is no longer in memory."),
    "body_too_slow": (408, "Send the request again over a faster connection."),
    "body_too_large": (413, "Send a smaller file."),
    "image_too_large": (413, "Shrink the image."),
    "image_unsupported": (415, "Send a JPEG, PNG, WebP, GIF, BMP or AVIF file."),
    "body_unsupported": (415, "Send multipart/form-data or application/json."),
    "image_unreadable": (422, "Save the image again, for example as PNG."),
    "http_malformed": (400, "Send HTTP/1.1 with at most 32,768 bytes of headers."),
    "body_malformed": (400, "Correct the body; docs/serve.md has an example."),
    "settings_invalid": (422, "Correct the setting that the message names."),
    "classes_invalid": (422, "Correct the class names or the template."),
    "method_invalid": (422, "Use a method that /v1/methods lists, with a λ that is valid for it."),
    "file_invalid": (422, "Correct the file; its first line names the columns."),
    "request_invalid": (422, "Correct what the message names."),
    "cancelled": (499, "Send the request again if the result is still needed."),
    "internal": (500, "Try again; if it fails again, see the server's log and report it."),
    "busy": (503, "Try again after the number of seconds in Retry-After."),
    "stopping": (503, "Try again when the server runs again."),
    "deadline": (504, "Use fewer classes, methods or views, or raise --deadline."),
}

# After these the connection is closed: a body may follow that is not read.
_CLOSING = {"host_refused", "origin_refused", "header_missing", "token_missing", "body_too_slow"}
_CLOSING |= {"body_too_large", "http_malformed", "busy", "stopping"}

# The first kind that fits gives the code.
_CODES_OF_ERRORS: tuple[tuple[type[DtptError], str], ...] = (
    (errors.ImageError, "image_unreadable"),
    (errors.PromptError, "classes_invalid"),
    (errors.TokenizerError, "classes_invalid"),
    (errors.MethodError, "method_invalid"),
    (errors.UnknownName, "method_invalid"),
    (errors.MetricError, "file_invalid"),
    (DtptError, "request_invalid"),
)

REQUEST_HEADER = "x-dtpt-request"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LEAST_TOKEN = 16
OPEN_PATHS = ("/", "/healthz", "/readyz")  # and /static/: the page itself shows the token dialog
IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")

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

logger = logging.getLogger("dtpt.web")


@dataclass(eq=False)
class Refusal(Exception):
    """A request that gets an error instead of a result."""

    code: str  # one of `CODES`
    message: str  # what is wrong with this request
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the JSON of the response."""
        remedy = CODES[self.code][1]
        return {"error": {"code": self.code, "message": self.message, "remedy": remedy}}

    def response(self) -> JSONResponse:
        closing = {"Connection": "close"} if self.code in _CLOSING else {}
        return JSONResponse(self.body(), CODES[self.code][0], self.headers | closing)


def as_refusal(error: BaseException) -> Refusal:
    """Return what the client gets for an exception; details of a bug go to the log only."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, DtptError):
        code = next(code for kind, code in _CODES_OF_ERRORS if isinstance(error, kind))
        return Refusal(code, str(error))
    if isinstance(error, ValidationError | RequestValidationError):
        return Refusal("settings_invalid", f"{explain(error)}.")
    if isinstance(error, HTTPException):  # the framework's own: unknown address, wrong method
        code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "request_invalid")
        return Refusal(code, f"{error.detail}.", dict(error.headers or {}))
    logger.error("A request failed.", exc_info=error)
    return Refusal("internal", "The server failed while it computed this result.")


@dataclass(frozen=True)
class Access:
    """Which requests are accepted."""

    hosts: frozenset[str]  # of the Host header, with the port where browsers include it
    origins: frozenset[str]  # of the Origin header
    token: str | None = None  # that clients must send
    every_address: bool = False  # the address that a client connected to is ours, too


def access(host: str, port: int, *, names: Iterable[str] = (), token: str | None = None) -> Access:
    """Return which requests a server on an address accepts.

    `names`: further values of the Host header, such as `dtpt.example.org` behind a proxy. An
    address that other machines can reach needs a token.

    Example:
        >>> sorted(access("127.0.0.1", 8000).hosts)
        ['127.0.0.1:8000', 'localhost:8000']
        >>> sorted(access("::1", 80).origins)
        ['http://[::1]', 'http://[::1]:80', 'http://localhost', 'http://localhost:80']
    """
    _check_token(host, token)
    everywhere = host in ("0.0.0.0", "::")  # noqa: S104 (only compared)
    addresses = {bracketed(host)} | ({"localhost"} if everywhere or host in LOOPBACK else set())
    hosts = {f"{address}:{port}" for address in addresses}
    if port == 80:
        hosts |= addresses
    given = {name.strip().lower() for name in names}
    origins = {f"http://{name}" for name in hosts | given} | {f"https://{name}" for name in given}
    return Access(frozenset(hosts | given), frozenset(origins), token, everywhere)


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_token(host: str, token: str | None) -> None:
    if token is None:
        if host not in LOOPBACK:
            raise DtptError(
                f"Other machines can reach {host}: give --token (or DTPT_TOKEN), for example the "
                "output of: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    elif len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise DtptError(f"A token needs at least {LEAST_TOKEN} printable ASCII characters.")


class Guard:
    """ASGI layer that refuses what `access` excludes and adds `HEADERS` to every response."""

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        is_started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            check_request(scope, self.access)
            await self.app(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the time for requests under way is over
            refusal = Refusal("stopping", "The server is stopping.")
        except Exception as error:
            # the framework raises an error again after it was logged and sent as a response
            if scope.get("refusal") == "internal":
                return
            refusal = as_refusal(error)
        else:
            return
        scope["refusal"] = refusal.code
        if not is_started:
            await refusal.response()(scope, receive, send_with_headers)


def check_request(scope: Scope, access: Access) -> None:
    """Raise a `Refusal` if the headers of a request are not those of an accepted one."""
    headers = Headers(scope=scope)
    here = set()
    if access.every_address:
        host, port = scope["server"]
        here = {f"{bracketed(host)}:{port}"}
    hosts, origins = headers.getlist("host"), headers.getlist("origin")
    if len(hosts) != 1 or hosts[0].lower() not in access.hosts | here:
        raise Refusal("host_refused", f"{_short(hosts)} is not a host name of this server.")
    ours = access.origins | {f"http://{host}" for host in here}
    if origins and (len(origins) != 1 or origins[0].lower() not in ours):
        raise Refusal("origin_refused", f"Requests from {_short(origins)} are refused.")
    if scope["method"] not in ("GET", "HEAD") and not _is_deliberate(headers):
        raise Refusal("header_missing", "The request could come from a form of another site.")
    is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith("/static/")
    if access.token is not None and not is_open:
        _check_bearer(headers.get("authorization", ""), access.token)


def content_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_deliberate(headers: Headers) -> bool:
    return content_type(headers) == "application/json" or REQUEST_HEADER in headers


def _check_bearer(given: str, token: str) -> None:
    # compared in constant time; hashes hide the length too
    hashed = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
    expected = hashlib.sha256(f"Bearer {token}".encode()).digest()
    if not hmac.compare_digest(hashed, expected):
        challenge = {"WWW-Authenticate": "Bearer"}
        raise Refusal("token_missing", "The token is missing or wrong.", challenge)


def _short(values: list[str]) -> str:
    return repr((", ".join(values) or "nothing")[:80])


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read a body, or raise a `Refusal`: too large (stated or sent), too slow, disconnected."""
    most, body = limits.max_body_bytes, bytearray()
    too_large = Refusal("body_too_large", f"The body is larger than {most:,} bytes.")
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated) > most:
        raise too_large
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        message = f"The body did not arrive within {limits.body_seconds:g} seconds."
        raise Refusal("body_too_slow", message) from None
    except ClientDisconnect:
        raise Refusal("cancelled", "The client went away.") from None
    return bytes(body)


def check_image(data: bytes, limits: Limits) -> None:
    """Raise a `Refusal` for a format or size that is not accepted; only the header is read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
                width, height = image.size
    except Image.DecompressionBombError as error:
        raise Refusal("image_too_large", f"The image is too large ({error}).") from None
    except Exception:  # decoders raise many kinds; all of them mean that it is not an image
        formats = ", ".join(IMAGE_FORMATS)
        raise Refusal("image_unsupported", f"The file is not an image ({formats}).") from None
    if width * height > limits.max_pixels:
        message = f"The image has {width} × {height} pixels, more than {limits.max_pixels:,}."
        raise Refusal("image_too_large", message)
