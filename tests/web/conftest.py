"""A running server with a tiny model."""

import io
from collections.abc import Iterator

import pytest
from live_server import LIMITS, Running, running
from PIL import Image

from dtpt.web.answering import Playground


@pytest.fixture(scope="session")
def playground(tiny_clip):
    return Playground(tiny_clip, name="tiny", limits=LIMITS)


@pytest.fixture(scope="session")
def server(playground) -> Iterator[Running]:
    with running(playground) as found:
        yield found


@pytest.fixture(scope="session")
def bomb() -> bytes:
    """A picture of 169 million pixels in a small file."""
    written = io.BytesIO()
    Image.new("1", (13_000, 13_000)).save(written, "PNG")
    return written.getvalue()
