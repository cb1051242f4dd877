"""What one request may ask for, checked before any work is done for it."""

import asyncio
import io
import warnings
from collections.abc import AsyncIterator
from typing import Annotated

from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request

from dtpt.errors import DtptError, explain
from dtpt.web.refusals import Refusal
from dtpt.web.schemas import PredictSettings

PICTURE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "AVIF")


class Limits(BaseModel):
    """Bounds of a request and of the memory and time that the server gives away."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body_bytes: Annotated[int, Field(description="Largest body of a request.")] = 10_000_000
    body_seconds: Annotated[float, Field(description="Time in which a body must arrive.")] = 20.0
    header_seconds: Annotated[float, Field(description="Time for a request to begin.")] = 10.0
    pixels: Annotated[int, Field(description="Largest picture.")] = 40_000_000
    classes: Annotated[int, Field(description="Most class names.")] = 1000
    name_characters: Annotated[int, Field(description="Longest class name or template.")] = 200
    methods: Annotated[int, Field(description="Most methods.")] = 12
    views: Annotated[int, Field(description="Most views.")] = 64
    steps: Annotated[int, Field(description="Most optimiser steps.")] = 10
    bins: Annotated[int, Field(description="Most bins of a reliability diagram.")] = 100
    waiting: Annotated[
        int, Field(ge=0, le=1000, description="Requests beside the one that is computed.")
    ] = 8
    deadline: Annotated[
        float, Field(gt=0, le=86_400, description="Seconds that an answer may take.")
    ] = 120.0
    cache_bytes: Annotated[int, Field(ge=0, description="Memory for features of pictures.")] = (
        256_000_000
    )
    class_lists: Annotated[int, Field(description="Class lists that are kept.")] = 4
    graph_bytes: Annotated[int, Field(description="Memory that one class list keeps.")] = (
        200_000_000
    )


def checked_limits(*, waiting: int, deadline: float, cache_bytes: int) -> Limits:
    """Return the limits with what an operator chose.

    Raises:
        DtptError: a number makes no sense; the message names it.

    Example:
        >>> checked_limits(waiting=2, deadline=60, cache_bytes=0).waiting
        2
    """
    try:
        return Limits(waiting=waiting, deadline=deadline, cache_bytes=cache_bytes)
    except ValidationError as error:
        raise DtptError(f"Invalid limit: {explain(error)}.") from None


async def read_body(request: Request, limits: Limits) -> bytes:
    """Read a body that is small enough and arrives in time.

    Raises:
        Refusal: too large (before anything is read, if the client states the length), too slow, or
            the client went away.
    """
    parts = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in _bounded(request, limits.body_bytes):
                parts += chunk
    except TimeoutError:
        message = f"The body did not arrive within {limits.body_seconds:g} seconds."
        raise Refusal("body_too_slow", message, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal("cancelled", "The client went away.") from None
    return bytes(parts)


async def _bounded(request: Request, most: int) -> AsyncIterator[bytes]:
    too_large = Refusal(
        "body_too_large", f"The body is larger than {most:,} bytes.", {"Connection": "close"}
    )
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated) > most:
        raise too_large
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > most:
            raise too_large
        yield chunk


def check_settings(settings: PredictSettings, limits: Limits) -> None:
    """Refuse settings that are too large, whatever they say.

    Raises:
        Refusal: the message names the first of them.

    Example:
        >>> check_settings(PredictSettings(classes=["a"] * 2000), Limits())
        Traceback (most recent call last):
        dtpt.web.refusals.Refusal: ('settings_invalid', 'classes are 2000, at most 1000.')
    """
    counts = (
        ("classes", len(settings.classes), limits.classes),
        ("methods", len(settings.methods), limits.methods),
        ("views", settings.views, limits.views),
        ("steps", settings.steps, limits.steps),
        ("characters of the template", len(settings.template), limits.name_characters),
    )
    for name, count, most in counts:
        if count > most:
            raise Refusal("settings_invalid", f"{name} are {count}, at most {most}.")
    for view in settings.dropped:
        if not 0 < view < settings.views:
            message = f"View {view} cannot be dropped: 1 to {settings.views - 1} can."
            raise Refusal("settings_invalid", message)
    for index, name in enumerate(settings.classes):
        if len(name) > limits.name_characters:
            message = f"Class {index} has {len(name)} characters, at most {limits.name_characters}."
            raise Refusal("settings_invalid", message)
        if any(ord(character) < 32 for character in name):
            raise Refusal("settings_invalid", f"Class {index} contains a line break or its like.")


def check_picture(data: bytes, limits: Limits) -> None:
    """Look at the header of a picture; nothing is decoded.

    Raises:
        Refusal: no picture of the formats that are taken, or too many pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=PICTURE_FORMATS) as picture:
                width, height = picture.size
    except Image.DecompressionBombError as error:
        raise Refusal("picture_too_large", f"The picture is too large ({error}).") from None
    except Exception:  # decoders raise many kinds; all mean: not one that we take
        known = ", ".join(PICTURE_FORMATS)
        raise Refusal("picture_unsupported", f"The file is no picture ({known}).") from None
    if width * height > limits.pixels:
        message = f"The picture has {width} × {height} pixels, at most {limits.pixels:,}."
        raise Refusal("picture_too_large", message)
