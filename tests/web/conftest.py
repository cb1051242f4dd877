"""Running servers with a tiny model."""

import io
from collections.abc import Iterator

import pytest
from live_server import LIMITS, HeldPlayground, Running, running
from PIL import Image

from dtpt.web.playground import Playground


@pytest.fixture(scope="session")
def server(tiny_clip) -> Iterator[Running]:
    with running(Playground(tiny_clip, name="tiny", limits=LIMITS)) as started:
        yield started


@pytest.fixture(scope="session")
def held(tiny_clip) -> Iterator[Running]:
    """A server whose predictions can be held up."""
    with running(HeldPlayground(tiny_clip, name="tiny", limits=LIMITS)) as started:
        yield started


@pytest.fixture(scope="session")
def bomb() -> bytes:
    """An image of 169 million pixels in a small file."""
    written = io.BytesIO()
    Image.new("1", (13_000, 13_000)).save(written, "PNG")
    return written.getvalue()
