"""The scheduler against a crew that misbehaves: every picture has its rows once, or a reason."""

from collections import deque
from dataclasses import replace

import pytest
from tiny_runs import TINY_OPTIONS

from dtpt.errors import RunError
from dtpt.runs import EvalOptions, open_run
from dtpt.runs.orders import Answered, Place, Returned, Struck
from dtpt.runs.planning import Plan
from dtpt.runs.progress import Silent
from dtpt.runs.scheduler import Scheduler
from dtpt.runs.setup import prepare
from dtpt.runs.shards import Shard
from dtpt.runs.store import Answer, Store

RIGHT = Answer(0, 0.5, 1.0, 0.5, 0.4, ((0, 0.5),), 0, 0.5)
OTHER = replace(RIGHT, confidence=0.9)


class Crew:
    """Answers in its own way; `react` turns a (batch, item) into events."""

    def __init__(self, react, room=3):
        self.react = react
        self.room = room
        self.events = deque()
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
        return self.events.popleft()

    def close(self):
        pass


def answered(batch, item, answer=RIGHT):
    place = Place(batch.number, item.sample.id)
    key = f"key of {item.sample.id}"
    return Answered(place, image_key=key, answers=(answer,) * len(item.methods))


@pytest.fixture
def world(tiny_model, pictures, tmp_path):
    """Runs a crew on the pictures and returns the stored run."""
    options = EvalOptions(output=tmp_path, dataset=("pictures",), **TINY_OPTIONS)
    setup = prepare(options, model=tiny_model, datasets=[pictures])

    def run(react, *, batch=1, max_failures=0.5, room=3):
        crew = Crew(react, room)
        with (
            Store(tmp_path / "run.sqlite", setup.spec) as store,
            Plan(setup, store=store, shard=Shard()) as plan,
        ):
            Scheduler(
                plan,
                crew,
                store=store,
                reporter=Silent(),
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
