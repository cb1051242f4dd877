"""Images that break their worker; apart from the tests, because workers import this."""

import os
import signal


class DeadlyRef:
    """An image whose decoder kills the process, as a lack of memory does."""

    def key(self):
        return "deadly"

    def stamp(self):
        return "deadly"

    def open(self):
        os.kill(os.getpid(), signal.SIGKILL)


class BuggyRef(DeadlyRef):
    def open(self):
        raise ZeroDivisionError("a bug")
