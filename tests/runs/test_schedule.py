"""The scheduler against a crew that misbehaves: every picture has its rows once, or a reason."""

import tracemalloc
from dataclasses import replace

import pytest
from dtpt.runs.orders import Answered, Place, Returned, Struck
from tiny_runs import TINY_OPTIONS

from dtpt.data import Dataset, FileRef, Sample
from dtpt.errors import RunError
from dtpt.runs import EvalOptions, open_run
from dtpt.runs.evaluation import prepare
from dtpt.runs.plan import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.schedule import Scheduler
from dtpt.runs.shards import Shard
from dtpt.runs.store import Answer, Store

RIGHT = Answer(0, 0.5, 1.0, 0.5, 0.4, ((0, 0.5),), 0, 0.5)
OTHER = replace(RIGHT, confidence=0.9)


class Crew:
    """Answers in its own way; `react` turns a (batch, item) into events, told some at a time."""

    def __init__(self, react, *, room, together):
        self.react = react
        self.together = together
        self.room = room
        self.events = []
        self.batches = []
        self.most = 0

    @property
    def has_room(self):
        return len(self.events) < self.room

    def submit(self, batch):
        self.batches.append(batch)
        for item in batch.items:
            self.events.extend(self.react(batch, item))
        self.most = max(self.most, len(self.events))

    def collect(self):
        found = list(self.events)[: self.together]
        del self.events[: len(found)]
        return found

    def close(self):
        pass


def answered(batch, item, answer=RIGHT):
    place = Place(batch.number, item.sample.id)
    key = f"key of {item.sample.id}"
    return Answered(place, image_key=key, answers=(answer,) * len(item.methods))


@pytest.fixture(params=[1, 100], ids=["one by one", "together"])
def world(request, tiny_model, pictures, tmp_path):
    """Runs a crew on the pictures and returns the stored run."""
    options = EvalOptions(output=tmp_path, dataset=("pictures",), **TINY_OPTIONS)
    setup = prepare(options, model=tiny_model, datasets=[pictures])

    def run(react, *, batch=1, max_failures=0.5, room=3, reporter=None):
        crew = Crew(react, room=room, together=request.param)
        with (
            Store(tmp_path / "run.sqlite", setup.spec) as store,
            Plan(setup, store=store, shard=Shard()) as plan,
        ):
            Scheduler(
                plan,
                crew,
                store=store,
                reporter=reporter or Silent(),
                max_failures=max_failures,
                batch=batch,
            ).run()
        return open_run(tmp_path), crew

    return run


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_every_picture_is_asked_for_once(world, batch):
    run, crew = world(lambda batch, item: [answered(batch, item)], batch=batch)
    assert run.is_complete
    assert len([item for one in crew.batches for item in one.items]) == 30
    assert {len(one.items) for one in crew.batches} <= {batch, 30 % batch, 30} - {0}
    assert len({one.number for one in crew.batches}) == len(crew.batches)


def test_few_batches_are_in_work_at_a_time(world):
    _, crew = world(lambda batch, item: [answered(batch, item)], room=5)
    assert crew.most <= 5


def test_row_that_arrives_twice_or_uninvited_is_dropped(world):
    stranger = Place(12345, "nobody")

    def react(batch, item):
        return [
            answered(batch, item),
            answered(batch, item, OTHER),
            Answered(stranger, answers=(OTHER,)),
            Struck(Place(batch.number, item.sample.id), "late"),
            Returned((Place(batch.number, item.sample.id), stranger)),
        ]

    run, crew = world(react)
    assert set(run.rows().confidence) == {0.5}
    assert len(crew.batches) == 30


def test_pictures_of_a_dead_replica_are_done_by_another(world):
    lost = set()

    def react(batch, item):
        if len(item.sample.id) and item.sample.id not in lost:
            lost.add(item.sample.id)
            return [Returned((Place(batch.number, item.sample.id),))]
        return [answered(batch, item)]

    run, crew = world(react, batch=4)
    assert run.is_complete
    assert run.failures() == []
    assert {len(one.items) for one in crew.batches if one.number < 0} == {1}  # repeated alone


def test_poison_is_tried_three_times_and_then_a_failed_row(world, pictures):
    poison = pictures.samples[7].id

    def react(batch, item):
        if item.sample.id == poison:
            return [Struck(Place(batch.number, poison), "killed by signal 9")]
        return [answered(batch, item)]

    run, crew = world(react, batch=4)
    (failure,) = run.failures()
    assert failure.sample == poison
    assert "3 processes died" in failure.reason
    assert "signal 9" in failure.reason
    asked = [one for one in crew.batches if poison in [item.sample.id for item in one.items]]
    assert len(asked) == 3
    assert set(run.counts().values()) == {(29, 1)}


def test_two_deaths_are_forgiven(world, pictures):
    deaths = {pictures.samples[3].id: 2, pictures.samples[20].id: 2}

    def react(batch, item):
        if deaths.get(item.sample.id):
            deaths[item.sample.id] -= 1
            return [Struck(Place(batch.number, item.sample.id), "killed")]
        return [answered(batch, item)]

    run, _ = world(react)
    assert run.failures() == []
    assert run.is_complete


def test_too_many_failures_stop_the_run_with_what_was_done(world, tmp_path):
    def react(batch, item):
        if item.sample.id.startswith("cat"):
            return [Answered(Place(batch.number, item.sample.id), failure="no image")]
        return [answered(batch, item)]

    with pytest.raises(RunError, match="images cannot be read"):
        world(react, max_failures=0.1)
    with open_run(tmp_path) as run:
        assert len(run.failures()) == 4
        assert len(run.rows(method="tpt")) == 10


class Witness(Silent):
    """Looks, for each picture that is told as done, whether another connection finds its rows."""

    def __init__(self, path):
        self.path = path
        self.told = 0

    def advance(self, title, *, replica=0):
        self.told += 1
        with open_run(self.path) as run:
            assert len(run.rows(method="tpt")) >= self.told


def test_picture_is_told_as_done_when_its_rows_are_on_disk(world, tmp_path):
    witness = Witness(tmp_path)
    world(lambda batch, item: [answered(batch, item)], batch=4, room=8, reporter=witness)
    assert witness.told == 30


def test_error_between_pictures_leaves_whole_ones_and_the_run_goes_on(world, tmp_path):
    reached = []

    def react(batch, item):
        reached.append(item)
        broken = Answered(Place(batch.number, item.sample.id), answers=(RIGHT,))
        return [answered(batch, item) if len(reached) != 13 else broken]

    with pytest.raises(ValueError, match="shorter"):
        world(react, room=10)  # too few rows stand for any bug
    with open_run(tmp_path) as run:
        stored = [len(run.rows(method=name)) for name in ("zero-shot", "tpt", "d-tpt")]
        assert stored in ([10] * 3, [12] * 3)  # all of what came together, or none
    run, _ = world(lambda batch, item: [answered(batch, item)])
    assert run.is_complete


class Forgetful(Crew):
    """Answers everything and remembers nothing."""

    def submit(self, batch):
        self.events.extend(answered(batch, item) for item in batch.items)


def peak_bytes(setup, path):
    """Return the most memory that a run needs beside the list of its pictures."""
    with (
        Store(path, setup.spec) as store,
        Plan(setup, store=store, shard=Shard()) as plan,
    ):
        crew = Forgetful(None, room=32, together=100)
        tracemalloc.start()
        try:
            Scheduler(plan, crew, store=store, reporter=Silent(), max_failures=0.0, batch=16).run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_of_the_driver_does_not_grow_with_the_data_set(tiny_model, tmp_path):
    nothing = FileRef(tmp_path / "nothing")
    samples = [Sample(f"{k:05d}", 0, nothing) for k in range(20_000)]
    changed = {**TINY_OPTIONS, "method": ("zero-shot",)}
    options = EvalOptions(output=tmp_path, dataset=("fake",), **changed)
    setup = prepare(options, model=tiny_model, datasets=[Dataset("fake", ("cat",), samples)])
    assert peak_bytes(setup, tmp_path / "run.sqlite") < 1_000_000  # 50 bytes for each picture
