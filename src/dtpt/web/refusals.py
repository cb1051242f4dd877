"""Every refusal that a client can get: status, stable code, message, remedy."""

from dataclasses import dataclass, field
from typing import Any

from dtpt.errors import (
    DtptError,
    ImageError,
    MethodError,
    MetricError,
    PromptError,
    TokenizerError,
    UnknownName,
)


@dataclass(frozen=True)
class Kind:
    """One row of the table: HTTP status and what to do about it."""

    status: int
    remedy: str


# The codes are part of the interface: docs/serve.md lists them, clients may rely on them.
KINDS: dict[str, Kind] = {
    "host_refused": Kind(403, "Use the address that the server printed when it started."),
    "origin_refused": Kind(403, "Open the page of this server itself; other sites may not ask."),
    "header_missing": Kind(403, "Send JSON, or the header X-Dtpt-Request: 1 with other contents."),
    "token_missing": Kind(401, "Send the header Authorization: Bearer TOKEN."),
    "not_found": Kind(404, "See /openapi.json for the addresses that exist."),
    "wrong_method": Kind(405, "See /openapi.json for the methods of this address."),
    "picture_unknown": Kind(404, "Send the picture itself again; it is no longer in memory."),
    "body_too_slow": Kind(408, "Send the request again over a faster connection."),
    "body_too_large": Kind(413, "Send a smaller file."),
    "picture_too_large": Kind(413, "Shrink the picture."),
    "picture_unsupported": Kind(415, "Send a JPEG, PNG, WebP, GIF, BMP or AVIF file."),
    "body_unsupported": Kind(415, "Send multipart/form-data or application/json."),
    "picture_unreadable": Kind(422, "Save the picture again, for example as PNG."),
    "body_malformed": Kind(400, "Repair the body; the documentation shows an example."),
    "settings_invalid": Kind(422, "Correct the setting that the message names."),
    "classes_invalid": Kind(422, "Correct the class names or the template."),
    "method_invalid": Kind(422, "Use a method that /v1/methods lists, and a sensible weight."),
    "file_invalid": Kind(422, "Correct the file; the first line names the columns."),
    "request_invalid": Kind(422, "Correct what the message names."),
    "cancelled": Kind(499, "Ask again if the answer is still wanted."),
    "internal": Kind(500, "Ask again; if it stays, look into the server's log and report it."),
    "busy": Kind(503, "Ask again after the number of seconds in Retry-After."),
    "stopping": Kind(503, "Ask again when the server runs again."),
    "deadline": Kind(504, "Ask for fewer classes, methods or views, or raise --deadline."),
}

# Our own errors become refusals by their kind; the first that fits counts.
_CODES: tuple[tuple[type[DtptError], str], ...] = (
    (ImageError, "picture_unreadable"),
    (PromptError, "classes_invalid"),
    (TokenizerError, "classes_invalid"),
    (MethodError, "method_invalid"),
    (UnknownName, "method_invalid"),
    (MetricError, "file_invalid"),
    (DtptError, "request_invalid"),
)


@dataclass(eq=False)
class Refusal(Exception):
    """A request that is not answered.

    Attributes:
        code: one of `KINDS`.
        message: what is wrong with this request, for people.
        headers: to send along, such as Retry-After.
    """

    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return KINDS[self.code].status

    def body(self) -> dict[str, Any]:
        """Return the JSON that the client gets.

        Example:
            >>> Refusal("busy", "All places are taken.").body()["error"]["code"]
            'busy'
        """
        remedy = KINDS[self.code].remedy
        return {"error": {"code": self.code, "message": self.message, "remedy": remedy}}


def refused(error: DtptError) -> Refusal:
    """Return the refusal that one of our own errors stands for.

    Example:
        >>> refused(PromptError("The class list is empty.")).code
        'classes_invalid'
    """
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    return Refusal(code, str(error))
