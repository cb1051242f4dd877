"""The examples for containers and systemd work."""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"
TOKEN = "a-token-for-the-test"


def start_command() -> list[str]:
    text = (DEPLOY / "Containerfile").read_text()
    return json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])


def test_the_container_asks_for_a_token_and_is_healthy_with_one(free_port):
    command = start_command()
    assert command[:2] == ["dtpt", "serve"]
    options = [word.replace("8765", str(free_port)) for word in command[1:]]
    program = [sys.executable, "-c", "from dtpt.cli.main import run; run()", *options]
    bare = {name: value for name, value in os.environ.items() if name != "DTPT_TOKEN"}
    refused = subprocess.run(program, env=bare, capture_output=True, text=True, timeout=120)
    assert (refused.returncode, "--token" in refused.stderr) == (2, True)
    process = subprocess.Popen(
        program, env=bare | {"DTPT_TOKEN": TOKEN}, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert b"http://" in process.stderr.readline()
        host = f"127.0.0.1:{free_port}"
        assert status(host, "/healthz") == 200
        assert status(host, "/v1/models") == 401
        assert status(host, "/v1/models", token=TOKEN) == 200
    finally:
        process.terminate()
        process.communicate(timeout=120)
    assert process.returncode == 0


def status(host: str, path: str, token: str | None = None) -> int:
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answered = connection.getresponse().status
    connection.close()
    return answered


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.gpu"])
def test_everything_that_a_container_copies_and_installs_exists(name):
    root, text = DEPLOY.parents[1], (DEPLOY / name).read_text()
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for word in line.split()]
    assert {"pyproject.toml", "src"} <= set(copied)
    assert all((root / word).exists() for word in copied)
    known = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r'"\.\[(.*)\]"', text)
    assert set(extras.split(",")) <= set(known["optional-dependencies"])
    assert known["readme"] in copied
    if name == "Containerfile.gpu":
        assert re.findall(r'^ENTRYPOINT \["(.*)"\]$', text, re.M)[0] in known["scripts"]


def test_systemd_accepts_the_unit(tmp_path):
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    unit = (DEPLOY / "dtpt.service").read_text()
    program = re.search(r"^ExecStart=(\S+)", unit, re.MULTILINE)[1]
    copy = tmp_path / "dtpt.service"
    copy.write_text(unit.replace(program, sys.executable))
    done = subprocess.run([verify, "verify", copy], capture_output=True, text=True, timeout=120)
    complaints = [line for line in done.stderr.splitlines() if "dtpt.service" in line]
    assert complaints == []
