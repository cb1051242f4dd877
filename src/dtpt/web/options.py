"""The options of `dtpt serve`. No torch and no web framework, so that `--help` is fast."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from dtpt.options import Listed, LoadOptions, Options

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Limits(Options):
    """Bounds of requests, and of the time and memory that they get; see also `schemas`."""

    max_body_bytes: Annotated[int, Field(ge=1, description="Of a request.")] = 10_000_000
    body_seconds: Annotated[Seconds, Field(description="In which a body must arrive.")] = 20.0
    header_seconds: Annotated[Seconds, Field(description="In which headers must arrive.")] = 10.0
    max_pixels: Annotated[int, Field(ge=1, description="Of an image.")] = 40_000_000
    waiting: Annotated[
        int, Field(ge=0, le=1000, description="Requests that may wait; more get 503.")
    ] = 8
    deadline: Annotated[Seconds, Field(description="Seconds that a request may take.")] = 120.0
    cache_mb: Annotated[int, Field(ge=0, description="Memory for features of images.")] = 256


class ServeOptions(LoadOptions, Limits):
    """The options of `dtpt serve`, with their defaults."""

    host: Annotated[
        str, Field(description="Address to listen on; any but this machine's needs a token.")
    ] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535, description="0 takes a free one.")] = 8765
    token: Annotated[str | None, Field(description="Token that clients must send.")] = None
    allow_host: Annotated[
        tuple[str, ...],
        Listed,
        Field(description="Further Host names, such as dtpt.example.org behind a proxy."),
    ] = ()
    evidence: Annotated[
        tuple[Path, ...],
        Field(description="Runs that show how often such predictions were correct."),
    ] = ()
    calibration: Annotated[
        tuple[Path, ...],
        Field(description="Files of `dtpt calibrate`: calibrated confidence, sets, abstention."),
    ] = ()
    threads: Annotated[
        int | None,
        Field(ge=1, le=1024, description="torch threads; all usable cores when not given."),
    ] = None
    open_: Annotated[bool, Field(alias="open", description="Open a browser.")] = False
    quiet: Annotated[bool, Field(description="Print no log line per request.")] = False

    @property
    def limits(self) -> Limits:
        """The limits alone: without the token."""
        return Limits(**self.model_dump(include=set(Limits.model_fields)))
