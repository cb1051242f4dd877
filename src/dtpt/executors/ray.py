"""Tasks on the nodes of a Ray cluster: one actor per worker, a `ray.wait` loop in the driver.

The driver owns the run. Nodes are probed when they join; actors answer small chunks of tasks. Ray
never restarts or repeats anything by itself: the driver queues lost tasks again, because only it
knows what was answered. A task is blamed for the death of its worker only when it was alone in its
chunk and its node is still there.
"""

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtpt.errors import DtptError, RunError
from dtpt.executors.cluster import (
    Quota,
    ResourceRequest,
    choose_quota,
    head_answers,
    is_closed,
    one_line,
)
from dtpt.executors.pool import SECONDS_TO_END, STARTS, Attempts, Event, Factory, Worker
from dtpt.machine import describe_machine, free_memory, package_version

SECONDS_WITHOUT_NODES = 600.0  # after which a run ends
SECONDS_WITHOUT_HEAD = 15.0  # after which a run ends; Ray would end the process after 60
SECONDS_TO_START = 120.0  # of the workers, for `wait_for_nodes`
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_WAIT = 0.5
MOST_EVENTS = 256  # that are stored together
RESUME = "Finished images are kept: run the same command again when there is a cluster."
LOST_NODE = f"Ray's node on the driver's machine has died. {RESUME}"


class Deployment(Protocol):
    """What a run brings to the nodes. A *site* is what a node has and lacks."""

    @property
    def probe(self) -> Callable[[], Any]: ...  # runs on a node, so picklable; returns its site

    def factory(self, quota: Quota) -> Factory: ...

    def localise(self, task: Any, site: Any) -> Any: ...  # returns the task as a node can run it

    # whether a result is wrong for what the node lacks; the task is then run again
    def is_lost(self, task: Any, result: Any, *, site: Any) -> bool: ...


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a hash of dtpt's own source files, because one version may have several."""
    package = Path(str(resources.files("dtpt")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def node_facts() -> dict[str, Any]:
    versions = {"dtpt": package_version("dtpt"), "code": code_digest()}
    return {**describe_machine(), **versions, "memory": free_memory()}


def _probe(probe: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """Run on a node: return its facts and its site."""
    return node_facts(), probe()


class _Actor:
    """One worker on a node; where a method returns text, the worker cannot go on."""

    _worker: Worker

    def start(self, factory: Factory) -> str:
        try:
            self._worker = factory(lambda _task, _item: None)
        except DtptError as error:
            return str(error)
        return ""

    def work(self, tasks: Sequence[tuple[int, Any]], keep: int) -> list[Event] | str:
        """Take tasks and answer all but `keep`, which are rendered until the next call."""
        for task_id, task in tasks:
            self._worker.add(task_id, task)
        events: list[Event] = []
        try:
            while self._worker.pending > keep:
                events += self._worker.next()
        except DtptError as error:
            return str(error)
        return events

    def close(self) -> None:
        self._worker.close()


@dataclass(eq=False)
class _Node:
    id: str
    name: str  # unique
    offered: dict[str, float]  # Ray's resources
    facts: Mapping[str, Any] = field(default_factory=dict)
    site: Any = None
    quota: Quota = field(default_factory=Quota)
    refusal: str = ""  # why it is not used
    early_deaths: int = 0  # in a row, before a worker was ready
    has_worked: bool = False

    @property
    def strategy(self) -> NodeAffinitySchedulingStrategy:
        return NodeAffinitySchedulingStrategy(node_id=self.id, soft=False)


@dataclass(eq=False)
class _Member:
    node: _Node
    actor: Any
    calls: list[list[int]] = field(default_factory=list)  # ids of tasks, the oldest call first
    running: dict[int, bool] = field(default_factory=dict)  # task id -> whether it was localised
    is_ready: bool = False


class RayExecutor:
    """Workers on the nodes of a cluster; those that die are replaced, new nodes join."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        request: ResourceRequest,
        chunk: int,  # tasks of one call
        note: Callable[[str], None],  # for the user
        record: Callable[[dict[str, Any]], None],  # called with the facts of every node that works
    ) -> None:
        self._deployment, self._request, self._chunk = deployment, request, chunk
        self._note, self._record = note, record
        self._alone_since = time.monotonic()
        self._last_look = -math.inf
        context = ray.get_runtime_context()
        self._head, self._own_node = context.gcs_address, context.get_node_id()
        self._away_since = math.inf  # when the head did not answer first
        self._own_address = ""  # of that node, once it is known
        self._ours = node_facts()
        self._nodes: dict[str, _Node] = {}
        self._members: list[_Member] = []
        # reference -> (node or member it belongs to, handler of its value)
        self._waiting: dict[Any, tuple[_Node | _Member, Callable[[Any], None]]] = {}
        self._ids = count()
        self._tasks: dict[int, Any] = {}
        self._queue: deque[int] = deque()
        self._suspects: deque[int] = deque()  # queued, but run alone: a worker died on their chunk
        self._attempts = Attempts()
        self._events: list[Event] = []

    @property
    def room(self) -> int:
        depth = 2 * self._chunk  # one chunk at work and one queued
        free = sum(max(depth - len(m.running), 0) for m in self._members if m.is_ready)
        return max(free - len(self._queue) - len(self._suspects), 0)

    def submit(self, task: Any) -> int:
        task_id = next(self._ids)
        self._tasks[task_id] = task
        self._queue.append(task_id)
        return task_id

    def collect(self) -> list[Event]:
        self._step(SECONDS_TO_WAIT)
        while len(self._events) < MOST_EVENTS and self._step(0):
            pass  # what has arrived meanwhile
        events, self._events = self._events, []
        return events

    def wait_for_nodes(self) -> list[tuple[str, Mapping[str, Any], Quota]]:
        """Wait until every node is ready or refused; return name, facts and quota of the ready."""
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline:
            self._step(SECONDS_TO_WAIT)
            nodes = self._nodes.values()
            if nodes and all(node.has_worked or node.refusal for node in nodes):
                break
        ready = [(n.name, n.facts, n.quota) for n in self._nodes.values() if n.has_worked]
        if not ready:
            raise RunError(f"No worker was ready after {SECONDS_TO_START:.0f} seconds.")
        return ready

    @property
    def refusals(self) -> list[str]:
        """Why nodes are not used."""
        return [f"{node.name}: {node.refusal}" for node in self._nodes.values() if node.refusal]

    def _step(self, seconds: float) -> bool:
        """Handle answers that arrive within some seconds; return whether there were any."""
        self._look()
        self._distribute()
        ready: list[Any] = []
        if self._waiting:
            ready, _ = ray.wait(list(self._waiting), num_returns=1, timeout=seconds)
        elif seconds:
            time.sleep(seconds)
        for reference in ready:
            owner, handle = self._waiting.pop(reference)
            try:
                value = ray.get(reference)
            except RayError as error:
                self._failed(owner, error)
            else:
                handle(value)
        self._check_nodes()
        return bool(ready)

    def _check_nodes(self) -> None:
        """Give up when no node can work and none is likely to come."""
        if self._members or self._waiting:
            self._alone_since = time.monotonic()
            return
        if self._nodes and len(self.refusals) == len(self._nodes):
            raise RunError(f"No node of the cluster can work. {'; '.join(self.refusals[:3])}.")
        seconds = time.monotonic() - self._alone_since
        if seconds > SECONDS_WITHOUT_NODES:
            raise RunError(
                f"The cluster has had no node to work on for {seconds:.0f} seconds. Finished "
                "images are kept: run the same command again when there are nodes."
            )

    # -- nodes --

    def _look(self, *, now: bool = False) -> bool:
        """Compare with the nodes that Ray knows, at most once a second unless `now`.

        Returns whether they are known: not while the head of the cluster is away.
        """
        if not now and time.monotonic() < self._last_look + SECONDS_BETWEEN_LOOKS:
            return True
        self._last_look = time.monotonic()
        if not self._check_head():
            return False
        alive = {entry["NodeID"]: entry for entry in ray.nodes() if entry["Alive"]}
        if self._own_node not in alive:
            raise RunError(LOST_NODE)
        own = alive[self._own_node]
        self._own_address = f"{own['NodeManagerAddress']}:{own['NodeManagerPort']}"
        for node_id in [node_id for node_id in self._nodes if node_id not in alive]:
            self._leave(self._nodes.pop(node_id))
        for node_id, entry in alive.items():
            usable = choose_quota(entry["Resources"], self._request).workers
            if node_id not in self._nodes and usable:
                self._join(node_id, entry)
        return True

    def _check_head(self) -> bool:
        """Return whether the head answers, before Ray is asked, which would wait for it.

        Some seconds after the driver's own node has died, Ray ends the process without a word.
        """
        if self._own_address and is_closed(self._own_address):
            raise RunError(LOST_NODE)
        is_there = head_answers(self._head)
        now = time.monotonic()
        self._away_since = math.inf if is_there else min(self._away_since, now)
        if (seconds := now - self._away_since) > SECONDS_WITHOUT_HEAD:
            raise RunError(
                f"The head of the Ray cluster, {self._head}, has not answered for {seconds:.0f} "
                f"seconds. {RESUME}"
            )
        return is_there

    def _join(self, node_id: str, entry: dict[str, Any]) -> None:
        name = entry["NodeManagerHostname"]
        if any(node.name == name for node in self._nodes.values()):
            name = f"{name}#{node_id[:6]}"
        self._nodes[node_id] = _Node(node_id, name, entry["Resources"])
        self._send_probe(self._nodes[node_id])

    def _send_probe(self, node: _Node) -> None:
        remote = ray.remote(_probe)
        remote = remote.options(num_cpus=0, max_retries=0, scheduling_strategy=node.strategy)
        reference = remote.remote(self._deployment.probe)
        self._waiting[reference] = (node, partial(self._probed, node))

    def _leave(self, node: _Node) -> None:
        if not node.refusal:
            self._note(f"{node.name} left the cluster.")
        self._forget(node)
        for member in [m for m in self._members if m.node is node]:
            self._lose(member)

    def _probed(self, node: _Node, report: tuple[dict[str, Any], Any]) -> None:
        node.facts, node.site = report
        node.quota = choose_quota(node.offered, self._request, memory=node.facts["memory"])
        if reason := self._why_unfit(node):
            self._refuse(node, reason)
            return
        node.early_deaths = 0
        for _ in range(node.quota.workers):
            self._start(node)

    def _why_unfit(self, node: _Node) -> str:
        """Return why a node cannot work, or not compute the same as the driver; "" if it can."""
        if any(node.facts[key] != self._ours[key] for key in ("dtpt", "code")):
            versions = f"dtpt {node.facts['dtpt']} and the driver's {self._ours['dtpt']}"
            return f"the code of its {versions} differs; install the same on all nodes"
        if not node.quota.workers:
            free, needed = (node.facts["memory"] or 0) / 1e9, self._request.worker_bytes / 1e9
            return f"{free:.1f} GB of memory are free, and a worker takes {needed:.1f} GB"
        return ""

    def _refuse(self, node: _Node, reason: str) -> None:
        node.refusal = reason.rstrip(".")
        self._forget(node)
        self._note(f"{node.name} is not used: {node.refusal}.")

    def _forget(self, owner: _Node | _Member) -> None:
        for reference in [ref for ref, (who, _) in self._waiting.items() if who is owner]:
            del self._waiting[reference]

    # -- workers --

    def _start(self, node: _Node) -> None:
        kind = ray.remote(_Actor).options(
            num_cpus=node.quota.cores,
            num_gpus=node.quota.accelerators,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=node.strategy,
        )
        member = _Member(node, kind.remote())
        self._members.append(member)
        reference = member.actor.start.remote(self._deployment.factory(node.quota))
        self._waiting[reference] = (member, partial(self._started, member))

    def _started(self, member: _Member, reason: str) -> None:
        node = member.node
        if reason:
            self._lose(member)
            if not node.refusal:
                self._refuse(node, reason)
            return
        member.is_ready = True
        node.early_deaths = 0
        if not node.has_worked:
            node.has_worked = True
            facts = {k: v for k, v in node.facts.items() if k not in ("memory", "code")}
            self._record({**facts, "device": node.quota.device, "workers": node.quota.workers})

    def _distribute(self) -> None:
        """Send chunks to the workers with the fewest tasks; suspects alone."""
        while self._queue or self._suspects:
            ready = [m for m in self._members if m.is_ready and len(m.calls) < 2]
            if not ready:
                return
            member = min(ready, key=lambda member: len(member.running))
            if self._suspects:
                self._call(member, [self._suspects.popleft()], keep=0)
            else:
                size = min(self._chunk, len(self._queue))
                chunk = [self._queue.popleft() for _ in range(size)]
                self._call(member, chunk, keep=2 * member.node.quota.view_workers)

    def _call(self, member: _Member, chunk: list[int], *, keep: int) -> None:
        tasks = []
        for task_id in chunk:
            task = self._deployment.localise(self._tasks[task_id], member.node.site)
            member.running[task_id] = task is not self._tasks[task_id]
            tasks.append((task_id, task))
        reference = member.actor.work.remote(tasks, keep)
        member.calls.append(chunk)
        self._waiting[reference] = (member, partial(self._answered, member))

    def _answered(self, member: _Member, events: list[Event] | str) -> None:
        if isinstance(events, str):  # another worker would fail in the same way
            raise RunError(f"{member.node.name}: {events}")
        member.calls.pop(0)
        for event in events:
            task, result = self._tasks[event.task_id], getattr(event, "result", None)
            was_localised = member.running.pop(event.task_id)
            if was_localised or not self._deployment.is_lost(task, result, site=member.node.site):
                self._finish(event, member)
            else:
                self._queue.appendleft(event.task_id)
        if member.running and not member.calls:
            self._call(member, [], keep=0)  # nothing follows: answer all that it keeps

    def _finish(self, event: Event, member: _Member) -> None:
        del self._tasks[event.task_id]
        self._events.append(replace(event, worker=member.node.name))

    def _failed(self, owner: _Node | _Member, error: RayError) -> None:
        is_known = self._look(now=True)  # if its node is gone, this queues everything again
        node = owner if isinstance(owner, _Node) else owner.node
        if node.id not in self._nodes:
            return
        if not is_known:  # nobody is to blame; the node joins again when the head is back
            self._leave(self._nodes.pop(node.id))
            return
        if isinstance(owner, _Node):
            node.early_deaths += 1
            if not isinstance(error, RayTaskError) and node.early_deaths < STARTS:
                self._send_probe(node)
            else:
                self._refuse(node, f"dtpt cannot be started ({one_line(error)})")
        elif owner in self._members:
            node.early_deaths += not owner.is_ready
            self._lose(owner, error=error)
            if node.refusal:
                return  # by another worker
            if node.early_deaths < STARTS:
                self._start(node)
            elif not any(member.node is node for member in self._members):
                self._refuse(node, f"workers die as soon as they start ({one_line(error)})")

    def _lose(self, member: _Member, *, error: RayError | None = None) -> None:
        """Drop a worker and queue its tasks again; a task that was alone may be to blame."""
        self._members.remove(member)
        self._forget(member)
        with suppress(Exception):  # it may be dead already
            ray.kill(member.actor)
        is_network = isinstance(error, ActorUnavailableError) or "node has died" in str(error)
        if error is not None and not is_network:
            at_work = set(member.running).difference(*member.calls[1:])
            for task_id in at_work:
                del member.running[task_id]
            self._suspect(member, sorted(at_work), error=error)
        self._queue.extendleft(sorted(member.running, reverse=True))

    def _suspect(self, member: _Member, at_work: list[int], *, error: RayError) -> None:
        failure = None
        if len(at_work) == 1:
            failure = self._attempts.blame(at_work[0], reason=one_line(error))
        if failure is None:
            self._suspects.extend(at_work)
        else:
            self._finish(failure, member)

    def close(self) -> None:
        """End all workers; in an interrupted run at once."""
        try:
            is_busy = any(member.running for member in self._members)
            ending = [] if is_busy else [member.actor.close.remote() for member in self._members]
            if ending:
                ray.wait(ending, num_returns=len(ending), timeout=SECONDS_TO_END)
        except RayError:
            pass
        finally:
            for member in list(self._members):
                self._lose(member)
