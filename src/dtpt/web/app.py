"""HTTP: the routes, how their requests are read and their responses written."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ValidationError
from python_multipart.exceptions import FormParserError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import ASGIApp, Receive

import dtpt
from dtpt.clip.loading.names import EMBEDDED
from dtpt.files import json_depth
from dtpt.methods import PAPER_METHODS, known_methods, method_look, method_title
from dtpt.web import presets, schemas
from dtpt.web.evidence import score_csv
from dtpt.web.guard import Access, Guard, Refusal, as_refusal, content_type, read_body
from dtpt.web.options import Limits
from dtpt.web.playground import Playground
from dtpt.web.queue import Job, Step, Worker
from dtpt.web.schemas import PredictSettings
from dtpt.web.telemetry import Observer, Requests, Write

Result = TypeVar("Result", bound=BaseModel)
LINES = "application/x-ndjson"
REFUSED = (Refusal, dtpt.DtptError, HTTPException, RequestValidationError, ValidationError)
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": schemas.Error},
    "5XX": {"model": schemas.Error},
}
FORM = {"image": {"type": "string", "format": "binary"}, "settings": {"type": "string"}}
PREDICT_BODY = {
    "requestBody": {
        "required": True,
        "description": "An image and PredictSettings as JSON, or the settings with an image_id.",
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "required": list(FORM), "properties": FORM}
            },
            "application/json": {"schema": PredictSettings.model_json_schema()},
        },
    }
}
SCORE_BODY = {"requestBody": {"required": True, "content": {"text/csv": {}}}}

router = APIRouter()


class Service:
    """What the routes share. Files are scored in a thread beside that of the predictions."""

    def __init__(self, playground: Playground) -> None:
        self.playground = playground
        self.worker = Worker("predict", waiting=playground.limits.waiting)
        self.scorer = Worker("score", waiting=playground.limits.waiting)
        self.requests = Requests()
        self.is_stopping: Callable[[], bool] = lambda: False


def build_app(
    service: Service, *, access: Access, write: Write, ready: Callable[[], None] | None = None
) -> ASGIApp:
    """Return the whole service; `ready` is called when it accepts requests."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if ready is not None:
            ready()
        yield
        service.is_stopping = lambda: True
        await run_in_threadpool(service.worker.close)
        await run_in_threadpool(service.scorer.close)

    app = FastAPI(
        title="dtpt",
        version=dtpt.__version__,
        description="Calibrated test-time prompt tuning for CLIP-like models.",
        docs_url=None,
        redoc_url=None,
        responses=ERRORS,
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(router)
    app.include_router(presets.router)
    for kind in (*REFUSED, Exception):
        app.add_exception_handler(kind, _error_response)
    guarded = Guard(app, access=access)
    return Observer(guarded, requests=service.requests, write=write)


async def _error_response(request: Request, error: Exception) -> Response:
    refusal = as_refusal(error)
    request.scope["refusal"] = refusal.code
    return refusal.response()


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    if service.is_stopping():
        raise Refusal("stopping", "The server is stopping.")
    return service


@router.post(
    "/v1/predict",
    response_model=schemas.PredictResponse,
    responses={200: {"content": {LINES: {}}}},
    openapi_extra=PREDICT_BODY,
)
async def predict(request: Request) -> Response:
    """Classify an image with some methods."""
    service = _service(request)
    limits = service.playground.limits
    job = Job(time.monotonic() + limits.deadline)
    with service.worker.slot(job):
        body = await read_body(request, limits)
        image, settings = await read_predict_request(body, request.headers, limits=limits)
        work = partial(service.playground.predict, image, settings, job=job)
        if LINES in request.headers.get("accept", ""):
            return _stream(request, partial(service.worker.submit, work, job), job=job)
        return await _response(request, service.worker.submit(work, job), job=job)


@router.post("/v1/score", response_model=schemas.ScoreResponse, openapi_extra=SCORE_BODY)
async def score(
    request: Request, bins: Annotated[int, Query(ge=1, le=schemas.MAX_BINS)] = 20
) -> Response:
    """Score a CSV of confidence and correctness; it is not stored."""
    service = _service(request)
    limits = service.playground.limits
    job = Job(time.monotonic() + limits.deadline)
    with service.scorer.slot(job):
        work = partial(score_csv, await read_body(request, limits), bins=bins, check=job.check)
        return await _response(request, service.scorer.submit(work, job), job=job)


async def read_predict_request(
    body: bytes, headers: Headers, *, limits: Limits
) -> tuple[bytes | None, PredictSettings]:
    """Return the image (None if the settings name it by id) and the settings."""
    kind = content_type(headers)
    if kind == "application/json":
        settings = parse_settings(body)
        if settings.image_id is None:
            raise Refusal("settings_invalid", "image_id: is missing; JSON has no image.")
        return None, settings
    if kind != "multipart/form-data":
        raise Refusal("body_unsupported", f"The content type {kind[:40]!r} is not supported.")
    fields = await _form_fields(body, headers, most=limits.max_body_bytes)
    if not fields.get("image") or "settings" not in fields:
        raise Refusal("body_malformed", "The form needs the fields 'image' and 'settings'.")
    return fields["image"], parse_settings(fields["settings"])


def parse_settings(text: bytes) -> PredictSettings:
    """Read settings; a `Refusal` for JSON that is too large or too deep to be read at all."""
    size, most, deepest = len(text), schemas.MAX_SETTINGS_BYTES, schemas.MAX_DEPTH
    if size > most:
        message = f"settings: {size:,} bytes of JSON, more than {most:,}."
        raise Refusal("settings_invalid", message)
    if (depth := json_depth(text)) > deepest:
        message = f"settings: nested {depth:,} levels deep, more than {deepest}."
        raise Refusal("settings_invalid", message)
    return PredictSettings.model_validate_json(text)


class _InMemoryParser(MultiPartParser):
    """Starlette's parser without its temporary files; the body is within its limit already."""

    spool_max_size = 0  # no limit of memory


async def _form_fields(body: bytes, headers: Headers, *, most: int) -> dict[str, bytes]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _InMemoryParser(headers, stream(), max_files=2, max_fields=2, max_part_size=most)
    try:
        form = await parser.parse()
    except (MultiPartException, FormParserError, ValueError, KeyError) as error:
        raise Refusal(
            "body_malformed", f"The form cannot be read: {str(error).rstrip('.')}."
        ) from None
    fields = {}
    for name, value in form.multi_items():
        fields[name] = await value.read() if isinstance(value, UploadFile) else value.encode()
    await form.close()
    return fields


async def _response(request: Request, future: "asyncio.Future[Result]", *, job: Job) -> Response:
    result = await _result(request.receive, future, job=job)
    return Response(result.model_dump_json(by_alias=True), media_type="application/json")


async def _result(receive: Receive, future: "asyncio.Future[Result]", *, job: Job) -> Result:
    """Wait for a result; raise a `Refusal` when the work fails or its deadline passes."""

    async def cancel_on_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        job.cancelled.set()

    watcher = asyncio.create_task(cancel_on_disconnect())
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


def _stream(
    request: Request, submit: Callable[[], "asyncio.Future[Result]"], *, job: Job
) -> StreamingResponse:
    """Submit a job and return JSON lines: its progress, then its result or an error."""
    queue: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def listen(step: Step) -> None:  # in the worker's thread
        loop.call_soon_threadsafe(queue.put_nowait, {"progress": step})

    job.listener = listen
    future = submit()

    async def add_last_line() -> None:
        try:
            result = await _result(request.receive, future, job=job)
            line: Mapping[str, object] = {"result": result.model_dump(mode="json", by_alias=True)}
        except Refusal as refusal:
            request.scope["refusal"] = refusal.code
            line = refusal.body()
        queue.put_nowait(line)

    ending = asyncio.create_task(add_last_line())

    async def lines() -> AsyncIterator[str]:
        line: Mapping[str, object] = {}
        try:
            while not line.keys() & {"result", "error"}:
                line = await queue.get()
                yield json.dumps(line, ensure_ascii=False) + "\n"
        finally:
            ending.cancel()  # ends the work if the client has disconnected

    return StreamingResponse(lines(), media_type=LINES)


@router.get(
    "/v1/thumbnails/{key}",
    responses={200: {"content": {"image/jpeg": {}}}},
    response_class=Response,
)
async def thumbnails(
    request: Request, key: Annotated[str, Path(max_length=schemas.MAX_TEXT)]
) -> Response:
    """Return the views of an image on one sheet, in rows of eight (JPEG)."""
    encoded = _service(request).playground.images.get(key)
    if encoded is None or encoded.sheet is None:
        raise Refusal("image_unknown", "These thumbnails are not in the server's memory.")
    return Response(bytes(encoded.sheet), media_type="image/jpeg")


@router.get("/v1/models")
async def models(request: Request) -> schemas.ServerInfo:
    """Describe the model, the limits and the evidence of this server."""
    playground = _service(request).playground
    model = playground.model
    return schemas.ServerInfo(
        version=dtpt.__version__,
        model=playground.name,
        fingerprint=model.fingerprint,
        embedded=playground.name == EMBEDDED,
        device=str(model.device),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        limits={
            "body_bytes": playground.limits.max_body_bytes,
            "classes": schemas.MAX_CLASSES,
            "methods": schemas.MAX_METHODS,
            "views": schemas.MAX_VIEWS,
        },
        evidence=list(dict.fromkeys(cell.dataset for cell in playground.evidence)),
        calibrations=[
            f"{c.setup.method} on {c.provenance.dataset}" for c in playground.calibrations
        ],
    )


@router.get("/v1/methods")
async def methods(request: Request) -> list[schemas.MethodInfo]:
    """List the methods that the model runs."""
    has_text = _service(request).playground.model.text is not None
    return [
        schemas.MethodInfo(
            name=name,
            title=method_title(name),
            summary=method.summary,
            lambdas=dict(method.lambdas),
            sweep=list(method.sweep),
            in_paper=name in PAPER_METHODS,
            colour=method_look(name).colour,
        )
        for name, method in known_methods().items()
        if has_text or method.parameter != "context"
        if not method.is_stateful  # a service that many share keeps no state
    ]


@router.get("/healthz")
async def healthz() -> dict[str, bool]:
    """Return 200 while the process runs."""
    return {"alive": True}


@router.get("/readyz")
async def readyz(request: Request) -> dict[str, bool]:
    """Return 200 while requests are accepted, 503 when the server is stopping."""
    _service(request)
    return {"ready": True}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> str:
    """Return counters for Prometheus."""
    service: Service = request.app.state.service
    playground = service.playground
    gauges = {
        "dtpt_slots": service.worker.slots,
        "dtpt_slots_taken": service.worker.taken,
        "dtpt_cache_bytes": playground.images.size,
        "dtpt_cache_images": len(playground.images),
    }
    info = {
        "name": playground.name,
        "fingerprint": playground.model.fingerprint,
        "device": str(playground.model.device),
    }
    return service.requests.text(gauges, info, further=playground.monitor.families())
