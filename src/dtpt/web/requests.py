"""From HTTP to an image with settings, and from the result back to HTTP."""

import asyncio
import json
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

from dtpt.web.guard import Refusal, as_refusal, content_type
from dtpt.web.options import Limits
from dtpt.web.queue import Job, Step
from dtpt.web.schemas import PredictSettings

Result = TypeVar("Result", bound=BaseModel)
LINES = "application/x-ndjson"


class _InMemoryParser(MultiPartParser):
    """Starlette's parser without its temporary files; the body is within its limit already."""

    spool_max_size = 0  # no limit of memory


async def read_predict_request(
    body: bytes, headers: Headers, *, limits: Limits
) -> tuple[bytes | None, PredictSettings]:
    """Return the image (None if the settings name it by id) and the settings."""
    kind = content_type(headers)
    if kind == "application/json":
        settings = read_settings(body)
        if settings.image_id is None:
            raise Refusal("settings_invalid", "image_id: is missing; JSON has no image.")
        return None, settings
    if kind != "multipart/form-data":
        raise Refusal("body_unsupported", f"The content type {kind[:40]!r} is not supported.")
    fields = await _form_fields(body, headers, most=limits.max_body_bytes)
    image, settings_json = fields.get("image"), fields.get("settings")
    if not image or settings_json is None:
        raise Refusal("body_malformed", "The form needs the fields 'image' and 'settings'.")
    return image, read_settings(settings_json)


async def _form_fields(body: bytes, headers: Headers, *, most: int) -> dict[str, bytes]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _InMemoryParser(headers, stream(), max_files=2, max_fields=2, max_part_size=most)
    try:
        form = await parser.parse()
    except (MultiPartException, FormParserError, ValueError, KeyError) as error:
        raise Refusal("body_malformed", f"The form cannot be read: {error}.") from None
    fields = {}
    for name, value in form.multi_items():
        fields[name] = await value.read() if isinstance(value, UploadFile) else value.encode()
    await form.close()
    return fields


def read_settings(text: bytes) -> PredictSettings:
    """Read settings from JSON; a `Refusal` names the first invalid one."""
    try:
        return PredictSettings.model_validate_json(text)
    except ValidationError as error:
        raise as_refusal(error) from None


async def result_of(receive: Receive, future: "asyncio.Future[Result]", *, job: Job) -> Result:
    """Wait for a result; raise a `Refusal` when the work fails or its deadline passes."""
    watcher = asyncio.create_task(_cancel_on_disconnect(receive, job))
    try:
        async with asyncio.timeout(job.deadline - time.monotonic()):
            return await asyncio.shield(future)
    except TimeoutError:
        message = "The computation took longer than the server allows."
        raise Refusal("deadline", message) from None
    except Exception as error:
        raise as_refusal(error) from error
    finally:
        watcher.cancel()
        job.cancelled.set()  # ends work that still runs


async def _cancel_on_disconnect(receive: Receive, job: Job) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    job.cancelled.set()


class ProgressLines(StreamingResponse):
    """JSON lines: progress as it is made, then the result or an error; `start` submits the work."""

    def __init__(
        self, start: Callable[[Job], "asyncio.Future[Result]"], *, deadline: float
    ) -> None:
        super().__init__((), media_type=LINES)
        self._lines: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def listen(step: Step) -> None:
            loop.call_soon_threadsafe(self._lines.put_nowait, {"progress": step})

        self._job = Job(deadline, listen)
        self._future = start(self._job)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        ending = asyncio.create_task(self._add_last_line(scope, receive))
        line: Mapping[str, object] = {}
        try:
            while not line.keys() & {"result", "error"}:
                line = await self._lines.get()
                text = json.dumps(line, ensure_ascii=False) + "\n"
                await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        finally:
            ending.cancel()  # ends the work if the client has disconnected
        await send({"type": "http.response.body", "body": b""})

    async def _add_last_line(self, scope: Scope, receive: Receive) -> None:
        try:
            result = await result_of(receive, self._future, job=self._job)
            line: Mapping[str, object] = {"result": result.model_dump(mode="json", by_alias=True)}
        except Refusal as refusal:
            scope["refusal"] = refusal.code
            line = refusal.body()
        self._lines.put_nowait(line)


def wants_lines(request: Request) -> bool:
    return LINES in request.headers.get("accept", "")
