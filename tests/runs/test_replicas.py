"""Replicas in processes of their own: the same rows, whatever happens to the processes."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bad_refs import DeadlyOnceRef, DeadlyRef
from dtpt.runs.crews import LocalCrew, warm_up
from tiny_runs import TINY_OPTIONS, draw_pictures, exported, tiny_clip

from dtpt.clip.loading.save import save_model
from dtpt.data import Sample
from dtpt.errors import RunError
from dtpt.runs import EvalOptions, open_run, run_options
from dtpt.runs.evaluation import prepare, work_order
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.resources import Resources
from dtpt.runs.schedule import Scheduler
from dtpt.runs.shards import Shard
from dtpt.runs.store import Store

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A saved tiny model and pictures, which other processes can load by name."""
    folder = tmp_path_factory.mktemp("home")
    save_model(tiny_clip(), folder / "tiny", tokenizer_json=None)
    draw_pictures(folder / "pictures", per_class=10)
    return folder


def named_options(home, output, **changes):
    by_name = {
        "model": f"local-dir:{home / 'tiny'}",
        "dataset": (f"folder:{home / 'pictures'}",),
        "cache": False,
    }
    return EvalOptions(**{**TINY_OPTIONS, **by_name, "output": output, **changes})


@pytest.fixture
def options(home, tmp_path) -> Callable[..., EvalOptions]:
    return lambda **changes: named_options(home, tmp_path / "run", **changes)


@pytest.fixture(scope="module")
def whole(home, tmp_path_factory):
    """What a run in one process exports."""
    with run_options(named_options(home, tmp_path_factory.mktemp("whole"))) as run:
        return exported(run)


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_rows_do_not_depend_on_replicas_and_workers(options, whole, replicas, workers):
    with run_options(options(replicas=replicas, workers=workers)) as run:
        assert exported(run) == whole
        assert run.sessions()[0]["replicas"] == replicas
        assert run.sessions()[0]["workers"] == workers


def test_run_may_go_on_with_other_numbers_of_replicas(options, whole):
    run_options(options(replicas=2, limit=8)).close()
    run_options(options(replicas=1, limit=15)).close()
    with run_options(options(replicas=3)) as run:
        assert exported(run) == whole


def children(parent):
    """Process ids of the children of a process, whatever they are."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


class Killer(Silent):
    """Kills a random replica after every few pictures."""

    def __init__(self, every):
        self.every = every
        self.kills = self.seen = 0
        self.generator = random.Random(0)

    def advance(self, title, *, replica=0):
        self.seen += 1
        if self.seen % self.every == 0:
            victims = children(os.getpid())
            if victims:
                os.kill(self.generator.choice(victims), signal.SIGKILL)
                self.kills += 1


def test_killed_replicas_are_replaced_and_no_row_is_lost(options, whole):
    killer = Killer(every=7)
    before = set(children(os.getpid()))
    with run_options(options(replicas=2), reporter=killer) as run:
        assert exported(run) == whole
    assert killer.kills >= 3
    assert set(children(os.getpid())) <= before


def schedule(options, samples, output, *, replicas=2, workers=0):
    """Evaluate some more samples, which no name leads to, with a local crew."""
    setup = prepare(options)
    (task,) = setup.tasks
    dataset = replace(task.dataset, samples=(*task.dataset.samples, *samples), fingerprint="")
    setup = replace(setup, tasks=(replace(task, dataset=dataset),))
    entry = setup.spec.datasets[0].model_copy(update={"samples": len(dataset)})
    setup = replace(setup, spec=setup.spec.model_copy(update={"datasets": (entry,)}))
    order = work_order(setup, options, resources=Resources(replicas, 1, workers))
    crew = LocalCrew(order, replicas)
    try:
        with (
            Store(output / "run.sqlite", setup.spec) as store,
            Plan(setup, store=store, shard=Shard()) as plan,
        ):
            Scheduler(
                plan,
                crew,
                store=store,
                reporter=Silent(),
                max_failures=0.5,
            ).run()
    finally:
        crew.close()
    return open_run(output)


@pytest.mark.parametrize("workers", [0, 1])
def test_poison_costs_itself_only(options, tmp_path, workers):
    samples = [
        Sample("zebra/deadly.png", 0, DeadlyRef()),
        Sample("zebra/unlucky.png", 1, DeadlyOnceRef(tmp_path / "mark")),
    ]
    run = schedule(options(limit=6), samples, tmp_path / "poison", workers=workers)
    (failure,) = run.failures()
    assert failure.sample == "zebra/deadly.png"
    assert "3 processes died while they worked on it (killed by signal 9)" in failure.reason
    assert set(run.counts().values()) == {(7, 1)}


def test_replica_that_cannot_load_its_model_stops_the_run(options):
    changed = prepare(options())
    order = work_order(changed, options(), resources=Resources(2, 1, 0))
    crew = LocalCrew(replace(order, fingerprint="another" * 9), 2)
    try:
        with pytest.raises(RunError, match="another model here"):
            crew.collect()
    finally:
        crew.close()


def test_processes_that_die_at_once_are_not_started_for_ever(options, monkeypatch):
    import dtpt.runs.crews as crews

    start = crews.start
    monkeypatch.setattr(crews, "start", lambda target, **named: start("os:abort", **named))
    order = work_order(prepare(options()), options(), resources=Resources(2, 1, 0))
    crew = LocalCrew(order, 2)
    try:
        with pytest.raises(RunError, match=r"die as soon as they start.*--replicas"):
            crew.collect()
    finally:
        crew.close()


def test_warm_processes_that_are_not_needed_end():
    before = set(children(os.getpid()))
    with warm_up(2, threads=1) as warm:
        assert len(set(children(os.getpid())) - before) == 2
        assert len(warm) == 2
    assert set(children(os.getpid())) <= before


SCRIPT = """
import sys
from pathlib import Path
from dtpt.runs import EvalOptions, run_options
run = run_options(EvalOptions(
    model=sys.argv[1], dataset=(sys.argv[2],), output=Path(sys.argv[3]), views=4, rho=0.5,
    method=("tpt",), limit=8, replicas=2, quiet=True, cache=False,
))
print(len(run.rows()), run.sessions()[0]["replicas"])
"""


def test_script_without_a_main_guard_can_use_replicas(home, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [f"local-dir:{home / 'tiny'}", f"folder:{home / 'pictures'}", tmp_path / "run"]
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["8", "2"], done.stderr


def test_replicas_end_when_the_driver_is_killed(home, tmp_path):
    script = SCRIPT.replace("limit=8", "seed=tuple(range(200))")
    (tmp_path / "script.py").write_text(script)
    words = [f"local-dir:{home / 'tiny'}", f"folder:{home / 'pictures'}", tmp_path / "run"]
    driver = subprocess.Popen([sys.executable, tmp_path / "script.py", *words])
    deadline = time.monotonic() + 60
    while len(found := children(driver.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    driver.kill()
    driver.wait()
    deadline = time.monotonic() + 60  # one may still be importing torch
    while time.monotonic() < deadline and any(_is_running(pid) for pid in found):
        time.sleep(0.1)
    assert len(found) == 2
    assert not any(_is_running(pid) for pid in found)


def _is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_methods_of_the_callers_script_are_evaluated_in_its_own_process(options):
    from dtpt.methods import METHODS, regularised

    METHODS["local"] = regularised("local", lambda text: (text**4).sum(-1).mean(), lambda_=1.0)
    try:
        with run_options(options(method=("local",), limit=4, replicas=2)) as run:
            assert run.is_complete
            assert run.sessions()[0]["replicas"] == 1
    finally:
        del METHODS["local"]


def test_precision_reaches_every_replica_and_is_part_of_the_run(home, whole, tmp_path):
    half = {"precision": "bfloat16"}
    with run_options(named_options(home, tmp_path / "one", **half)) as run:
        alone = exported(run)
        assert run.spec.precision == "bfloat16"
    with run_options(named_options(home, tmp_path / "two", replicas=2, **half)) as run:
        assert exported(run) == alone != whole
    with pytest.raises(RunError, match="precision: bfloat16 → float32"):
        run_options(named_options(home, tmp_path / "one"))
