"""The plan: which images lack rows, with those that other divisions into shards have computed."""

from dataclasses import replace

import pytest
from tiny_runs import ROW, TINY_OPTIONS

from dtpt.runs import EvalOptions
from dtpt.runs.evaluation import prepare
from dtpt.runs.plan import Plan
from dtpt.runs.shards import Shard
from dtpt.runs.store import SampleRecord, Store


@pytest.fixture
def prepared(tiny_model, images):
    options = EvalOptions(dataset=("images",), **TINY_OPTIONS, seed=(0, 1))
    return prepare(options, model=tiny_model, datasets=[images])


def write(store, spec, samples, cells=slice(None)):
    store.write_classes(spec.datasets[0].name, [str(k) for k in range(spec.datasets[0].classes)])
    for sample in samples:
        rows = dict.fromkeys(spec.cells(seed=0)[cells], ROW)
        store.write(spec.datasets[0].name, SampleRecord(sample.id, sample.label), rows=rows)


def test_only_what_is_missing_is_planned(prepared, images, tmp_path):
    with Store(tmp_path / "run.sqlite", prepared.spec) as store:
        write(store, prepared.spec, images.samples[:10])
        write(store, prepared.spec, images.samples[10:15], cells=slice(2))
        plan = Plan(prepared, store=store, shard=Shard())
        assert [(stage.seed, stage.done, stage.missing) for stage in plan.stages] == [
            (0, 10, 20),
            (1, 0, 30),
        ]
        planned = [item for stage in plan.stages for item in plan.images(stage)]
    assert len(planned) == 50
    partly = [sample.id for sample, methods in planned if methods == (2,)]
    assert partly == [sample.id for sample in images.samples[10:15]]


def test_queries_in_pieces_leave_nothing_out(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr("dtpt.runs.plan.SAMPLES_PER_QUERY", 4)
    with Store(tmp_path / "run.sqlite", prepared.spec) as store:
        plan = Plan(prepared, store=store, shard=Shard())
        assert plan.missing == 60
        assert [len(list(plan.images(stage))) for stage in plan.stages] == [30, 30]


def test_rows_of_an_earlier_division_count_if_they_are_of_the_same_run(prepared, images, tmp_path):
    other = replace(prepared, spec=prepared.spec.model_copy(update={"template": "a {}."}))
    with Store(tmp_path / "shard-1-of-3.sqlite", prepared.spec) as store:
        write(store, prepared.spec, images.samples[:6])
    with Store(tmp_path / "shard-1-of-5.sqlite", other.spec) as store:
        write(store, other.spec, images.samples[:20])
    with (
        Store(tmp_path / "run.sqlite", prepared.spec) as store,
        Plan(prepared, store=store, shard=Shard()) as plan,
    ):
        assert plan.stages[0].done == 6


def test_other_clusters_are_stored_although_no_row_is_missing(run_tiny, images):
    first = run_tiny(method="zero-shot")
    before = {sample: str(row) for sample, row in zip(*_rows(first), strict=True)}
    clustered = tuple(replace(s, cluster=f"c{k % 4}") for k, s in enumerate(images.samples))
    with run_tiny(method="zero-shot", dataset_object=replace(images, samples=clustered)) as run:
        assert run.clusters(images.name) == {s.id: s.cluster for s in clustered}
        assert {sample: str(row) for sample, row in zip(*_rows(run), strict=True)} == before


def _rows(run):
    (table,) = run.columns("sample", "confidence", "prediction").values()
    return table["sample"], table[["confidence", "prediction"]]


def test_images_of_a_shard_are_planned_alone(prepared, images, tmp_path):
    shard = Shard(2, 3)
    with (
        Store(tmp_path / shard.file_name, prepared.spec) as store,
        Plan(prepared, store=store, shard=shard) as plan,
    ):
        planned = {sample.id for sample, _ in plan.images(plan.stages[0])}
    assert planned == {sample.id for sample in images.samples if shard.holds(sample.id)}
    assert plan.stages[0].total == len(planned)
