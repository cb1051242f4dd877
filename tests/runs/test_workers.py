"""Worker processes: the same rows, whatever their number and whatever happens to them."""

import os
import random
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from bad_images import DeadlyOnceRef, DeadlyRef
from tiny_runs import exported, named_options

from dtpt.clip import device
from dtpt.data import Sample
from dtpt.errors import RunError
from dtpt.executors.pool import ProcessExecutor
from dtpt.methods import METHODS, regularised
from dtpt.runs import evaluation, open_run, run_options
from dtpt.runs.evaluation import prepare
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.schedule import Scheduler
from dtpt.runs.shards import Shard
from dtpt.runs.store import Store

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")


@pytest.fixture
def options(home, tmp_path):
    return lambda **changes: named_options(home, tmp_path / "run", **changes)


@pytest.fixture(scope="module")
def whole(home, tmp_path_factory):
    """What a run in one process exports."""
    with run_options(named_options(home, tmp_path_factory.mktemp("whole"))) as run:
        return exported(run)


@pytest.mark.parametrize(("workers", "view_workers"), [(1, 2), (2, 1)])
def test_rows_do_not_depend_on_the_number_of_processes(options, whole, workers, view_workers):
    with run_options(options(workers=workers, view_workers=view_workers)) as run:
        assert exported(run) == whole
        (session,) = run.sessions()
        assert (session["workers"], session["view_workers"]) == (workers, view_workers)


def test_run_may_continue_with_other_numbers_of_workers(options, whole):
    run_options(options(workers=1, limit=15)).close()
    with run_options(options(workers=2)) as run:
        assert exported(run) == whole


def test_two_gpus_have_a_worker_each(options, monkeypatch):
    made = []

    def capture(factories, workers, **_options):
        made.append((workers, [factory.device for factory in factories]))
        raise RunError("captured")

    monkeypatch.setattr(evaluation, "ProcessExecutor", capture)
    monkeypatch.setattr(device, "worker_devices", lambda *_: ("cuda:0", "cuda:1"))
    with pytest.raises(RunError, match="captured"):
        run_options(options(workers=2))
    assert made == [(2, ["cuda:0", "cuda:1"])]


def children(parent):
    """Process ids of the children of a process that are alive."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] not in "ZX":
                pids.append(int(entry.name))
    return pids


class Killer(Silent):
    """Kills a random worker after every few images."""

    def __init__(self, every):
        self.every = every
        self.kills = self.images = 0
        self.generator = random.Random(0)

    def advance(self, title, *, worker=0):
        self.images += 1
        if self.images % self.every == 0:
            victims = children(os.getpid())
            if victims:
                os.kill(self.generator.choice(victims), signal.SIGKILL)
                self.kills += 1


def test_killed_workers_are_replaced_and_no_row_is_lost(options, whole):
    killer = Killer(every=11)
    before = set(children(os.getpid()))
    with run_options(options(workers=2), reporter=killer) as run:
        assert exported(run) == whole
    assert killer.kills >= 2
    assert set(children(os.getpid())) <= before


def schedule(options, samples, output):
    """Evaluate some more samples, which no name leads to, in worker processes."""
    prepared = prepare(options)
    (dataset,) = prepared.datasets
    dataset = replace(dataset, samples=(*dataset.samples, *samples))
    sizes = {"samples": len(dataset), "fingerprint": dataset.fingerprint}
    entry = prepared.spec.datasets[0].model_copy(update=sizes)
    spec = prepared.spec.model_copy(update={"datasets": (entry,)})
    prepared = replace(prepared, datasets=(dataset,), spec=spec)
    factory = replace(prepared.worker, view_workers=options.view_workers)
    with (
        closing(ProcessExecutor(factory, 2)) as executor,
        Store(output / "run.sqlite", spec) as store,
        Plan(prepared, store=store, shard=Shard()) as plan,
    ):
        store.write_classes(dataset.name, dataset.classes)
        Scheduler(
            plan, executor, prepared=prepared, store=store, reporter=Silent(), max_failures=0.5
        ).run()
    return open_run(output)


@pytest.mark.parametrize("view_workers", [0, 1])
def test_image_that_kills_its_process_costs_itself_only(options, tmp_path, view_workers):
    samples = [
        Sample("zebra/deadly.png", 0, DeadlyRef()),
        Sample("zebra/unlucky.png", 1, DeadlyOnceRef(tmp_path / "mark")),
    ]
    run = schedule(options(limit=4, view_workers=view_workers), samples, tmp_path / "poison")
    (failure,) = run.failures()
    assert failure.sample == "zebra/deadly.png"
    assert "signal 9" in failure.reason
    assert set(run.counts().values()) == {(5, 1)}


def test_worker_with_another_model_stops_the_run(options):
    worker = replace(prepare(options()).worker, fingerprint="another" * 9)
    with pytest.raises(RunError, match="anotheranoth"):
        worker(lambda *_: None)


SCRIPT = """
import sys
from pathlib import Path
from dtpt.runs import EvalOptions, run_options
run = run_options(EvalOptions(
    model=sys.argv[1], dataset=(sys.argv[2],), output=Path(sys.argv[3]), views=4, rho=0.5,
    method=("tpt",), limit=8, workers=2, quiet=True, cache=False,
))
print(len(run.rows()), run.sessions()[0]["workers"])
"""


def test_script_without_a_main_guard_can_use_workers(home, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    words = [f"local-dir:{home / 'tiny'}", f"folder:{home / 'images'}", tmp_path / "run"]
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == ["8", "2"], done.stderr


def test_method_of_the_callers_script_is_evaluated_in_its_own_process(options, monkeypatch):
    own = regularised("local", lambda text: (text**4).sum(-1).mean(), lambda_=1.0)
    monkeypatch.setitem(METHODS, "local", own)
    with run_options(options(method=("local",), limit=4, workers=2)) as run:
        assert run.is_complete
        assert run.sessions()[0]["workers"] == 1


def test_precision_reaches_every_worker_and_is_part_of_the_run(options, whole):
    half = options(precision="bfloat16")
    assert prepare(half).worker.load_model().precision == "bfloat16"
    with run_options(half) as run:
        assert run.spec.precision == "bfloat16"
        assert exported(run) != whole
    with pytest.raises(RunError, match="bfloat16 → float32"):
        run_options(options())
