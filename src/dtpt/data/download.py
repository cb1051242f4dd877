"""Downloading one large file over HTTP: resumed where it stopped, bounded, compared with its hash.

An address is `https://...`, or `hub:REPO@REVISION/FILE` for a file of the Hugging Face hub
(`HF_ENDPOINT` names another one). The hub states size and sha256 of its large files.
"""

import hashlib
import http.client
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dtpt.errors import DatasetError, os_error
from dtpt.files import printable

HUB = "https://huggingface.co"
SECONDS = 30  # without a byte
TRIES = 5  # in a row without progress
PAUSE = 1.0  # seconds, doubled after each try
CHUNK = 1 << 20
RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_BROKEN = (OSError, http.client.HTTPException)

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and those of the whole file, None where not known."""


@dataclass(frozen=True)
class Remote:
    """What a server states about a file."""

    size: int | None = None
    sha256: str = ""
    version: str = ""  # changes when the content does


def url_of(address: str) -> str:
    """Return where an address leads.

    Example:
        >>> url_of("hub:org/sets@main/a.zip")
        'https://huggingface.co/org/sets/resolve/main/a.zip'
    """
    if match := re.fullmatch(r"hub:([\w./-]+)@([\w.-]+)/(.+)", address):
        repo, revision, file = match.groups()
        endpoint = os.environ.get("HF_ENDPOINT") or HUB
        address = f"{endpoint.rstrip('/')}/{repo}/resolve/{revision}/{quote(file)}"
    if urlsplit(address).scheme not in ("http", "https"):
        raise DatasetError(f"{address!r} is no address that can be downloaded.")
    return address


def describe(address: str) -> Remote:
    """Ask the server for size, hash and version.

    Raises:
        DatasetError: It cannot be reached or does not have the file.
    """
    try:
        response, remote = _open(url_of(address), method="HEAD")
    except HTTPError as error:
        if error.code in (403, 405, 501):  # some servers answer GET alone
            return Remote()
        raise _unavailable(address, error) from error
    except _BROKEN as error:
        raise _unavailable(address, error) from error
    response.close()
    return remote


def download(
    address: str,
    path: Path,
    *,
    size: int | None = None,
    sha256: str = "",
    progress: Progress | None = None,
) -> None:
    """Download to a file; what an earlier call left in `NAME.part` is continued.

    Raises:
        DatasetError: The server is not reachable or stops again and again, the file has another
            size or hash, or the disk is full. All but a wrong hash keep the part.
    """
    part = path.with_name(f"{path.name}.part")
    failures, stated = 0, Remote(size, sha256)
    while True:
        before = _size(part)
        try:
            stated = _continue(address, part, stated=stated, progress=progress)
            if stated.size is None or _size(part) == stated.size:
                break
            reason: Exception = EOFError(f"ended after {_size(part):,} of {stated.size:,} bytes")
        except HTTPError as error:
            raise _unavailable(address, error) from error
        except _BROKEN as error:
            if getattr(error, "filename", None):  # of the file, not of the network
                raise DatasetError(f"Cannot write {printable(part)}: {os_error(error)}.") from error
            reason = error
        failures = 0 if _size(part) > before else failures + 1
        if failures >= TRIES:
            raise _unavailable(address, reason) from reason
        time.sleep(PAUSE * 2**failures)
    _check_hash(part, stated.sha256, address=address)
    os.replace(part, path)
    _version_file(part).unlink(missing_ok=True)


def _continue(address: str, part: Path, *, stated: Remote, progress: Progress | None) -> Remote:
    """Append what is missing, or begin anew where the server has another version by now."""
    start, version = _size(part), _version_file(part)
    headers = {}
    if start:
        headers["Range"] = f"bytes={start}-"
        known = version.read_text("utf-8") if version.exists() else ""
        headers |= {"If-Range": known} if known.startswith('"') else {}
    try:
        response, remote = _open(url_of(address), headers=headers)
    except HTTPError as error:
        if error.code != 416:  # nothing is missing, or there is less than we have
            raise
        whole = describe(address)
        if whole.size != start:
            part.unlink()
        return Remote(stated.size or whole.size, stated.sha256 or whole.sha256)
    with response:
        stated = Remote(stated.size or remote.size, stated.sha256 or remote.sha256)
        found = RANGE.match(response.headers.get("Content-Range", ""))
        is_rest = response.status == 206 and found is not None and int(found[1]) == start
        version.write_text(remote.version, "utf-8")
        done = start if is_rest else 0
        with part.open("ab" if is_rest else "wb") as stream:
            while data := response.read(CHUNK):
                done += len(data)
                if stated.size is not None and done > stated.size:
                    raise DatasetError(f"{address} has more than its {stated.size:,} bytes.")
                _append(stream, data, part=part)
                if progress is not None:
                    progress(done, stated.size)
    return stated


def _append(stream: Any, data: bytes, *, part: Path) -> None:
    try:
        stream.write(data)
    except OSError as error:  # a full disk is not a fault of the network
        raise DatasetError(
            f"Cannot write {printable(part)}: {os_error(error)}. What is there is kept: free some "
            "space and run the same command again."
        ) from error


class _Redirects(HTTPRedirectHandler):
    """Remembers what the hub says about a file before it redirects to where the file is."""

    def __init__(self) -> None:
        self.linked: dict[str, str] = {}

    def redirect_request(self, req: Request, *found: Any) -> Request | None:
        headers = found[3]
        stated = {name: headers.get(name) for name in ("X-Linked-Size", "X-Linked-Etag")}
        self.linked |= {name: value for name, value in stated.items() if value}
        new = super().redirect_request(req, *found)
        if new is not None:
            new.method = req.get_method()  # a HEAD would become a GET
        return new


def _open(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[Any, Remote]:
    redirects = _Redirects()
    request = Request(url, headers={"User-Agent": "dtpt", **(headers or {})}, method=method)  # noqa: S310 - see url_of
    response = build_opener(redirects).open(request, timeout=SECONDS)
    given = {**response.headers, **redirects.linked}
    found = RANGE.match(given.get("Content-Range", ""))
    length = found[2] if found else given.get("X-Linked-Size") or given.get("Content-Length") or ""
    etag = (given.get("X-Linked-Etag") or "").strip('"')
    return response, Remote(
        int(length) if length.isdecimal() else None,
        etag if re.fullmatch(r"[0-9a-f]{64}", etag) else "",
        response.headers.get("ETag", ""),
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def _check_hash(part: Path, sha256: str, *, address: str) -> None:
    if not sha256:
        return
    with part.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        part.unlink()
        _version_file(part).unlink(missing_ok=True)
        raise DatasetError(
            f"{address} has the sha256 {found[:12]}…, expected {sha256[:12]}…: the download is "
            "removed. Fetch it again, or take --source official."
        )


def _unavailable(address: str, error: Exception) -> DatasetError:
    is_url = isinstance(error, URLError) and not isinstance(error, HTTPError)
    reason = getattr(error, "reason", error) if is_url else error
    text = os_error(reason) if isinstance(reason, OSError) else str(reason)
    return DatasetError(
        f"{address} cannot be downloaded: {text}. What is here is kept: run the same command "
        "again, or take another --source or a local --archive."
    )
