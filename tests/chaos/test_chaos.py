"""Commands that are killed, starved and disturbed in other ways end as they should, and recover.

    DTPT_CHAOS=200 DTPT_CHAOS_SEED=7 pytest tests/chaos -q

`chaos_rounds.py` says what a round is and when it holds.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import exported, make_home, named_options

from dtpt.runs import open_run, run_options

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("DTPT_CHAOS", "5"))
IS_LONG = "DTPT_CHAOS" in os.environ
SEED = int(os.environ.get("DTPT_CHAOS_SEED", random.randrange(10**6) if IS_LONG else 0))

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="processes and limits as on Linux"
)


@pytest.mark.slow
def test_disturbed_commands_hold(tmp_path, capsys):
    words = [sys.executable, str(HERE / "chaos_rounds.py"), str(tmp_path / "chaos")]
    process = subprocess.Popen(
        [*words, str(ROUNDS), str(SEED)],
        env={name: value for name, value in os.environ.items() if not name.startswith("DTPT_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, errors = process.communicate()
    assert output, errors[-2000:]
    *rounds, total = [json.loads(line) for line in output.splitlines()]
    if IS_LONG:
        with capsys.disabled():
            print(f"\n{total}")
    broken = [found for found in rounds if found["broken"]]
    assert (broken, process.returncode, total["rounds"]) == ([], 0, ROUNDS), f"seed {SEED}"


@pytest.mark.cluster_long
@pytest.mark.parametrize("kind", ["spills", "full"])
def test_a_full_object_store_and_a_second_driver_cost_nothing(tmp_path, kind):
    pytest.importorskip("ray")
    make_home(tmp_path, per_class=4)
    words = [sys.executable, str(HERE / "ray_store.py"), str(tmp_path), kind]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    ends = json.loads(done.stdout)["drivers"]
    assert {code for _, _, code in ends} == {0}
    assert all("Traceback" not in errors for _, errors, _ in ends)
    refused = [printed for printed, _, _ in ends if printed]
    assert len(refused) <= 1  # both succeed if one ends before the other begins
    assert all("Another process" in text for text in refused)
    with (
        open_run(tmp_path / "run") as run,
        run_options(named_options(tmp_path, tmp_path / "whole")) as whole,
    ):
        assert exported(run) == exported(whole)
