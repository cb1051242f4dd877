"""A run is divided by what machines do in a second."""

from types import SimpleNamespace

import pytest
from dtpt.runs.cluster.actors import ReplicaActor
from dtpt.runs.cluster.division import _batches, missing_pictures, share_out
from dtpt.runs.cluster.machines import Share, Wishes, choose_share
from dtpt.runs.cluster.opening import batch_size, plain_order
from dtpt.runs.orders import Ready, Stopped
from tiny_runs import TINY_OPTIONS, draw_images, tiny_clip

from dtpt.cli import eval as command
from dtpt.clip.loading.save import save_model
from dtpt.errors import OptionError
from dtpt.runs import EvalOptions, run_options
from dtpt.runs.evaluation import prepare, record_machine
from dtpt.runs.store import Store


@pytest.fixture
def options(tmp_path):
    save_model(tiny_clip(), tmp_path / "tiny", tokenizer_json=None)
    draw_images(tmp_path / "pictures", per_class=3)
    by_name = {
        "model": f"local-dir:{tmp_path / 'tiny'}",
        "dataset": (f"folder:{tmp_path / 'pictures'}",),
        "output": tmp_path / "run",
        "cache": False,
    }
    return EvalOptions(**{**TINY_OPTIONS, **by_name})


def machine(name, processor, replicas):
    facts = SimpleNamespace(processor=processor)
    return SimpleNamespace(name=name, facts=facts, share=Share(replicas, "cpu", 0, 1))


def test_shares_follow_replicas_and_speed():
    machines = [machine("a", "fast", 2), machine("b", "slow", 4)]
    seconds = {("fast", "cpu"): {0: 1.0, 1: 3.0}, ("slow", "cpu"): {0: 4.0, 1: 12.0}}
    found = share_out(machines, seconds, missing={0: 150, 1: 150})
    assert [one.picture_seconds for one in found] == [2.0, 8.0]
    assert [one.pictures for one in found] == [200, 100]  # 2 / 2 and 4 / 8 pictures per second


def test_stored_pictures_are_not_counted(options):
    assert missing_pictures(prepare(options), options) == {0: 9}
    run_options(options.model_copy(update={"limit": 4})).close()
    assert missing_pictures(prepare(options), options) == {0: 5}
    more = options.model_copy(update={"seed": (0, 1)})
    assert missing_pictures(prepare(more), more) == {0: 14}


def test_replica_measures_every_data_set(options):
    setup = prepare(options)
    actor = ReplicaActor()
    assert actor.start(plain_order(setup, options)) == Ready()
    batches = _batches(setup, SimpleNamespace(received={}))
    assert [len(batch.items) for batch in batches] == [1, 4]
    (seconds,) = actor.measure(batches).values()
    assert seconds > 0
    actor.close()


def test_replica_says_why_it_cannot_start(options, tmp_path):
    order = plain_order(prepare(options), options)
    (tmp_path / "tiny" / "model.safetensors").unlink()
    said = ReplicaActor().start(order)
    assert isinstance(said, Stopped)
    assert "tiny" in said.message


def test_machine_of_another_kind_is_remarked_when_it_joins(options):
    told = []
    reporter = SimpleNamespace(note=told.append)
    with Store(options.output / "run.sqlite", prepare(options).spec) as store:
        store.begin_session({"environment": {"processor": "of the driver"}})
        for name in ("Xeon", "Xeon", "EPYC", "EPYC"):
            record_machine(store, {"host": "h", "processor": name}, told=reporter)
    (remark,) = told
    assert "processor EPYC and Xeon" in remark


def test_plan_is_for_clusters(options):
    with pytest.raises(OptionError, match="add --engine ray"):
        command.evaluate(options=options, plan=True)


def test_batches_are_small_enough_to_be_shared(options):
    setup = prepare(options)
    assert batch_size(setup, options, pictures=9) == 1
    assert 1 < batch_size(setup, options, pictures=10**6) <= 16
    joined = options.model_copy(update={"batch": 32})
    assert batch_size(setup, joined, pictures=9) == 32


@pytest.mark.parametrize(
    ("offered", "wishes", "replicas"),
    [
        ({"CPU": 8.0}, Wishes(replicas=3), 3),
        ({"CPU": 8.0}, Wishes(threads=16), 0),
        ({"CPU": 8.0}, Wishes(replica_bytes=3 * 10**9), 2),
        ({"CPU": 8.0, "GPU": 1.0}, Wishes(), 1),
        ({"CPU": 8.0, "GPU": 1.0}, Wishes(device="cpu"), 8),
        ({"CPU": 8.0}, Wishes(device="cuda"), 0),
        ({}, Wishes(), 0),
    ],
)
def test_replicas_of_a_machine(offered, wishes, replicas):
    assert choose_share(offered, wishes, memory=8 * 10**9).replicas == replicas
