"""Runs on a cluster: the same rows as in one process, whatever happens to machines and drivers."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import TINY_OPTIONS, draw_images, exported, tiny_clip

import dtpt
from dtpt.clip.loading.save import save_model
from dtpt.runs import EvalOptions, run_options

pytest.importorskip("ray")
SOURCE = Path(dtpt.__file__).parents[1]
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


def start(program, home, *words, seconds, per_class):
    """Let a program of this folder run on a small model and some pictures."""
    save_model(tiny_clip(), home / "tiny", tokenizer_json=None)
    draw_images(home / "pictures", per_class=per_class)
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / program, home, *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, SOURCE)))},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def whole_run(home, seeds):
    """Return what one process computes."""
    by_name = {"model": f"local-dir:{home / 'tiny'}", "dataset": (f"folder:{home / 'pictures'}",)}
    options = {**TINY_OPTIONS, **by_name, "output": home / "whole", "cache": False, "seed": seeds}
    with run_options(EvalOptions(**options)) as run:
        return exported(run).decode()


def tell(home, *, per_class, seeds, removals, kills, drivers, seconds):
    """Let the story happen; return what it tells and what one process computes."""
    (home / "seeds.json").write_text(json.dumps(seeds))
    words = (removals, kills, drivers)
    start("cluster_story.py", home, *words, seconds=seconds, per_class=per_class)
    return json.loads((home / "story.json").read_text()), whole_run(home, seeds)


def check(story, whole, *, pictures, removals, kills, drivers):
    assert story["exported"] == whole  # bit for bit, nothing lost
    assert set(map(tuple, story["counts"])) == {(pictures, 0)}
    assert story["removals"] == story["joins"] == removals
    assert story["kills"] == kills
    assert story["replicas_left"] == 0
    assert len(story["drivers"]) == drivers
    assert all(seconds < 30 for _, _, seconds in story["drivers"])
    rows = [session["rows"] for session in story["sessions"]]
    stored_before = story["drivers"][-1][1] if drivers else 0
    assert rows[-1] == 3 * story["answered"] == sum(map(sum, story["counts"])) - stored_before


def test_machines_replicas_and_drivers_may_die(tmp_path):
    story, whole = tell(
        tmp_path, per_class=40, seeds=[0], removals=1, kills=2, drivers=1, seconds=900
    )
    check(story, whole, pictures=120, removals=1, kills=2, drivers=1)


@pytest.mark.cluster_long
def test_ten_machines_go_and_ten_come(tmp_path):
    story, whole = tell(
        tmp_path,
        per_class=100,
        seeds=list(range(8)),
        removals=10,
        kills=20,
        drivers=4,
        seconds=1800,
    )
    check(story, whole, pictures=300, removals=10, kills=20, drivers=4)
    assert sum("left the cluster" in text for text in story["notes"]) >= 5
    assert len(story["sessions"][-1]["machines"]) > 6  # new ones worked, too
    print({key: story[key] for key in ("seconds", "by_machine", "drivers", "notes")})


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """What runs tell on machines that lack something, and what one process computes."""
    words = ["unshare", "--map-root-user", "--mount", "--uts", "true"]
    if not shutil.which("unshare") or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("needs namespaces of Linux")
    home = tmp_path_factory.mktemp("faults")
    start("cluster_faults.py", home, seconds=900, per_class=40)
    return json.loads((home / "faults.json").read_text()), whole_run(home, [0])


def lines_about(name, notes):
    return [text for text in notes if text.startswith(f"{name} ")]


@pytest.mark.cluster_long
def test_driver_with_another_ray_is_told_in_one_line(faults):
    said = faults[0]["other_ray"]
    assert "\n" not in said
    assert "2.0.0" in said
    assert said.endswith("Install the same versions of Ray and Python on all machines.")


@pytest.mark.cluster_long
def test_unfit_machines_are_named_with_the_reason(faults):
    error = faults[0]["unfit"]["error"]
    assert error.startswith("No machine of the cluster can work. ")
    assert "old: it has dtpt 0.0.1, the driver " in error
    assert "small: 0.2 GB of memory are free there, and a copy of the model takes 0.4 GB" in error
    assert re.search(r"starved: [^;]* \(memory ran out, \S+ of \S+ were in use;", error)
    assert "\n" not in error


@pytest.mark.cluster_long
@pytest.mark.parametrize("name", ["old", "small", "starved", "holes"])
def test_each_machine_that_is_left_out_is_told_once(faults, name):
    (line,) = lines_about(name, faults[0]["lacking"]["notes"])
    assert line.startswith(f"{name} is left out: ")
    assert "\n" not in line


@pytest.mark.cluster_long
def test_machine_without_model_and_pictures_is_sent_them_once(faults):
    story, _ = faults
    sent = lines_about("poor", story["lacking"]["notes"])
    assert [line.partition(": ")[2].partition(" files")[0] for line in sent] == ["120", "2"]
    assert story["lacking"]["by_machine"]["poor"] > 0
    assert lines_about("poor", story["plan"]["notes"]) == []  # it has them now
    assert "poor" in story["plan"]["machines"]
    assert lines_about("starved", story["plan"]["notes"])  # it was given up, not waited for


@pytest.mark.cluster_long
def test_mixture_of_processors_is_remarked_when_it_begins(faults):
    remarks = lines_about("Rows", faults[0]["lacking"]["notes"])
    assert len(remarks) == 1
    assert "different machines: processor A" in remarks[0]
    assert "Another" in remarks[0]


@pytest.mark.cluster_long
def test_rows_of_what_is_left_of_a_cluster_are_those_of_one_process(faults):
    story, whole = faults
    (_, rows), (_, expected) = map(json.loads, (story["lacking"]["exported"], whole))
    assert rows == expected
    assert set(map(tuple, story["lacking"]["counts"])) == {(120, 0)}
