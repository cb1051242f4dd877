"""From a name of a data set to a place on the leaderboard, with an interruption in every stage."""

import io
import json
import os
import subprocess
import sys

import pytest
from archive_server import serving, small_dtd
from handmade import FIVE, dataset, random_says, write_run
from hub_server import running_hub
from PIL import Image
from processes import PROGRAM

from dtpt.cli import inventory
from dtpt.cli.exits import INTERRUPTED
from dtpt.data import fetch as fetching
from dtpt.data.fetch import origins
from dtpt.report import compose, leaderboard
from dtpt.runs import open_run, verification
from dtpt.runs import published as publishing
from dtpt.runs.store import Store

pytest.importorskip("pyarrow", reason="pyarrow is not installed")


@pytest.fixture
def hub(monkeypatch):
    """A stand-in of the hub that has DTD, every image of which is a small grey square."""
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), "grey").save(buffer, "JPEG")
    origin = origins()["dtd"]
    plain = origin.hub[0].model_copy(update={"bytes": None, "sha256": ""})
    changed = {**origins(), "dtd": origin.model_copy(update={"hub": (plain,)})}
    with serving({"dtd.zip": small_dtd(buffer.getvalue())}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(fetching, "origins", lambda: changed)
        yield server


def after(count, function):
    """Return a function that is interrupted at one of its calls."""
    calls = []

    def interrupted(*arguments, **named):
        calls.append(1)
        if len(calls) > count:
            raise KeyboardInterrupt
        return function(*arguments, **named)

    return interrupted


def test_fetch_check_eval_report_publish_verify_and_rank_with_a_kill_in_every_stage(
    hub, world, dtpt, tmp_path, monkeypatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    eval_ = (
        *("eval", "--model", f"local-dir:{world / 'tiny'}", "--dataset", "dtd", "--limit", 6),
        *("--method", "zero-shot,tpt", "--views", 2, "--seed", "0,1", "--data-root", "data"),
        *("--output", "runs/mine", "--workers", 1, "--quiet"),
    )
    report = ("report", "published", "--output", "report", "--resamples", 20)
    verify = ("verify", "published", "--data-root", "data", "--json")
    stages = [  # (command, what is killed at which call)
        (("datasets", "fetch", "dtd", "--data-root", "data"), fetching.os, "rename", 0),
        (("datasets", "check", "dtd", "--data-root", "data"), inventory, "dataset_lines", 0),
        (eval_, Store, "write", 3),
        (("publish", "runs/mine", "published"), publishing, "results_of", 0),
        (verify, verification, "results_of", 0),
        (report, compose, "_save", 2),
        (("leaderboard", "published", "--data-root", "data"), leaderboard, "verify", 0),
    ]
    done = {}
    for words, owner, name, count in stages:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, after(count, getattr(owner, name)))
            assert dtpt(*words).returncode == INTERRUPTED, words
        if words[0] == "publish":
            assert dtpt(*verify).returncode == 2
        done[words[0]] = dtpt(*words)
        assert done[words[0]].returncode == 0, done[words[0]].stderr
    downloads = [
        path for command, path, _ in hub.requests if (command, path[:5]) == ("GET", "/cdn/")
    ]
    assert len(downloads) == 1
    with open_run("runs/mine") as run:  # no row of the killed command was computed again
        assert [session["rows"] for session in run.sessions()] == [2 * 3, 2 * 9]
    kinds = {c["kind"]: c["outcome"] for c in json.loads(done["verify"].stdout)["checks"]}
    assert kinds == dict.fromkeys(kinds, "passed")
    assert {"classes", "samples", "images", "seeds", "rows", "metrics"} <= set(kinds)
    left = {path.name for path in home.iterdir()}
    assert left == {"data", "runs", "published", "report", "leaderboard.html"}
    assert {path.name for path in (home / "data").iterdir()} == {"dtd"}
    stored = json.loads((home / "published" / "results.json").read_text())
    assert [m["seeds"]["1"]["n"] for m in stored["results"]["dtd"].values()] == [6, 6]


def test_a_run_is_published_as_a_data_set_of_the_hub(tmp_path) -> None:
    methods = (FIVE[0], FIVE[1])
    run = write_run(tmp_path / "run", [dataset(samples=9, methods=methods)], random_says())
    with running_hub({}) as server:
        environment = {
            **os.environ,
            **{"HF_ENDPOINT": server.url, "HF_TOKEN": "hf_write", "HF_HUB_DISABLE_XET": "1"},
            "HF_HOME": str(tmp_path / "hf"),
        }
        words = [sys.executable, "-c", PROGRAM, "publish", str(run), "hub:org/mine"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        files = server.repositories["org/mine"]
        assert {"README.md", "results.json", "published.json", "samples_pets.parquet"} == set(files)
    back = tmp_path / "back"
    back.mkdir()
    for name, data in files.items():
        (back / name).write_bytes(data)
    assert verification.verify(back).is_verified
