"""What a run brings to the nodes of a cluster, and how it is divided among them."""

from dataclasses import replace
from functools import partial

import pytest
from tiny_runs import make_home, named_options

from dtpt.executors.cluster import Quota
from dtpt.executors.pool import Done, InlineExecutor
from dtpt.runs import cluster as module
from dtpt.runs import run_options
from dtpt.runs.cluster import (
    ClusterPlan,
    NodeWorker,
    RunDeployment,
    chunk_size,
    lacking_datasets,
    missing_images,
    plan_cluster,
    probe_images,
)
from dtpt.runs.evaluation import prepare
from dtpt.runs.progress import Silent
from dtpt.runs.worker import ImageResult, ImageTask, StreamTask


@pytest.fixture
def options(tmp_path):
    return named_options(make_home(tmp_path, per_class=3), tmp_path / "run")


@pytest.fixture
def prepared(options):
    return prepare(options)


@pytest.fixture
def deployment(prepared):
    probe = partial(lacking_datasets, probe_images(prepared.datasets))
    return RunDeployment(NodeWorker(prepared.worker, ["reference"]), probe)


@pytest.fixture
def task(prepared):
    return ImageTask(0, 0, prepared.datasets[0].samples[0], (0, 1, 2))


def test_stored_images_are_not_counted(options, prepared):
    assert missing_images(prepared, options) == 9
    run_options(options.model_copy(update={"limit": 4})).close()
    assert missing_images(prepared, options) == 5
    more = options.model_copy(update={"seed": (0, 1)})
    assert missing_images(prepare(more), more) == 14


def test_chunks_are_small_enough_for_several_nodes(options, prepared):
    assert chunk_size(prepared, options, images=9) == 1
    assert 1 < chunk_size(prepared, options, images=10**6) <= 16
    joined = options.model_copy(update={"batch": 32})
    assert chunk_size(prepared, joined, images=9) == 32


@pytest.mark.parametrize("change", ["missing", "other"])
def test_node_with_other_files_lacks_the_data_set(deployment, prepared, change):
    assert deployment.probe() == set()
    path = prepared.datasets[0].samples[0].image.path
    path.unlink() if change == "missing" else path.write_bytes(b"another image")
    assert deployment.probe() == {0}


def test_node_that_lacks_a_data_set_receives_images_with_its_tasks(deployment, task):
    assert deployment.localise(task, set()) is task
    before = (task.sample.image.key(), task.sample.image.stamp(), task.sample.image.open())
    sent = deployment.localise(task, {0})
    stream = StreamTask(0, 0, (task.sample,), (0,))
    several = deployment.localise(stream, {0})
    task.sample.image.path.unlink()
    for sample in (sent.sample, *several.samples):
        assert (sample.image.key(), sample.image.stamp(), sample.image.open()) == before
        assert (sample.id, sample.label) == (task.sample.id, task.sample.label)
    assert deployment.localise(task, {0}) == task  # unreadable here as well: the node reports it


def test_image_that_only_the_node_cannot_read_is_sent(deployment, task):
    failure = ImageResult(failure="No such file or directory")
    site = set()
    assert deployment.is_lost(task, failure, site=site)
    assert site == {0}
    assert deployment.is_lost(task, failure, site=site)  # sent before this was known


def test_image_that_is_damaged_everywhere_fails(deployment, task):
    damaged = ImageResult(failure="damaged", image_key=task.sample.image.key())
    assert not deployment.is_lost(task, damaged, site=set())
    task.sample.image.path.unlink()
    assert not deployment.is_lost(task, ImageResult(failure="no file"), site=set())


def test_worker_of_a_node_uses_the_model_of_the_driver(deployment, prepared, task, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "get", {"reference": prepared.model}.get)
    factory = deployment.factory(Quota(workers=2, device="cpu", view_workers=0, cores=1))
    without_files = replace(factory, spec=replace(factory.spec, model="local-dir:/nowhere"))
    executor = InlineExecutor(without_files)
    executor.submit(task)
    (event,) = executor.collect()
    assert isinstance(event, Done)
    assert len(event.result.rows) == 3
    executor.close()


class FakeExecutor(InlineExecutor):
    """A node "a" that answers all images, and "b", which has none in time."""

    refusals = ("c: no memory",)

    def wait_for_nodes(self):
        quotas = {"a": Quota(workers=2), "b": Quota(workers=1)}
        return [(name, {"processor": "P"}, quota) for name, quota in quotas.items()]

    def collect(self):
        return [replace(event, worker="a") for event in super().collect()]


def test_plan_divides_by_what_nodes_answered(options, prepared, monkeypatch):
    def open_fake(stack, given, **_):
        assert not given.worker.cache
        return FakeExecutor(given.worker)

    monkeypatch.setattr(module, "open_cluster", open_fake)
    plan = plan_cluster(options, reporter=Silent())
    assert isinstance(plan, ClusterPlan)
    assert [(node.name, node.workers, node.images) for node in plan.nodes] == [
        ("a", 2, 9),
        ("b", 1, 0),
    ]
    assert (plan.images, plan.refusals) == (9, ("c: no memory",))
    assert not options.output.exists()  # nothing is stored
