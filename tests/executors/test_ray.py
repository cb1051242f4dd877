"""The Ray executor on a fake cluster: every fault of nodes and workers, in no time."""

import time

import pytest

pytest.importorskip("ray")

from fake_cluster import Deployment, FakeCluster
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    OutOfMemoryError,
    RayTaskError,
)

from dtpt.errors import RunError
from dtpt.executors import ray as executor_module
from dtpt.executors.cluster import ResourceRequest, one_line
from dtpt.executors.pool import Done, Failed
from dtpt.executors.ray import RayExecutor


@pytest.fixture
def cluster(monkeypatch):
    made = FakeCluster()
    monkeypatch.setattr(executor_module, "ray", made)
    for name in ("head_answers", "is_closed"):
        monkeypatch.setattr(executor_module, name, getattr(made, name))
    for name in ("SECONDS_TO_WAIT", "SECONDS_BETWEEN_LOOKS"):
        monkeypatch.setattr(executor_module, name, 0.0)
    monkeypatch.setattr(executor_module, "SECONDS_WITHOUT_NODES", 0.2)
    return made


@pytest.fixture
def make(cluster):
    def executor(*, chunk=1, deployment=None, **request):
        return RayExecutor(
            deployment or Deployment(),
            request=ResourceRequest(**request),
            chunk=chunk,
            note=cluster.notes.append,
            record=cluster.recorded.append,
        )

    return executor


def settle(executor):
    """Handle everything that has happened up to now; return the events."""
    while executor._step(0):
        pass
    events, executor._events = executor._events, []
    return events


def collect(executor):
    """Collect until there are events."""
    while not (events := executor.collect()):
        pass
    return events


def submit(executor, count):
    return [executor.submit(number) for number in range(count)]


def test_tasks_wait_until_there_is_a_node(cluster, make):
    executor = make()
    assert executor.room == 0
    executor.submit("task")
    cluster.add("a")
    assert settle(executor) == []  # but the room has changed
    assert executor.room == 1
    (worker,) = cluster.workers
    assert worker.factory == ("factory", "cpu")
    worker.answer()
    assert executor.collect() == [Done(0, "task", worker="host")]
    (facts,) = cluster.recorded
    assert (facts["workers"], facts["device"]) == (1, "cpu")
    assert facts["processor"] == cluster.facts["processor"]


def test_each_worker_has_one_chunk_at_work_and_one_queued(cluster, make):
    for node in "abc":
        cluster.add(node, CPU=2.0)
    executor = make(chunk=4)
    settle(executor)
    assert executor.room == 2 * 4 * 6
    submit(executor, executor.room)
    settle(executor)
    assert [[len(tasks) for tasks, _, _ in one.works] for one in cluster.workers] == [[4, 4]] * 6
    assert executor.room == 0


def test_nodes_of_one_host_have_names_of_their_own(cluster, make):
    cluster.add("a")
    cluster.add("b")
    executor = make()
    settle(executor)
    submit(executor, 2)
    settle(executor)
    for worker in cluster.workers:
        worker.answer()
    assert {event.worker for event in settle(executor)} == {"host", "host#bbbbbb"}


@pytest.mark.parametrize(
    ("error", "is_blamed"),
    [
        (ActorDiedError(), True),
        (OutOfMemoryError("memory ran out"), True),
        (RayTaskError("work", "ZeroDivisionError: a bug", ZeroDivisionError("a bug")), True),
        (ObjectLostError("ab" * 28, None, ""), True),
        (ActorUnavailableError("the network", None), False),
    ],
)
def test_task_on_which_three_workers_died_fails_alone(cluster, make, error, is_blamed):
    cluster.add("a")
    executor = make()
    settle(executor)
    poison, other = submit(executor, 2)
    for _ in range(3):
        settle(executor)
        (worker,) = cluster.workers
        worker.fail(error)
    events = settle(executor)
    assert worker.is_killed
    assert len(cluster.actors) == 4  # each was replaced
    if is_blamed:
        (failure,) = events
        assert isinstance(failure, Failed)
        assert (failure.task_id, failure.worker) == (poison, "host")
        assert "\n" not in failure.reason
    else:
        assert events == []
    while cluster.workers[0].open_works:
        cluster.workers[0].answer()
        events += settle(executor)
    assert {event.task_id for event in events} == {poison, other}


def test_chunk_whose_worker_died_is_repeated_one_by_one(cluster, make):
    cluster.add("a")
    executor = make(chunk=3)
    settle(executor)
    submit(executor, 6)
    settle(executor)
    cluster.workers[0].fail(ActorDiedError())
    done = settle(executor)
    sizes = []
    while cluster.workers[0].open_works:
        sizes.append(len(cluster.workers[0].open_works[0][0]))
        cluster.workers[0].answer()
        done += settle(executor)
    assert sizes == [1, 1, 1, 3]  # the chunk that had not begun is not suspected
    assert sorted(event.result for event in done) == list(range(6))


def test_suspect_is_alone_also_where_workers_keep_tasks(cluster, make):
    cluster.add("a", CPU=4.0, GPU=1.0)
    executor = make(chunk=2, view_workers=1)
    settle(executor)
    submit(executor, 4)
    settle(executor)
    worker = cluster.workers[0]
    worker.works[0][2].resolve([])  # both tasks are kept
    settle(executor)
    worker.fail(ActorDiedError())  # so any of the four is to blame
    settle(executor)
    assert [(len(tasks), keep) for tasks, keep, _ in cluster.workers[0].works] == [(1, 0)] * 2


def test_tasks_of_a_node_that_left_are_not_blamed(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    submit(executor, 1)
    for _ in range(4):
        settle(executor)
        cluster.nodes_by_id["a"]["Alive"] = False
        cluster.workers[0].fail(ActorDiedError())
        assert settle(executor) == []
        assert cluster.workers == []
        cluster.add("a")
    assert cluster.notes == ["host left the cluster."] * 4
    settle(executor)
    cluster.workers[0].answer()
    assert [event.task_id for event in settle(executor)] == [0]


def test_late_answer_of_a_lost_worker_is_dropped(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    submit(executor, 2)
    settle(executor)
    worker = cluster.workers[0]
    early, late = (reference for _, _, reference in worker.works)
    late.resolve(error=ActorUnavailableError("gone", None))
    settle(executor)
    early.resolve([Done(0, "too late")])
    assert settle(executor) == []
    (second,) = cluster.workers
    second.answer()
    assert [event.result for event in settle(executor)] == [0]


def test_nodes_join_in_the_middle(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    submit(executor, 2)
    assert executor.room == 0
    cluster.add("b", CPU=3.0)
    settle(executor)
    assert len(cluster.workers) == 4
    assert executor.room == 6


def test_head_without_cores_is_not_used(cluster, make):
    cluster.add("head", memory=1e9)
    executor = make()
    executor.submit(0)
    with pytest.raises(RunError, match="no node"):
        collect(executor)
    assert (cluster.actors, cluster.probes) == ([], 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtpt": "0.0.1"}, r"host: .*0\.0\.1"),
        ({"code": "other"}, "host: .*code"),
        ({"memory": 10**9}, r"host: 1\.0 GB .* 2\.0 GB"),
    ],
)
def test_unfit_node_is_refused_with_the_reason(cluster, make, changes, words):
    cluster.facts.update(changes)
    cluster.add("a")
    executor = make(worker_bytes=2 * 10**9)
    executor.submit(0)
    with pytest.raises(RunError, match=words) as caught:
        collect(executor)
    assert "\n" not in str(caught.value)
    assert len(cluster.notes) == 1
    assert cluster.actors == []


def test_node_without_dtpt_is_refused_at_once(cluster, make):
    cluster.probe_error = RayTaskError("probe", "x\nModuleNotFoundError: No module 'dtpt'", None)
    cluster.add("a")
    executor = make()
    executor.submit(0)
    with pytest.raises(RunError, match="No module 'dtpt'"):
        collect(executor)
    assert cluster.probes == 1


def test_probe_that_dies_is_repeated_and_the_node_given_up_after_three(cluster, make):
    cluster.probe_error = ActorDiedError()
    cluster.add("a")
    executor = make()
    executor.submit(0)
    with pytest.raises(RunError, match="host"):
        collect(executor)
    assert cluster.probes == 3
    cluster.probe_error = None
    cluster.add("b")
    settle(executor)
    assert [worker.node for worker in cluster.workers] == ["b"]


def test_other_nodes_work_when_one_cannot_load_the_model(cluster, make):
    cluster.start_answer = "ViT is another model here."
    cluster.add("a", CPU=2.0)
    executor = make()
    executor.submit(0)
    with pytest.raises(RunError, match="another model"):
        collect(executor)
    cluster.start_answer = ""
    cluster.add("b")
    settle(executor)
    assert cluster.notes == ["host is not used: ViT is another model here."]
    assert [worker.node for worker in cluster.workers] == ["b"]
    assert executor.refusals == ["host: ViT is another model here"]


def test_worker_that_dies_on_a_refused_node_loses_no_task(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    submit(executor, 1)
    settle(executor)
    (node,) = executor._nodes.values()
    executor._refuse(node, "another of its workers cannot load the model")
    cluster.workers[0].fail(ActorUnavailableError("gone", None))
    cluster.add("b")
    settle(executor)
    (worker,) = cluster.workers
    assert worker.node == "b"
    worker.answer()
    assert [event.task_id for event in settle(executor)] == [0]


def test_node_on_which_workers_die_at_their_start_is_given_up(cluster, make):
    cluster.start_error = OutOfMemoryError("memory ran out")
    cluster.add("a")
    executor = make()
    executor.submit(0)
    with pytest.raises(RunError, match="memory ran out"):
        collect(executor)
    assert len(cluster.actors) == 3


def test_deaths_at_the_start_count_only_in_a_row(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    for _ in range(4):
        executor.submit(0)
        settle(executor)
        cluster.start_error = ActorDiedError()
        cluster.workers[0].fail(ActorUnavailableError("gone", None))
        executor._step(0)  # it died
        executor._step(0)  # and the next one at its start
        cluster.start_error = None
        settle(executor)
        assert len(cluster.workers) == 1
    assert cluster.notes == []


def test_head_that_is_away_for_a_moment_costs_nothing(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    submit(executor, 2)
    cluster.head_is_there = False
    settle(executor)
    (worker,) = cluster.workers
    worker.fail(ActorDiedError())  # nobody can say of what
    assert settle(executor) == []
    cluster.head_is_there = True
    settle(executor)  # the node joins again
    events = []
    while cluster.workers[0].open_works:
        cluster.workers[0].answer()
        events += settle(executor)
    assert [type(event) for event in events] == [Done, Done]


def test_head_that_stays_away_ends_the_run_with_the_way_to_resume(cluster, make, monkeypatch):
    monkeypatch.setattr(executor_module, "SECONDS_WITHOUT_HEAD", 0.05)
    cluster.add("a")
    executor = make()
    settle(executor)
    time.sleep(0.1)  # a driver that was busy with something else
    cluster.head_is_there = False
    assert settle(executor) == []
    time.sleep(0.1)
    with pytest.raises(RunError, match=r"head:1.*run the same command again"):
        settle(executor)


def test_loss_of_the_drivers_own_node_ends_the_run(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    cluster.driver_is_alive = False
    with pytest.raises(RunError, match="run the same command again"):
        settle(executor)


def test_error_of_dtpt_on_a_node_ends_the_run(cluster, make):
    cluster.add("a")
    executor = make()
    executor.submit(0)
    settle(executor)
    cluster.workers[0].works[0][2].resolve("Numbers are not finite.")
    with pytest.raises(RunError, match="host: Numbers are not finite"):
        collect(executor)


def test_what_a_worker_keeps_is_asked_for_when_nothing_follows(cluster, make):
    cluster.add("a")
    executor = make()
    settle(executor)
    executor.submit(0)
    settle(executor)
    (worker,) = cluster.workers
    worker.works[0][2].resolve([])  # its views are still being made
    settle(executor)
    tasks, keep, reference = worker.works[-1]
    assert (tasks, keep) == ([], 0)
    reference.resolve([Done(0, "done")])
    assert [event.result for event in settle(executor)] == ["done"]


def test_close_ends_every_worker(cluster, make):
    cluster.add("a", CPU=2.0)
    executor = make()
    settle(executor)
    executor.close()
    assert cluster.workers == []
    assert all(actor.is_closed for actor in cluster.actors)


def test_task_that_failed_for_what_the_node_lacks_is_sent_again(cluster, make):
    cluster.add("a")
    executor = make(deployment=Deployment(site=set()))
    settle(executor)
    executor.submit(7)
    settle(executor)
    (worker,) = cluster.workers
    worker.answer("lost")
    assert settle(executor) == []
    assert worker.open_works[0][0] == [(0, (7, [7]))]  # localised for what the node lacks
    worker.answer("done")
    assert settle(executor) == [Done(0, "done", worker="host")]


def test_tasks_that_were_sent_before_a_lack_was_known_are_sent_again_once(cluster, make):
    cluster.add("a")
    executor = make(deployment=Deployment(site=set()))
    settle(executor)
    submit(executor, 2)
    settle(executor)
    (worker,) = cluster.workers
    for _ in range(2):
        worker.answer("lost")
        assert settle(executor) == []
    for _ in range(2):
        worker.answer("lost")  # also as it was localised: this is the answer
    assert [event.result for event in settle(executor)] == ["lost", "lost"]


def test_end_by_lack_of_memory_is_one_line_with_the_remedy():
    error = OutOfMemoryError(
        "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: "
        "10.0.0.7, ID: 3eed) was 14.90GB used / 15.00GB limit (0.99)\nRefer to the documentation."
    )
    text = one_line(error)
    assert "\n" not in text
    assert all(word in text for word in ("14.90GB", "15.00GB", "--workers"))


def test_plan_waits_until_every_node_is_ready_or_refused(cluster, make):
    cluster.add("a", CPU=2.0)
    executor = make()
    ((name, facts, quota),) = executor.wait_for_nodes()
    assert (name, facts["processor"], quota.workers) == ("host", cluster.facts["processor"], 2)
    cluster.start_answer = "no"
    cluster.add("b")
    assert len(executor.wait_for_nodes()) == 1
    assert len(executor.refusals) == 1
