"""A driver of a real cluster: what signals, and the loss of the cluster's head, do to it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")

HERE = Path(__file__).parent
LONG = 300.0  # seconds; a loaded machine takes its time


class Driver:
    """A driver that writes into files: Ray's own processes may hold a pipe open after its end."""

    def __init__(self, mode, folder):
        self._output, self._errors = folder / "output", folder / "errors"
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "ray_driver.py", mode],
                env={**os.environ, "PYTHONPATH": str(HERE)},
                stdout=output,
                stderr=errors,
            )

    def wait_until_ready(self):
        end = time.monotonic() + LONG
        while "ready" not in self._output.read_text().splitlines():
            assert self.process.poll() is None, self._errors.read_text()
            assert time.monotonic() < end
            time.sleep(0.1)

    def result(self):
        """Exit code, last line of the output, and errors."""
        code = self.process.wait(timeout=LONG)
        return code, self._output.read_text().splitlines()[-1], self._errors.read_text()


@pytest.fixture
def start(tmp_path):
    """Start a driver and wait until it works; it is ended with the test."""
    started = []

    def driver(mode):
        started.append(Driver(mode, tmp_path))
        started[-1].wait_until_ready()
        return started[-1]

    yield driver
    for each in started:
        each.process.kill()
        each.process.wait()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_reach_the_callers_handlers(start, number, code):
    driver = start("wait")
    driver.process.send_signal(number)
    ended, _, errors = driver.result()
    assert (ended, errors) == (code, "")  # no stack of C++


def test_loss_of_the_head_is_an_error_in_one_line(start):
    code, last, errors = start("lose").result()
    assert (code, errors) == (0, "")
    assert last.startswith("RunError")
