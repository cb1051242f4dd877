"""The scheduler with a scripted executor: every image has its rows once, or a reason."""

import tracemalloc
from dataclasses import replace

import pytest
from tiny_runs import ROW, TINY_OPTIONS

from dtpt.data import Dataset, FileRef, Sample
from dtpt.errors import RunError
from dtpt.executors.pool import Done, Failed
from dtpt.runs import EvalOptions, open_run
from dtpt.runs.evaluation import prepare
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.schedule import Scheduler
from dtpt.runs.shards import Shard
from dtpt.runs.store import Store
from dtpt.runs.worker import ImageResult


class ScriptedExecutor:
    """Turns each task into the event that `react` gives, some at a time."""

    def __init__(self, react, *, depth, together):
        self.react = react
        self.depth = depth
        self.together = together
        self.events = []
        self.submitted = 0
        self.most = 0

    @property
    def room(self):
        return max(self.depth - len(self.events), 0)

    def submit(self, task):
        self.events.append(self.react(self.submitted, task))
        self.most = max(self.most, len(self.events))
        self.submitted += 1
        return self.submitted - 1

    def collect(self):
        events, self.events = self.events[: self.together], self.events[self.together :]
        return events


def done(task_id, task):
    image, right = task.sample.image, task.sample.label == ROW.prediction
    row = replace(ROW, p_label=ROW.confidence if right else 0.25)
    rows = (row,) * len(task.methods)
    return Done(task_id, ImageResult(rows=rows, image_key=image.key(), stamp=image.stamp()))


@pytest.fixture(params=[1, 100], ids=["one by one", "together"])
def schedule(request, tiny_model, images, tmp_path):
    """Run a scripted executor on the images and return the stored run."""
    options = EvalOptions(output=tmp_path, dataset=("images",), **TINY_OPTIONS)
    prepared = prepare(options, model=tiny_model, datasets=[images])

    def run(react, *, max_failures=0.5, depth=3, reporter=None):
        executor = ScriptedExecutor(react, depth=depth, together=request.param)
        with (
            Store(tmp_path / "run.sqlite", prepared.spec) as store,
            Plan(prepared, store=store, shard=Shard()) as plan,
        ):
            store.write_classes(images.name, images.classes)
            Scheduler(
                plan,
                executor,
                prepared=prepared,
                store=store,
                reporter=reporter or Silent(),
                max_failures=max_failures,
            ).run()
        return open_run(tmp_path), executor

    return run


def test_every_image_is_one_task_and_few_are_in_work(schedule):
    run, executor = schedule(done, depth=5)
    assert run.is_complete
    assert executor.submitted == 30
    assert executor.most <= 5


def test_failed_task_is_a_failed_row(schedule, images):
    poison = images.samples[7].id

    def react(task_id, task):
        is_poison = task.sample.id == poison
        return Failed(task_id, "killed by signal 9") if is_poison else done(task_id, task)

    run, _ = schedule(react)
    (failure,) = run.failures()
    assert (failure.sample, failure.reason) == (poison, "killed by signal 9")
    assert set(run.counts().values()) == {(29, 1)}


def test_too_many_failures_stop_the_run_with_what_was_done(schedule, tmp_path):
    def react(task_id, task):
        if task.sample.id.startswith("cat"):
            return Done(task_id, ImageResult(failure="no image"))
        return done(task_id, task)

    with pytest.raises(RunError, match="--max-failures"):
        schedule(react, max_failures=0.1)
    with open_run(tmp_path) as run:
        assert len(run.failures()) == 4
        assert len(run.rows(method="tpt")) == 10


class Witness(Silent):
    """Checks with another connection that an image has its rows when it is reported as done."""

    def __init__(self, path):
        self.path = path
        self.images = 0

    def advance(self, title, *, worker=0):
        self.images += 1
        with open_run(self.path) as run:
            assert len(run.rows(method="tpt")) >= self.images


def test_image_is_reported_as_done_when_its_rows_are_on_disk(schedule, tmp_path):
    witness = Witness(tmp_path)
    schedule(done, depth=8, reporter=witness)
    assert witness.images == 30


def test_error_between_images_leaves_whole_ones_and_the_run_resumes(schedule, tmp_path):
    def react(task_id, task):
        if task_id == 12:  # too few rows stand for any bug
            return Done(task_id, ImageResult(rows=(ROW,)))
        return done(task_id, task)

    with pytest.raises(ValueError, match="shorter"):
        schedule(react, depth=10)
    with open_run(tmp_path) as run:
        stored = [len(run.rows(method=name)) for name in ("zero-shot", "tpt", "d-tpt")]
        assert stored in ([10] * 3, [12] * 3)  # all of what came together, or none
    run, _ = schedule(done)
    assert run.is_complete


def test_memory_of_the_driver_does_not_grow_with_the_data_set(tiny_model, tmp_path):
    (tmp_path / "image.png").write_bytes(b"never decoded")
    image = FileRef(tmp_path / "image.png")
    samples = [Sample(f"{k:05d}", 0, image) for k in range(5_000)]
    options = EvalOptions(
        output=tmp_path, dataset=("fake",), **{**TINY_OPTIONS, "method": ("zero-shot",)}
    )
    dataset = Dataset("fake", ("cat",), samples)
    prepared = prepare(options, model=tiny_model, datasets=[dataset])
    with (
        Store(tmp_path / "run.sqlite", prepared.spec) as store,
        Plan(prepared, store=store, shard=Shard()) as plan,
    ):
        executor = ScriptedExecutor(done, depth=256, together=256)
        scheduler = Scheduler(
            plan, executor, prepared=prepared, store=store, reporter=Silent(), max_failures=0.0
        )
        tracemalloc.start()
        try:
            scheduler.run()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 1_000_000  # 200 bytes for each image
