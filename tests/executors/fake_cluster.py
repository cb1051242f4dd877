"""A fake `ray`: nodes and actors that do what a test decides, at once and in this process."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from dtpt.executors import ray as executor_module
from dtpt.executors.pool import Done
from dtpt.executors.ray import node_facts


@dataclass(eq=False)
class Reference:
    """What a remote call returns; the test, or the cluster, resolves it."""

    value: Any = None
    error: Exception | None = None
    is_done: bool = False

    def resolve(self, value: Any = None, *, error: Exception | None = None) -> "Reference":
        self.value, self.error, self.is_done = value, error, True
        return self


@dataclass
class Deployment:
    """What a run brings to nodes; tasks are numbers, and nodes may lack some of them."""

    site: Any = None

    def probe(self):
        return self.site

    def factory(self, quota):
        return ("factory", quota.device)

    def localise(self, task, site):
        return (task, sorted(site)) if site and task in site else task

    def is_lost(self, task, result, *, site):
        if result == "lost":
            site.add(task)
            return True
        return False


class Actor:
    """A fake actor: calls are kept, and answered when the test decides."""

    def __init__(self, cluster, node):
        self.cluster, self.node = cluster, node
        self.is_killed = False
        self.is_closed = False
        self.factory = None
        self.works = []  # (tasks, keep, reference)
        self.start = SimpleNamespace(remote=self._start)
        self.work = SimpleNamespace(remote=self._work)
        self.close = SimpleNamespace(remote=self._close)

    def _start(self, factory):
        self.factory = factory
        return Reference().resolve(self.cluster.start_answer, error=self.cluster.start_error)

    def _work(self, tasks, keep):
        self.works.append((tasks, keep, Reference()))
        return self.works[-1][2]

    def _close(self):
        self.is_closed = True
        return Reference().resolve()

    @property
    def open_works(self):
        return [work for work in self.works if not work[2].is_done]

    def answer(self, *results):
        """Answer the oldest call with results, or with the number of each task."""
        tasks, _, reference = self.open_works[0]
        given = results or [task for _, task in tasks]
        pairs = zip(tasks, given, strict=True)
        reference.resolve([Done(task_id, result) for (task_id, _), result in pairs])

    def fail(self, error):
        for _, _, reference in self.open_works:
            reference.resolve(error=error)


@dataclass
class FakeCluster:
    """Replaces the module `ray` in the executor."""

    nodes_by_id: dict[str, dict[str, Any]] = field(default_factory=dict)
    actors: list[Actor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recorded: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=node_facts)
    probe_error: Exception | None = None
    probes: int = 0
    start_answer: str = ""
    start_error: Exception | None = None
    driver_is_alive: bool = True
    head_is_there: bool = True

    def add(self, node, **resources):
        self.nodes_by_id[node] = {
            "NodeID": 56 * node,  # Ray takes hexadecimal digits only
            "Alive": True,
            "NodeManagerHostname": "host",
            "Resources": resources or {"CPU": 1.0},
        }

    @property
    def workers(self):
        return [actor for actor in self.actors if not actor.is_killed]

    # -- what the executor calls --

    def head_answers(self, address):
        assert address == "head:1"
        return self.head_is_there

    def is_closed(self, address):
        assert address == "driver:2"
        return not self.driver_is_alive

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address="head:1", get_node_id=lambda: "driver")

    def nodes(self):
        assert self.head_is_there, "Ray would wait for the head"
        driver = {"NodeID": "driver", "Alive": self.driver_is_alive, "Resources": {}}
        driver |= {"NodeManagerAddress": "driver", "NodeManagerPort": 2}
        return [driver, *self.nodes_by_id.values()]

    def remote(self, thing):
        return SimpleNamespace(options=lambda **options: _Bound(self, thing, options))

    def wait(self, references, *, num_returns, timeout):
        done = [reference for reference in references if reference.is_done][:num_returns]
        return done, [reference for reference in references if reference not in done]

    def get(self, reference):
        if reference.error is not None:
            raise reference.error
        return reference.value

    def kill(self, actor):
        actor.is_killed = True


@dataclass
class _Bound:
    cluster: FakeCluster
    thing: Any
    options: dict[str, Any]

    def remote(self, *arguments):
        cluster, node = self.cluster, self.options["scheduling_strategy"].node_id
        if self.thing is executor_module._Actor:
            cluster.actors.append(Actor(cluster, node[0]))
            return cluster.actors[-1]
        cluster.probes += 1
        if cluster.probe_error is not None:
            return Reference().resolve(error=cluster.probe_error)
        _, site = self.thing(*arguments)
        return Reference().resolve((cluster.facts, site))
