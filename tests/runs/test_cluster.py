"""Runs on a cluster: the rows of one process, whatever happens to nodes, workers and drivers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import WITH_STREAMS, exported, make_home, named_options

import dtpt
from dtpt.runs import run_options

pytest.importorskip("ray")
SOURCE = Path(dtpt.__file__).parents[1]
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


def start(program, home, *words):
    """Run a program of this folder in a process of its own."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / program, home, *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, SOURCE)))},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def rows_of_one_process(home, *, seeds=1, **changes):
    options = named_options(home, home / "whole", seed=tuple(range(seeds)), **changes)
    with run_options(options) as run:
        return exported(run).decode()


def check_chaos(home, *, nodes, removals, kills, drivers, seeds):
    """Run with faults; check that every row is there, once, bit for bit."""
    start("cluster_chaos.py", home, nodes, removals, kills, drivers, seeds)
    facts = json.loads((home / "chaos.json").read_text())
    images = len(list((home / "images").rglob("*.png")))
    assert facts["exported"] == rows_of_one_process(home, seeds=seeds, **WITH_STREAMS)
    assert set(map(tuple, facts["counts"])) == {(images, 0)}
    assert facts["removals"] == facts["joins"] == removals
    assert facts["kills"] == kills
    assert [driver["code"] == 0 for driver in facts["drivers"]] == [False] * drivers
    left = [each["workers_left"] for each in (*facts["drivers"], facts)]
    assert left == [0] * len(left)
    stored_before = facts["drivers"][-1]["rows"] if drivers else 0
    rows = facts["sessions"][-1]["rows"]
    assert rows == facts["rows"] == sum(map(sum, facts["counts"])) - stored_before
    return facts


def test_nodes_workers_and_drivers_may_die(tmp_path):
    make_home(tmp_path, per_class=20)
    check_chaos(tmp_path, nodes=2, removals=1, kills=1, drivers=1, seeds=1)


@pytest.mark.cluster_long
def test_ten_nodes_leave_and_ten_join(tmp_path):
    make_home(tmp_path, per_class=100)
    facts = check_chaos(tmp_path, nodes=3, removals=10, kills=20, drivers=4, seeds=8)
    assert sum("left the cluster" in text for text in facts["notes"]) >= 5
    assert len(facts["sessions"][-1]["nodes"]) > 6  # new ones worked, too


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """What runs report on nodes that lack something, and the rows of one process."""
    words = ["unshare", "--map-root-user", "--mount", "--uts", "true"]
    if not shutil.which("unshare") or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("needs namespaces of Linux")
    home = make_home(tmp_path_factory.mktemp("faults"), per_class=40)
    start("cluster_faults.py", home)
    return json.loads((home / "faults.json").read_text()), rows_of_one_process(home)


def notes_about(name, notes):
    return [text for text in notes if text.startswith(f"{name} ")]


@pytest.mark.cluster_long
def test_driver_with_another_ray_is_refused_in_one_line(faults):
    refusal = faults[0]["other_ray"]
    assert "\n" not in refusal
    assert "2.0.0" in refusal


@pytest.mark.cluster_long
def test_unfit_nodes_are_named_with_the_reason(faults):
    error = faults[0]["unfit"]["error"]
    assert "\n" not in error
    reasons = {part.split(": ")[0].split()[-1]: part for part in error.split("; ") if ": " in part}
    assert "0.0.1" in reasons["old"]
    assert "0.2 GB" in reasons["small"]
    assert "memory ran out" in reasons["starved"]


@pytest.mark.cluster_long
@pytest.mark.parametrize("name", ["old", "small", "starved"])
def test_each_node_that_is_not_used_is_noted_once(faults, name):
    (line,) = notes_about(name, faults[0]["lacking"]["notes"])
    assert "\n" not in line


@pytest.mark.cluster_long
@pytest.mark.parametrize("name", ["poor", "partial"])
def test_node_without_model_or_images_receives_them(faults, name):
    facts, _ = faults
    assert facts["lacking"]["by_node"][name] > 0
    assert name in facts["plan"]["nodes"]
    assert notes_about(name, facts["lacking"]["notes"]) == []


@pytest.mark.cluster_long
def test_plan_does_not_wait_for_nodes_that_are_given_up(faults):
    assert notes_about("starved", faults[0]["plan"]["notes"])


@pytest.mark.cluster_long
def test_mixture_of_processors_is_noted_when_it_begins(faults):
    (note,) = notes_about("Rows", faults[0]["lacking"]["notes"])
    assert "Another" in note


@pytest.mark.cluster_long
def test_rows_of_what_is_left_of_a_cluster_are_those_of_one_process(faults):
    facts, whole = faults
    (_, rows), (_, expected) = map(json.loads, (facts["lacking"]["exported"], whole))
    assert rows == expected
    assert set(map(tuple, facts["lacking"]["counts"])) == {(120, 0)}
