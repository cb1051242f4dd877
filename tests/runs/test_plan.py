"""The plan: what lacks rows, in pieces, with what other divisions into shards have done."""

from dataclasses import replace

import pytest
from tiny_runs import TINY_OPTIONS

from dtpt.runs import EvalOptions
from dtpt.runs.evaluation import prepare
from dtpt.runs.plan import Plan
from dtpt.runs.shards import Shard
from dtpt.runs.store import Answer, SampleInfo, Store

ANSWER = Answer(0, 0.5, 1.0, 0.5, 0.4, ((0, 0.5),), 0, 0.5)


@pytest.fixture
def setup(tiny_model, pictures):
    options = EvalOptions(dataset=("pictures",), **TINY_OPTIONS, seed=(0, 1))
    return prepare(options, model=tiny_model, datasets=[pictures])


def write(store, spec, samples, cells=slice(None)):
    for sample in samples:
        chosen = spec.cells(seed=0)[cells]
        info = SampleInfo(spec.datasets[0].name, sample.id, sample.label)
        store.write(info, dict.fromkeys(chosen, ANSWER))


def test_only_what_is_missing_is_planned(setup, pictures, tmp_path):
    with Store(tmp_path / "run.sqlite", setup.spec) as store:
        write(store, setup.spec, pictures.samples[:10])
        write(store, setup.spec, pictures.samples[10:15], cells=slice(2))
        plan = Plan(setup, store=store, shard=Shard())
        assert [(stage.seed, stage.done, stage.missing) for stage in plan.stages] == [
            (0, 10, 20),
            (1, 0, 30),
        ]
        items = [item for batch in plan.batches(7) for item in batch.items]
        assert len(items) == 50
        partly = [item for item in items if item.methods == (2,)]
        assert [item.sample.id for item in partly] == [s.id for s in pictures.samples[10:15]]


def test_pieces_leave_nothing_out(setup, tmp_path, monkeypatch):
    monkeypatch.setattr("dtpt.runs.plan.LOOKED_UP_TOGETHER", 4)
    with Store(tmp_path / "run.sqlite", setup.spec) as store:
        plan = Plan(setup, store=store, shard=Shard())
        batches = list(plan.batches(7))
    assert plan.missing == 60 == sum(len(batch.items) for batch in batches)
    assert max(len(batch.items) for batch in batches) == 7
    assert [batch.number for batch in batches] == list(range(len(batches)))


def test_rows_of_an_earlier_division_count_if_they_are_of_the_same_run(setup, pictures, tmp_path):
    other = replace(setup, spec=setup.spec.model_copy(update={"template": "a {}."}))
    with Store(tmp_path / "shard-1-of-3.sqlite", setup.spec) as store:
        write(store, setup.spec, pictures.samples[:6])
    with Store(tmp_path / "shard-1-of-5.sqlite", other.spec) as store:
        write(store, other.spec, pictures.samples[:20])
    with (
        Store(tmp_path / "run.sqlite", setup.spec) as store,
        Plan(setup, store=store, shard=Shard()) as plan,
    ):
        assert plan.stages[0].done == 6


def test_share_of_a_shard_is_planned_alone(setup, pictures, tmp_path):
    shard = Shard(2, 3)
    with (
        Store(tmp_path / shard.file_name, setup.spec) as store,
        Plan(setup, store=store, shard=shard) as plan,
    ):
        planned = {item.sample.id for batch in plan.batches(5) for item in batch.items}
    assert planned == {sample.id for sample in pictures.samples if shard.holds(sample.id)}
    assert plan.stages[0].total == len(planned)
