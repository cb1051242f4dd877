"""The routes of the service and the layers around them."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import dtpt
from dtpt.clip.loading.names import EMBEDDED
from dtpt.errors import explain
from dtpt.methods import PAPER_METHODS, known_methods, method_look, method_title
from dtpt.web.answering import Playground
from dtpt.web.limits import read_body
from dtpt.web.pages import add_pages
from dtpt.web.presets import class_lists, drawing, examples
from dtpt.web.refusals import Refusal
from dtpt.web.requests import (
    LINES,
    ProgressLines,
    as_refusal,
    conclude,
    read_question,
    wants_lines,
)
from dtpt.web.schemas import (
    ClassList,
    Error,
    Example,
    MethodOut,
    ModelOut,
    PredictAnswer,
    PredictSettings,
    ScoreAnswer,
    ServerOut,
)
from dtpt.web.scoring import score_csv
from dtpt.web.security import Access, Guard
from dtpt.web.telemetry import Observer, Requests, Write, gauges
from dtpt.web.worker import Job, Worker

REFUSED: dict[int | str, dict[str, Any]] = {"4XX": {"model": Error}, "5XX": {"model": Error}}


@dataclass
class Service:
    """What the routes share.

    Attributes:
        playground: the model and what it keeps.
        worker: computes predictions.
        scorer: computes metrics of files, so that they need not wait for slow predictions.
        requests: counters.
        stopping: set when the process was asked to end.
    """

    playground: Playground
    worker: Worker
    scorer: Worker
    requests: Requests = field(default_factory=Requests)
    stopping: bool = False


def make_service(playground: Playground) -> Service:
    """Return a service around a model."""
    waiting = playground.limits.waiting
    return Service(playground, Worker("predict", waiting=waiting), Worker("score", waiting=waiting))


def build_app(
    service: Service,
    *,
    access: Access,
    write: Write,
    ready: Callable[[], None] | None = None,
) -> ASGIApp:
    """Return the whole service as an ASGI application.

    Args:
        service: what the routes share.
        access: who may ask.
        write: takes one log line per request.
        ready: called when questions are taken.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if ready is not None:
            ready()
        yield
        service.stopping = True
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
    _add_answers(app)
    _add_listings(app)
    _add_operation(app)
    add_pages(app)
    _add_errors(app)
    guarded = Guard(app, access=access)
    return Observer(guarded, requests=service.requests, write=write)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    if service.stopping:
        raise Refusal("stopping", "The server is stopping.", {"Connection": "close"})
    return service


def _json(record: BaseModel) -> Response:
    return Response(record.model_dump_json(by_alias=True), media_type="application/json")


async def _predict(request: Request) -> Any:
    service = _service(request)
    limits = service.playground.limits
    with service.worker.place() as place:
        deadline = time.monotonic() + limits.deadline
        body = await read_body(request, limits)
        kind = request.headers.get("content-type", "")
        picture, settings = await read_question(body, kind, limits=limits)

        def work(job: Job) -> PredictAnswer:
            return service.playground.predict(picture, settings, job=job)

        if wants_lines(request):
            return ProgressLines(lambda job: place.submit(work, job), deadline=deadline)
        job = Job(deadline)
        return _json(await conclude(request.receive, place.submit(work, job), job=job))


async def _score(request: Request, bins: int) -> Response:
    service = _service(request)
    limits = service.playground.limits
    if not 1 <= bins <= limits.bins:
        raise Refusal("settings_invalid", f"bins is {bins}; expected 1 to {limits.bins}.")
    with service.scorer.place() as place:
        job = Job(time.monotonic() + limits.deadline)
        body = await read_body(request, limits)

        def work(_: Job) -> ScoreAnswer:
            return score_csv(body, bins=bins)

        return _json(await conclude(request.receive, place.submit(work, job), job=job))


def _add_answers(app: FastAPI) -> None:
    question = {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "required": ["picture", "settings"],
                        "properties": {
                            "picture": {"type": "string", "format": "binary"},
                            "settings": {
                                "type": "string",
                                "description": "PredictSettings as JSON.",
                            },
                        },
                    }
                },
                "application/json": {"schema": PredictSettings.model_json_schema()},
            },
        }
    }
    lines = {200: {"content": {LINES: {}}, "description": "The answer; JSON lines on request."}}

    @app.post(
        "/v1/predict",
        response_model=PredictAnswer,
        responses={**REFUSED, **lines},  # type: ignore[dict-item]
        openapi_extra=question,
    )
    async def predict(request: Request) -> Any:
        """Classify a picture with some methods."""
        return await _predict(request)

    table = {"requestBody": {"required": True, "content": {"text/csv": {}}}}

    @app.post("/v1/score", response_model=ScoreAnswer, responses=REFUSED, openapi_extra=table)
    async def score(request: Request, bins: Annotated[int, Query()] = 20) -> Any:
        """Score a CSV of confidence and correctness; it is not stored."""
        return await _score(request, bins)

    @app.get("/v1/thumbnails/{key}", responses=REFUSED, response_class=Response)
    async def thumbnails(request: Request, key: str) -> Response:
        """Return the views of a picture on one sheet, in rows of eight (JPEG)."""
        sheet = _service(request).playground.sheet(key)
        if sheet is None:
            raise Refusal("picture_unknown", "These thumbnails are not in the server's memory.")
        return Response(sheet, media_type="image/jpeg")


def _add_listings(app: FastAPI) -> None:
    @app.get("/v1/models")
    async def models(request: Request) -> ServerOut:
        """Describe the model, the limits and the evidence of this server."""
        return describe(_service(request).playground)

    @app.get("/v1/methods")
    async def methods() -> list[MethodOut]:
        """List the methods that can be asked for."""
        return [
            MethodOut(
                name=name,
                title=method_title(name),
                summary=method.summary,
                lambdas=dict(method.lambdas),
                sweep=list(method.sweep),
                uses_views=method.tunes_on_views or method.read_out is not None,
                in_paper=name in PAPER_METHODS,
                colour=method_look(name).colour,
                marker=method_look(name).marker,
            )
            for name, method in known_methods().items()
        ]

    @app.get("/v1/classes")
    async def classes() -> list[ClassList]:
        """List the class lists that can be taken over."""
        return [record for record, _ in class_lists().values()]

    @app.get("/v1/classes/{name:path}", responses=REFUSED)
    async def class_names(name: str) -> list[str]:
        """Return the names of one class list."""
        if name not in class_lists():
            raise Refusal("not_found", "There is no such class list.")
        return list(class_lists()[name][1])

    @app.get("/v1/examples")
    async def drawings() -> list[Example]:
        """List drawings that can be tried; empty without the packages of the emoji benchmark."""
        return examples()

    @app.get("/v1/examples/{code}", responses=REFUSED, response_class=Response)
    async def draw(code: str, *, presentation: str = "plain", line: bool = False) -> Response:
        """Return a drawing as PNG."""
        picture = await run_in_threadpool(drawing, code, presentation, line=line)
        return Response(picture, media_type="image/png")


def describe(playground: Playground) -> ServerOut:
    """Say what a client must know before it asks."""
    model = playground.model
    record = ModelOut(
        name=playground.name,
        fingerprint=model.fingerprint,
        embedded=playground.name == EMBEDDED,
        dimensions=model.config.embed_dim,
        image_size=model.preprocessing.size,
        context_tokens=model.tokenizer.context_length,
        device=str(model.device),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
    )
    return ServerOut(
        version=dtpt.__version__,
        models=[record],
        limits=playground.limits.model_dump(),
        evidence=[name for source in playground.evidence for name in source.names],
        calibrations=[
            f"{calibration.setup.method} on {calibration.provenance.dataset}"
            for calibration in playground.calibrations
        ],
    )


def _add_operation(app: FastAPI) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, bool]:
        """Say that the process lives."""
        return {"alive": True}

    @app.get("/readyz", responses=REFUSED)
    async def readyz(request: Request) -> dict[str, bool]:
        """Say that questions are taken; 503 when the server is stopping."""
        return {"ready": not _service(request).stopping}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> str:
        """Return counters for Prometheus."""
        service: Service = request.app.state.service
        playground = service.playground
        values: dict[str, float] = {
            "dtpt_places": service.worker.places,
            "dtpt_places_taken": service.worker.taken,
            "dtpt_cache_bytes": playground.seen.size,
            "dtpt_cache_pictures": len(playground.seen),
        }
        labels = {
            "name": playground.name,
            "fingerprint": playground.model.fingerprint,
            "device": str(playground.model.device),
        }
        return "\n".join([*service.requests.lines(), *gauges(values, labels)]) + "\n"


def _add_errors(app: FastAPI) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        refusal = as_refusal(_known(error))
        request.scope["refusal"] = refusal.code
        return JSONResponse(refusal.body(), refusal.status, refusal.headers)

    for kind in (Refusal, dtpt.DtptError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, answer)


def _known(error: Exception) -> Exception:
    """Turn the framework's own errors into refusals."""
    if isinstance(error, RequestValidationError):
        return Refusal("settings_invalid", f"{explain(error).removeprefix('body.')}.")
    if isinstance(error, HTTPException):
        code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "request_invalid")
        return Refusal(code, f"{error.detail}.", dict(error.headers or {}))
    return error
