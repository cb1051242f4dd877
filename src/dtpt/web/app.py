"""The routes of the service and the layers around them."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import dtpt
from dtpt.clip.loading.names import EMBEDDED
from dtpt.methods import PAPER_METHODS, known_methods, method_look, method_title
from dtpt.web import presets
from dtpt.web.evidence import score_csv
from dtpt.web.guard import CLOSE, Access, Guard, Refusal, as_refusal, read_body
from dtpt.web.playground import Playground
from dtpt.web.queue import Job, Worker
from dtpt.web.requests import LINES, ProgressLines, read_predict_request, result_of, wants_lines
from dtpt.web.schemas import (
    Error,
    MethodInfo,
    ModelInfo,
    PredictResponse,
    PredictSettings,
    ScoreResponse,
    ServerInfo,
)
from dtpt.web.telemetry import Observer, Requests, Write, gauges

ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Error}, "5XX": {"model": Error}}
PREDICT_RESPONSES: dict[int | str, dict[str, Any]] = {
    **ERRORS,
    200: {"content": {LINES: {}}, "description": "The predictions; JSON lines on request."},
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
    """Return the whole service as an ASGI application.

    `write` takes one log line per request; `ready` is called when requests are accepted.
    """

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
        lifespan=lifespan,
    )
    app.state.service = service
    app.include_router(router)
    app.include_router(presets.router)
    for kind in (Refusal, dtpt.DtptError, HTTPException, RequestValidationError, Exception):
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
        raise Refusal("stopping", "The server is stopping.", dict(CLOSE))
    return service


def _json(record: BaseModel) -> Response:
    return Response(record.model_dump_json(by_alias=True), media_type="application/json")


@router.post(
    "/v1/predict",
    response_model=PredictResponse,
    responses=PREDICT_RESPONSES,
    openapi_extra=PREDICT_BODY,
)
async def predict(request: Request) -> Response:
    """Classify an image with some methods."""
    service = _service(request)
    limits = service.playground.limits
    with service.worker.slot() as slot:
        deadline = time.monotonic() + limits.deadline
        body = await read_body(request, limits)
        image, settings = await read_predict_request(body, request.headers, limits=limits)

        def work(job: Job) -> PredictResponse:
            return service.playground.predict(image, settings, job=job)

        if wants_lines(request):
            return ProgressLines(lambda job: slot.submit(work, job), deadline=deadline)
        job = Job(deadline)
        return _json(await result_of(request.receive, slot.submit(work, job), job=job))


@router.post("/v1/score", response_model=ScoreResponse, responses=ERRORS, openapi_extra=SCORE_BODY)
async def score(request: Request, bins: Annotated[int, Query()] = 20) -> Response:
    """Score a CSV of confidence and correctness; it is not stored."""
    service = _service(request)
    limits = service.playground.limits
    if not 1 <= bins <= limits.max_bins:
        raise Refusal("settings_invalid", f"bins: must be 1 to {limits.max_bins}, got {bins}.")
    with service.scorer.slot() as slot:
        job = Job(time.monotonic() + limits.deadline)
        body = await read_body(request, limits)

        def work(_: Job) -> ScoreResponse:
            return score_csv(body, bins=bins)

        return _json(await result_of(request.receive, slot.submit(work, job), job=job))


@router.get("/v1/thumbnails/{key}", responses=ERRORS, response_class=Response)
async def thumbnails(request: Request, key: str) -> Response:
    """Return the views of an image on one sheet, in rows of eight (JPEG)."""
    sheet = _service(request).playground.sheet(key)
    if sheet is None:
        raise Refusal("image_unknown", "These thumbnails are not in the server's memory.")
    return Response(sheet, media_type="image/jpeg")


@router.get("/v1/models")
async def models(request: Request) -> ServerInfo:
    """Describe the model, the limits and the evidence of this server."""
    playground = _service(request).playground
    model = playground.model
    info = ModelInfo(
        name=playground.name,
        fingerprint=model.fingerprint,
        embedded=playground.name == EMBEDDED,
        image_size=model.preprocessing.size,
        device=str(model.device),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    return ServerInfo(
        version=dtpt.__version__,
        models=[info],
        limits=playground.limits,
        evidence=list(dict.fromkeys(cell.dataset for cell in playground.evidence)),
        calibrations=[
            f"{calibration.setup.method} on {calibration.provenance.dataset}"
            for calibration in playground.calibrations
        ],
    )


@router.get("/v1/methods")
async def methods() -> list[MethodInfo]:
    """List the methods."""
    return [
        MethodInfo(
            name=name,
            title=method_title(name),
            summary=method.summary,
            lambdas=dict(method.lambdas),
            sweep=list(method.sweep),
            in_paper=name in PAPER_METHODS,
            colour=method_look(name).colour,
        )
        for name, method in known_methods().items()
    ]


@router.get("/healthz")
async def healthz() -> dict[str, bool]:
    """Return 200 while the process runs."""
    return {"alive": True}


@router.get("/readyz", responses=ERRORS)
async def readyz(request: Request) -> dict[str, bool]:
    """Return 200 while requests are accepted, 503 when the server is stopping."""
    _service(request)
    return {"ready": True}


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> str:
    """Return counters for Prometheus."""
    service: Service = request.app.state.service
    playground = service.playground
    values = {
        "dtpt_slots": service.worker.slots,
        "dtpt_slots_taken": service.worker.taken,
        "dtpt_cache_bytes": playground.images.size,
        "dtpt_cache_images": len(playground.images),
    }
    labels = {
        "name": playground.name,
        "fingerprint": playground.model.fingerprint,
        "device": str(playground.model.device),
    }
    return "\n".join([*service.requests.lines(), *gauges(values, labels)]) + "\n"
