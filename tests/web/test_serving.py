"""`dtpt serve` as a process: start, answer, signals, wrong options."""

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
from live_server import form, png

from dtpt.cli.serve import serve
from dtpt.errors import DtptError

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


def wait_until_taken(port, answers):
    """Wait until the server works on a question, or has answered it."""
    until = time.monotonic() + 30
    while not answers and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/metrics")
        taken = re.search(
            r"^dtpt_places_taken (\d+)", connection.getresponse().read().decode(), re.M
        )
        connection.close()
        if taken and int(taken[1]):
            return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_lets_answers_finish_and_ends_with_0(number):
    process, port = start()
    answers = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body, headers = form(png(), {"classes": ["cat", "dog"], "views": 64})
        connection.request("POST", "/v1/predict", body=body, headers=headers)
        answers.append(connection.getresponse().status)
        connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until_taken(port, answers)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    asking.join(30)
    assert process.returncode == 0, errors
    assert answers in ([200], [503])
    assert "Traceback" not in errors
    for line in output.splitlines():
        assert json.loads(line)["route"] in ("/v1/predict", "/metrics")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"host": "0.0.0.0"}, "--token"),
        ({"host": "0.0.0.0", "token": "short"}, "16"),
        ({"host": "192.0.2.1", "token": "long-enough-for-a-token"}, "Cannot listen on 192.0.2.1"),
        ({"host": "no address", "token": "long-enough-for-a-token"}, "Cannot listen"),
        ({"port": 70_000}, "port 70000"),
        ({"waiting": -1}, "waiting"),
        ({"deadline": 0.0}, "deadline"),
        ({"cache_mb": -1}, "cache_bytes"),
        ({"model": "pokcet"}, "pokcet"),
        ({"threads": 0}, "threads"),
        ({"evidence": [Path("no-such-run")]}, "no-such-run"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(options, word):
    with pytest.raises(DtptError, match=re.escape(word)):
        serve(**{"port": 0, "device": "cpu"} | options)


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DtptError, match="--port"):
            serve(port=taken.getsockname()[1])
