"""A run that is killed again and again is the run that was never disturbed."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from tiny_runs import WITH_STREAMS, draw_images, exported

from dtpt.data import load_dataset
from dtpt.runs import open_run

HERE = Path(__file__).parent
KILLS = 30


@pytest.fixture
def memory_path(tmp_path):
    """A folder in memory where there is one: a killed process loses no more there than on disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="dtpt-test-") as folder:
        yield Path(folder)


def test_kills_lose_no_row_and_double_none(memory_path, run_tiny):
    folder = memory_path
    draw_images(folder / "many", per_class=7)
    environment = {**os.environ, "DTPT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    words = [str(folder / "many"), str(folder / "killed"), str(KILLS)]
    done = subprocess.run(
        [sys.executable, "killed_run.py", *words],
        cwd=HERE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    killed = open_run(folder / "killed")
    assert sum(session["seconds"] is None for session in killed.sessions()) >= KILLS
    many = load_dataset(f"folder:{folder / 'many'}")
    whole = run_tiny(dataset_object=many, output=folder / "whole", **WITH_STREAMS)
    assert exported(killed) == exported(whole)
    assert set(killed.counts().values()) == {(21, 0)}
    with closing(sqlite3.connect(killed.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM states").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM rows").fetchone() == (5 * 21,)
