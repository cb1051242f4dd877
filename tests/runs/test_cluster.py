"""Runs on a cluster: the same rows as in one process, whatever happens to machines and drivers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import TINY_OPTIONS, draw_pictures, exported, tiny_clip

import dtpt
from dtpt.clip.loading.save import save_model
from dtpt.runs import EvalOptions, evaluate

pytest.importorskip("ray")
SOURCE = Path(dtpt.__file__).parents[1]
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


def tell(home, *, per_class, seeds, removals, kills, drivers, seconds):
    """Let the story happen; return what it tells and what one process computes."""
    save_model(tiny_clip(), home / "tiny", tokenizer_json=None)
    draw_pictures(home / "pictures", per_class=per_class)
    (home / "seeds.json").write_text(json.dumps(seeds))
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / "cluster_story.py", home, str(removals), str(kills), str(drivers)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, SOURCE)))},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    by_name = {"model": f"local-dir:{home / 'tiny'}", "dataset": (f"folder:{home / 'pictures'}",)}
    options = {**TINY_OPTIONS, **by_name, "output": home / "whole", "cache": False, "seed": seeds}
    with evaluate(EvalOptions(**options)) as run:
        return json.loads((home / "story.json").read_text()), exported(run).decode()


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
