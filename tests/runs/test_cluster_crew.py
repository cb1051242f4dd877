"""The crew of a cluster against machines and replicas that are played: every fault, in no time."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from played_cluster import Actor, World, batch, collect_all, drain, ready

pytest.importorskip("ray")

from dtpt.runs.cluster.actors import Porter
from dtpt.runs.cluster.crew import ClusterCrew
from dtpt.runs.cluster.machines import Wishes
from dtpt.runs.cluster.supply import in_one_line
from dtpt.runs.orders import (
    Answered,
    Found,
    Place,
    Ready,
    Returned,
    Search,
    Stopped,
    Struck,
)
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    OutOfMemoryError,
    RayTaskError,
)

from dtpt.data import Sample
from dtpt.errors import RunError
from dtpt.runs.cluster import crew as crew_module
from dtpt.runs.cluster import fleet as fleet_module

ORDER = SimpleNamespace(depth=2, threads=1)


@pytest.fixture
def world(monkeypatch):
    made = World()

    def on_machine(kind, *, node, cores, accelerators=0):
        return SimpleNamespace(remote=lambda: Actor(made, kind, node))

    def kill(actor):
        actor.is_killed = True

    played = SimpleNamespace(
        nodes=lambda: list(made.nodes.values()), kill=kill, wait=lambda *a, **k: None
    )
    for module in (crew_module, fleet_module):
        monkeypatch.setattr(module, "on_machine", on_machine)
        monkeypatch.setattr(module, "ray", played)
    monkeypatch.setattr(crew_module, "order_for", lambda order, share: order)
    monkeypatch.setattr(crew_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(fleet_module, "SECONDS_BETWEEN_LOOKS", 0.0)
    return made


@pytest.fixture
def make(world):
    def crew(**changes):
        given = {"wishes": Wishes(), "goods": {}, "pictures": 1, "patience": 0.2, **changes}
        return ClusterCrew(ORDER, note=world.notes.append, record=world.joined.append, **given)

    return crew


def test_batches_wait_until_there_is_a_machine(world, make):
    crew = make(patience=60)
    assert crew.has_room
    crew.submit(batch(0))
    assert not crew.has_room
    world.add("a")
    assert crew.collect() == [Returned(())]  # lets the scheduler fill the new machine
    (joined,) = world.joined
    assert joined["processor"] == world.facts.processor
    assert joined["replicas"] == 1
    assert crew.has_room
    (replica,) = world.replicas
    replica.answer()
    (answer,) = crew.collect()
    assert (answer.place, answer.replica) == (Place(0, "p0"), "host")


def test_each_replica_has_one_batch_at_work_and_one_before_it(world, make):
    for node in "abc":
        world.add(node, CPU=2.0)
    crew = make(pictures=4)
    ready(crew)
    sent = 0
    while crew.has_room:
        sent += 1
        crew.submit(batch(sent, *(f"{sent}-{k}" for k in range(4))))
    assert [len(one.works()) for one in world.replicas] == [2] * 6


def test_machine_names_are_unique_and_progress_is_told_by_them(world, make):
    world.add("a")
    world.add("b")
    crew = make()
    ready(crew)
    crew.submit(batch(1))
    for replica in world.replicas:
        if replica.works():
            replica.answer()
    assert {event.replica for event in drain(crew)} == {"host", "host#2"}


@pytest.mark.parametrize(
    ("error", "is_blamed"),
    [
        (ActorDiedError(), True),
        (OutOfMemoryError("memory ran out"), True),
        (RayTaskError("work", "ZeroDivisionError: a bug", ZeroDivisionError("a bug")), True),
        (ActorUnavailableError("the network", None), False),
        (ObjectLostError("ab" * 28, None, ""), True),
    ],
)
def test_lost_replica_is_replaced_and_its_pictures_are_given_back(world, make, error, is_blamed):
    world.add("a")
    crew = make()
    ready(crew)
    crew.submit(batch(1))
    (first,) = world.replicas
    first.fail(error)
    events = drain(crew)
    places = (Place(0, "p0"), Place(1, "p1"))
    if is_blamed:
        struck, returned = events
        assert isinstance(struck, Struck)
        assert struck.place == places[0]
        assert struck.reason
        assert "\n" not in struck.reason
        assert returned == Returned(places[1:])
    else:
        assert events == [Returned(places)]
    assert first.is_killed
    (second,) = world.replicas
    assert second is not first
    assert crew.has_room


def test_picture_is_not_blamed_for_what_happens_to_its_batch(world, make):
    world.add("a")
    crew = make(pictures=3)
    ready(crew)
    world.replicas[0].answer()
    drain(crew)
    crew.submit(batch(1, "x", "y", "z"))
    world.replicas[0].fail(ActorDiedError())
    assert drain(crew) == [Returned(tuple(Place(1, name) for name in "xyz"))]


def test_pictures_of_a_machine_that_left_are_not_blamed(world, make):
    world.add("a")
    crew = make()
    ready(crew)
    world.nodes["a"]["Alive"] = False
    world.replicas[0].fail(ActorDiedError())
    assert drain(crew) == [Returned((Place(0, "p0"),))]
    assert world.replicas == []
    assert world.notes == ["host left the cluster."]


def test_late_answer_of_a_lost_replica_is_dropped(world, make):
    world.add("a")
    crew = make()
    ready(crew)
    replica = world.replicas[0]
    crew.submit(batch(1))
    (_, early), (_, late) = replica.works()
    late.set_exception(ActorUnavailableError("gone", None))
    early.set_result([Answered(Place(0, "p0"))])
    assert drain(crew) == [Returned((Place(0, "p0"), Place(1, "p1")))]


def test_machines_join_in_the_middle(world, make):
    world.add("a")
    crew = make()
    ready(crew)
    crew.submit(batch(1))
    world.add("b", CPU=3.0)
    while len(world.replicas) < 4:
        crew.collect()
    assert crew.has_room


def test_head_without_cores_is_not_used(world, make):
    world.add("head", memory=1e9)
    crew = make()
    crew.submit(batch(0))
    with pytest.raises(RunError, match=r"no machine to work on.*same command again"):
        crew.collect()
    assert world.actors == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtpt": "0.0.1"}, r"host: it has dtpt 0\.0\.1, the driver"),
        ({"code": "other"}, "is other code than the driver's"),
        ({"memory": 10**9}, r"1\.0 GB of memory are free there, .* takes 2\.0 GB; free some"),
    ],
)
def test_unfit_machine_is_left_out_in_one_line(world, make, changes, words):
    world.facts = replace(world.facts, **changes)
    world.add("a")
    crew = make(wishes=Wishes(replica_bytes=2 * 10**9))
    crew.submit(batch(0))
    with pytest.raises(RunError, match=words):
        crew.collect()
    (note,) = world.notes
    assert note.startswith("host is left out: ")
    assert "\n" not in note
    assert all(one.is_killed for one in world.actors)


def test_machine_without_dtpt_is_left_out(world, make):
    world.facts = RayTaskError("describe", "x\nModuleNotFoundError: No module named 'dtpt'", None)
    world.add("a")
    crew = make()
    crew.submit(batch(0))
    with pytest.raises(RunError, match=r"cannot be started there.*No module named 'dtpt'"):
        crew.collect()


def test_other_machines_go_on_when_one_cannot_load_the_model(world, make):
    world.said = Stopped("ViT is another model here.")
    world.add("a", CPU=2.0)
    crew = make(patience=60)
    crew.submit(batch(0))
    while not world.notes:
        crew._mail.take(0.01)
        crew._fleet.look()
    world.said = Ready()
    world.add("b")
    while not world.joined:
        crew.collect()
    assert world.notes == ["host is left out: ViT is another model here."]
    assert [one.node for one in world.replicas] == ["b"]


def test_machine_on_which_replicas_die_at_once_is_given_up(world, make):
    world.deadly_start = OutOfMemoryError("memory ran out")
    world.add("a")
    crew = make()
    crew.submit(batch(0))
    with pytest.raises(RunError, match=r"die there as soon as they start \(.*memory ran out"):
        collect_all(crew)
    assert len([one for one in world.actors if one.kind is not Porter]) == 3


def test_close_ends_every_replica(world, make):
    world.add("a", CPU=2.0)
    crew = make()
    ready(crew)
    crew.close()
    assert all(one.is_killed for one in world.actors)


def test_what_stays_in_work_is_asked_for_when_nothing_follows(world, make):
    world.add("a")
    crew = make()
    ready(crew)
    (replica,) = world.replicas
    ((_, answer),) = replica.works()
    answer.set_result([])  # the picture is still being made
    drain(crew)
    assert replica.works()[-1][0] is None
    replica.works()[-1][1].set_result([Answered(Place(0, "p0"))])
    assert [event.place for event in drain(crew)] == [Place(0, "p0")]
    assert crew.has_room


def test_searches_for_weights_are_done_by_one_replica(world, make):
    world.add("a")
    crew = make()
    samples = tuple(Sample(name, 0, None) for name in "xy")
    crew.submit(Search(7, 0, 0, samples, (1,)))
    assert not crew.has_room
    assert crew.collect() == [Returned(())]
    (replica,) = world.replicas
    ((sent, answer),) = replica.works()
    assert sent.samples == samples
    answer.set_result([Found(7, (2.0,), pictures=2)])
    assert drain(crew) == [Found(7, (2.0,), pictures=2)]
    assert crew.has_room


def test_machine_is_greeted_again_when_its_porter_dies(world, make):
    described = world.facts
    world.facts = ActorDiedError()
    world.add("a")
    crew = make(patience=60)
    crew.submit(batch(0))
    crew._fleet.look()
    world.facts = described
    while not world.joined:
        crew.collect()
    assert world.notes == []


def test_machine_on_which_no_porter_lives_is_left_out(world, make):
    world.facts = ActorDiedError()
    world.add("a")
    crew = make()
    crew.submit(batch(0))
    with pytest.raises(RunError, match=r"host: dtpt cannot be started there"):
        collect_all(crew)
    assert len(world.actors) == 3


def test_end_for_want_of_memory_is_told_in_our_words():
    error = OutOfMemoryError(
        "1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: "
        "10.0.0.7, ID: 3eed) was 14.90GB used / 15.00GB limit (0.99)\nRefer to the documentation."
    )
    assert in_one_line(error) == (
        "memory ran out, 14.90GB of 15.00GB were in use; free some, or give fewer --replicas"
    )


def test_deaths_at_start_count_only_in_a_row(world, make):
    world.add("a")
    crew = make(patience=60)
    ready(crew)
    for _ in range(4):
        world.deadly_start = ActorDiedError()
        world.replicas[0].fail(ActorDiedError())
        crew._mail.take(1)  # it died
        crew._mail.take(1)  # and the next one at its start
        world.deadly_start = None
        drain(crew)
        assert len(world.replicas) == 1
    assert world.notes == []
