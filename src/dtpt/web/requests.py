"""From HTTP to a question, and from its answer back to HTTP."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from python_multipart.exceptions import FormParserError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dtpt.errors import DtptError
from dtpt.web.limits import Limits
from dtpt.web.refusals import Refusal, refused
from dtpt.web.schemas import PredictSettings
from dtpt.web.worker import Job, Step

Result = TypeVar("Result", bound=BaseModel)
LINES = "application/x-ndjson"
logger = logging.getLogger("dtpt.web")


class _InMemoryParser(MultiPartParser):
    """Starlette's parser without its temporary files: 0 means that memory has no limit of its own.

    The body was read within the limits before.
    """

    spool_max_size = 0


async def read_question(
    body: bytes, content_type: str, *, limits: Limits
) -> tuple[bytes | None, PredictSettings]:
    """Return the picture (None if it is named by id) and the settings of a request.

    Raises:
        Refusal: the body is not what it says, or a setting makes no sense.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        settings = read_settings(body)
        if settings.picture_id is None:
            raise Refusal("settings_invalid", "JSON without a picture needs a picture_id.")
        return None, settings
    if kind != "multipart/form-data":
        raise Refusal("body_unsupported", f"The content type {kind[:40]!r} is not understood.")
    fields = await _fields(body, content_type, most=limits.body_bytes)
    picture, written = fields.get("picture"), fields.get("settings")
    if not picture or written is None:
        raise Refusal("body_malformed", "The form needs the fields 'picture' and 'settings'.")
    return picture, read_settings(written)


async def _fields(body: bytes, content_type: str, *, most: int) -> dict[str, bytes]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    headers = Headers({"content-type": content_type})
    parser = _InMemoryParser(headers, stream(), max_files=2, max_fields=2, max_part_size=most)
    try:
        form = await parser.parse()
    except (MultiPartException, FormParserError, ValueError, KeyError) as error:
        raise Refusal("body_malformed", f"The form cannot be read: {error}.") from None
    found = {}
    for name, value in form.multi_items():
        found[name] = await value.read() if isinstance(value, UploadFile) else value.encode()
    await form.close()
    return found


def read_settings(text: bytes) -> PredictSettings:
    """Read settings from JSON.

    Raises:
        Refusal: the message names the first setting at fault.

    Example:
        >>> read_settings(b'{"classes": ["cat", "dog"], "seed": 7}').seed
        7
    """
    try:
        return PredictSettings.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "settings"
        raise Refusal("settings_invalid", f"{place}: {first['msg']}.") from None


def as_refusal(error: BaseException) -> Refusal:
    """Return what a client is told about an exception; surprises go to the log."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, DtptError):
        return refused(error)
    logger.error("An answer failed.", exc_info=error)
    return Refusal("internal", "The server failed while it computed this answer.")


async def conclude(receive: Receive, future: "asyncio.Future[Result]", *, job: Job) -> Result:
    """Wait for work until it is done, its time is over or its client is gone.

    Raises:
        Refusal: there is no answer.
    """
    watcher = asyncio.create_task(_watch(receive, job))
    try:
        async with asyncio.timeout(job.deadline - time.monotonic()):
            return await asyncio.shield(future)
    except TimeoutError:
        raise Refusal("deadline", "The answer took longer than the server allows.") from None
    except Exception as error:
        raise as_refusal(error) from error
    finally:
        watcher.cancel()
        job.cancelled.set()  # if the work still runs, nobody waits for it


async def _watch(receive: Receive, job: Job) -> None:
    """Cancel the work when the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    job.cancelled.set()


class ProgressLines(StreamingResponse):
    """A response of JSON lines: progress as it comes, then the answer or an error.

    Args:
        start: submits the work; its job reports here.
        deadline: on the clock of `time.monotonic`.
    """

    def __init__(
        self, start: Callable[[Job], "asyncio.Future[Result]"], *, deadline: float
    ) -> None:
        super().__init__((), media_type=LINES)
        self._lines: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen(step: Step) -> None:
            line = {"progress": step._asdict()}
            loop.call_soon_threadsafe(self._lines.put_nowait, line)

        self._job = Job(deadline, listen)
        self._future = start(self._job)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        ending = asyncio.create_task(self._end(scope, receive))
        line: Mapping[str, object] = {}
        try:
            while not line.keys() & {"answer", "error"}:
                line = await self._lines.get()
                text = json.dumps(line, ensure_ascii=False) + "\n"
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        finally:
            ending.cancel()  # ends the work if this response was broken off
        await send({"type": "http.response.body", "body": b""})

    async def _end(self, scope: Scope, receive: Receive) -> None:
        try:
            answer = await conclude(receive, self._future, job=self._job)
            line: Mapping[str, object] = {"answer": answer.model_dump(mode="json", by_alias=True)}
        except Refusal as refusal:
            scope["refusal"] = refusal.code
            line = refusal.body()
        self._lines.put_nowait(line)


def wants_lines(request: Request) -> bool:
    """Tell whether the client asked for progress."""
    return LINES in request.headers.get("accept", "")
