"""Images that break their process; apart from the tests, because workers import this."""

import os
import signal
from pathlib import Path

from PIL import Image


class DeadlyRef:
    """An image whose decoder kills the process, as a lack of memory does."""

    def key(self):
        return "deadly"

    def stamp(self):
        return "1"

    def open(self):
        os.kill(os.getpid(), signal.SIGKILL)


class DeadlyOnceRef(DeadlyRef):
    """Kills the first process that opens it, and is an ordinary image afterwards."""

    def __init__(self, path):
        self.path = Path(path)

    def key(self):
        return f"deadly once {self.path.name}"

    def open(self):
        if not self.path.exists():
            self.path.write_text("killed one")
            os.kill(os.getpid(), signal.SIGKILL)
        return Image.new("RGB", (36, 44), (200, 30, 60))


class BuggyRef(DeadlyRef):
    def open(self):
        raise ZeroDivisionError("a bug")
