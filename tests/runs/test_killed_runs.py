"""A run that is killed a hundred times is the run that was never disturbed."""

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from tiny_runs import draw_pictures, exported

from dtpt.data import load_dataset
from dtpt.runs import open_run

HERE = Path(__file__).parent


@pytest.fixture
def memory_path(tmp_path):
    """A folder in memory where there is one: a killed process loses no more there than on disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="dtpt-test-") as folder:
        yield Path(folder)


def test_hundred_kills_lose_no_row_and_double_none(memory_path, run_tiny):
    tmp_path = memory_path
    draw_pictures(tmp_path / "many", per_class=100)
    environment = {**os.environ, "DTPT_CACHE": str(tmp_path / "c2"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "killed_run.py", str(tmp_path / "many"), str(tmp_path / "k"), "100"]
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert "100 kills" in done.stdout
    killed = open_run(tmp_path / "k")
    cut_short = [s for s in killed.sessions() if s["seconds"] is None]
    assert len(cut_short) >= 100
    dataset = load_dataset(f"folder:{tmp_path / 'many'}")
    whole = run_tiny(dataset_object=dataset, output=tmp_path / "whole")
    assert exported(killed) == exported(whole)
    assert all(pair == (300, 0) for pair in killed.counts().values())
    with closing(sqlite3.connect(killed.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        (rows,) = connection.execute("SELECT count(*) FROM rows").fetchone()
    assert rows == 900
