"""A driver of a real cluster: what signals, and the loss of the cluster's head, do to it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")

HERE = Path(__file__).parent
LONG = 300.0  # seconds; a loaded machine takes its time


@pytest.fixture
def start():
    """Start a driver and wait until it works; it is ended with the test."""
    started = []

    def driver(mode):
        process = subprocess.Popen(
            [sys.executable, HERE / "ray_driver.py", mode],
            env={**os.environ, "PYTHONPATH": str(HERE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        for line in process.stdout:
            if line == "ready\n":
                return process
        raise AssertionError(process.stderr.read())

    yield driver
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_reach_the_callers_handlers(start, number, code):
    driver = start("wait")
    driver.send_signal(number)
    _, errors = driver.communicate(timeout=LONG)
    assert (driver.returncode, errors) == (code, "")  # no stack of C++


def test_loss_of_the_head_is_an_error_in_one_line(start):
    driver = start("lose")
    output, errors = driver.communicate(timeout=LONG)
    assert (driver.returncode, errors) == (0, "")
    assert output.splitlines()[-1].startswith("RunError")
