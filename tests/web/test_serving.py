"""`dtpt serve` as a process: start, signals, invalid options."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from live_server import PATIENCE, form, png

from dtpt.cli.serve import serve
from dtpt.errors import DtptError
from dtpt.web.options import ServeOptions

COMMAND = [sys.executable, "-c", "from dtpt.cli.main import run; run()", "serve"]


def start(*options: str) -> tuple[subprocess.Popen[str], int]:
    """Start a server and return it with its port."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("DTPT_TOKEN", None)
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://\S+:(\d+)/", line)
    assert found, line + process.stderr.read()
    return process, int(found[1])


def wait_until_taken(port, statuses):
    """Wait until the server works on a request, or has responded."""
    until = time.monotonic() + PATIENCE
    while not statuses and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        taken = re.search(
            r"^dtpt_slots_taken (\d+)", connection.getresponse().read().decode(), re.M
        )
        connection.close()
        if taken and int(taken[1]):
            return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_lets_requests_finish_and_ends_with_0(number):
    process, port = start()
    statuses = []

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        body, headers = form(png(), {"classes": ["cat", "dog"], "views": 64})
        connection.request("POST", "/v1/predict", body=body, headers=headers)
        statuses.append(connection.getresponse().status)
        connection.close()

    client = threading.Thread(target=send)
    client.start()
    wait_until_taken(port, statuses)
    process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE)
    client.join(PATIENCE)
    assert process.returncode == 0, errors
    assert statuses in ([200], [503])
    assert "Traceback" not in errors
    for line in output.splitlines():
        assert json.loads(line)["route"] in ("/v1/predict", "/metrics")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"host": "0.0.0.0"}, "--token"),
        ({"host": "0.0.0.0", "token": "short"}, "16"),
        ({"host": "192.0.2.1", "token": "long-enough-for-a-token"}, "192.0.2.1"),
        ({"host": "no address", "token": "long-enough-for-a-token"}, "no address"),
        ({"port": 70_000}, "port"),
        ({"waiting": -1}, "waiting"),
        ({"deadline": 0.0}, "deadline"),
        ({"cache_mb": -1}, "cache_mb"),
        ({"model": "pokcet"}, "pokcet"),
        ({"threads": 0}, "threads"),
        ({"evidence": [Path("no-such-run")]}, "no-such-run"),
    ],
)
def test_invalid_options_are_named(options, word):
    with pytest.raises(DtptError, match=re.escape(word)):
        serve(options=ServeOptions.parse({"port": 0, "device": "cpu"} | options))


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DtptError, match="--port"):
            serve(options=ServeOptions(port=taken.getsockname()[1]))
