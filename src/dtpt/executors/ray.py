"""Tasks on the nodes of a Ray cluster: one actor per worker, a `ray.wait` loop in the driver.

The driver owns the run. Nodes are probed when they join; files that a node lacks come through Ray's
object store; actors answer small chunks of tasks. Ray never restarts or repeats anything by itself:
the driver queues lost tasks again, because only it knows what was answered. A task is blamed for
the death of its worker only when it was alone in its chunk and its node is still there.
"""

import hashlib
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
from ray.exceptions import (
    ActorUnavailableError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtpt.errors import DtptError, RunError
from dtpt.executors.cluster import Quota, ResourceRequest, choose_quota, one_line
from dtpt.executors.pool import STARTS, Attempts, Event, Factory, Worker
from dtpt.files import write_atomically
from dtpt.machine import describe_machine, free_memory, package_version

SECONDS_TO_END = 5.0
SECONDS_WITHOUT_NODES = 600.0  # after which a run ends
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_WAIT = 0.5
MOST_EVENTS = 256  # that are stored together
DEATHS = (RayActorError, OutOfMemoryError, WorkerCrashedError)


@dataclass(frozen=True)
class Artifact:
    """Files that every node needs, known by their hashes."""

    title: str
    paths: tuple[Path, ...]
    digests: tuple[str, ...]  # sha256

    @classmethod
    def of(cls, title: str, paths: Sequence[Path]) -> "Artifact":
        return cls(title, tuple(paths), tuple(_file_digest(path) for path in paths))

    @property
    def key(self) -> str:
        return hashlib.sha256("".join(self.digests).encode()).hexdigest()

    def is_here(self, folder: Path | None = None) -> bool:
        """Check the driver's paths, or the files of these names in a folder."""
        paths = self.paths if folder is None else [folder / path.name for path in self.paths]
        try:
            return all(_file_digest(p) == d for p, d in zip(paths, self.digests, strict=True))
        except OSError:
            return False


def _file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class Deployment(Protocol):
    """What a run brings to the nodes; picklable, because it is used there as well."""

    @property
    def artifact(self) -> Artifact | None: ...

    def probe(self) -> Any:
        """Run on a node: return its *site*, what it has and lacks, for the methods below."""
        ...

    def received_folder(self, artifact: Artifact) -> Path:
        """Run on a node: return where files that it is sent are kept."""
        ...

    def factory(self, quota: Quota, *, received: Path | None) -> Factory:
        """Return the factory of a node's workers."""
        ...

    def localise(self, task: Any, site: Any) -> Any:
        """Return a task as a node can run it."""
        ...

    def is_lost(self, task: Any, result: Any, *, site: Any) -> bool:
        """Check whether a result is wrong for what the node lacks; the task is then run again."""
        ...


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a hash of dtpt's own source files, because a version may stand for several."""
    package = Path(str(resources.files("dtpt")))
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def node_facts() -> dict[str, Any]:
    versions = {"dtpt": package_version("dtpt"), "code": code_digest()}
    return {**describe_machine(), **versions, "memory": free_memory()}


def _probe(deployment: Deployment) -> tuple[dict[str, Any], bool, Any]:
    """Run on a node: return its facts, whether it lacks the artifact, and its site."""
    artifact = deployment.artifact
    lacks = artifact is not None and not artifact.is_here()
    return node_facts(), lacks, deployment.probe()


def _receive(deployment: Deployment, artifact: Artifact, *references: Any) -> Path:
    """Run on a node: fetch what is not there yet and return the folder."""
    folder = deployment.received_folder(artifact)
    if not artifact.is_here(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path, (reference,) in zip(artifact.paths, references, strict=True):
            write_atomically(folder / path.name, ray.get(reference))
        if not artifact.is_here(folder):
            raise OSError("files arrived damaged")
    return folder


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
    received: Path | None = None
    quota: Quota = field(default_factory=Quota)
    refusal: str = ""  # why it is not used
    early_deaths: int = 0  # in a row, before a worker was ready
    has_worked: bool = False


@dataclass(eq=False)
class _Member:
    node: _Node
    actor: Any
    calls: list[list[int]] = field(default_factory=list)  # ids of tasks, the oldest call first
    running: set[int] = field(default_factory=set)
    is_ready: bool = False


class RayExecutor:
    """Workers on the nodes of a cluster; those that die are replaced, new nodes join.

    Args:
        deployment: What the run brings to a node.
        request: How nodes are to be used.
        chunk: Tasks of one call.
        note: Shows a line to the user.
        record: Called with the facts of every node that works.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        request: ResourceRequest,
        chunk: int,
        note: Callable[[str], None],
        record: Callable[[dict[str, Any]], None],
    ) -> None:
        self._deployment, self._request, self._chunk = deployment, request, chunk
        self._note, self._record = note, record
        self._alone_since = time.monotonic()
        self._next_look = 0.0
        self._ours = node_facts()
        self._nodes: dict[str, _Node] = {}
        self._members: list[_Member] = []
        # reference -> (node or member it belongs to, handler of its value)
        self._waiting: dict[Any, tuple[_Node | _Member, Callable[[Any], None]]] = {}
        self._files: list[Any] = []  # references to the artifact's files
        self._ids = count()
        self._tasks: dict[int, Any] = {}
        self._queue: deque[int] = deque()
        self._suspects: set[int] = set()  # run alone: a worker died on their chunk
        self._attempts = Attempts()
        self._events: list[Event] = []
        self._has_news = False

    @property
    def room(self) -> int:
        depth = 2 * self._chunk  # one chunk at work and one queued
        free = sum(max(depth - len(m.running), 0) for m in self._members if m.is_ready)
        return max(free - len(self._queue), 0)

    def submit(self, task: Any) -> int:
        task_id = next(self._ids)
        self._tasks[task_id] = task
        self._queue.append(task_id)
        return task_id

    def collect(self) -> list[Event]:
        self._distribute()
        self._has_news = False
        while not self._events and not self._has_news:
            self._step(SECONDS_TO_WAIT)
        while len(self._events) < MOST_EVENTS and self._step(0):
            pass  # what has arrived meanwhile
        events, self._events = self._events, []
        return events

    def wait_for_nodes(self, seconds: float) -> list[tuple[str, Mapping[str, Any], Quota]]:
        """Wait until every node is ready or refused; return name, facts and quota of the ready."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._step(SECONDS_TO_WAIT)
            nodes = self._nodes.values()
            if nodes and all(node.has_worked or node.refusal for node in nodes):
                break
        return [(n.name, n.facts, n.quota) for n in self._nodes.values() if n.has_worked]

    @property
    def refusals(self) -> list[str]:
        """Why nodes are not used."""
        return [f"{node.name}: {node.refusal}" for node in self._nodes.values() if node.refusal]

    def _step(self, seconds: float) -> bool:
        """Handle answers that arrive within some seconds; return whether there were any."""
        self._look()
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
        self._distribute()
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

    def _look(self, *, now: bool = False) -> None:
        """Compare with the nodes that Ray knows, at most once a second unless `now`."""
        if not now and time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + SECONDS_BETWEEN_LOOKS
        alive = {entry["NodeID"]: entry for entry in ray.nodes() if entry["Alive"]}
        for node_id in [node_id for node_id in self._nodes if node_id not in alive]:
            self._leave(self._nodes.pop(node_id))
        for node_id, entry in alive.items():
            usable = choose_quota(entry["Resources"], self._request).workers
            if node_id not in self._nodes and usable:
                self._join(node_id, entry)

    def _join(self, node_id: str, entry: dict[str, Any]) -> None:
        host = entry["NodeManagerHostname"]
        taken = {node.name for node in self._nodes.values()}
        names = (host, *(f"{host}#{number}" for number in range(2, len(taken) + 3)))
        name = next(name for name in names if name not in taken)
        node = self._nodes[node_id] = _Node(node_id, name, dict(entry["Resources"]))
        self._call_on(node, _probe, handle=self._probed)

    def _call_on(
        self, node: _Node, function: Callable[..., Any], *arguments: Any, handle: Any
    ) -> None:
        options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": _on(node)}
        remote = ray.remote(function).options(**options)
        reference = remote.remote(self._deployment, *arguments)
        self._waiting[reference] = (node, partial(handle, node))

    def _leave(self, node: _Node) -> None:
        if not node.refusal:
            self._note(f"{node.name} left the cluster.")
        self._forget(node)
        for member in [m for m in self._members if m.node is node]:
            self._lose(member)

    def _probed(self, node: _Node, report: tuple[dict[str, Any], bool, Any]) -> None:
        node.facts, lacks_artifact, node.site = report
        memory = node.facts["memory"]
        node.quota = choose_quota(node.offered, self._request, memory=memory)
        if reason := _why_unfit(node.facts, self._ours):
            self._refuse(node, reason)
        elif not node.quota.workers:
            self._refuse(
                node,
                f"{(memory or 0) / 1e9:.1f} GB of memory are free, and a worker takes "
                f"{self._request.worker_bytes / 1e9:.1f} GB; free some",
            )
        elif lacks_artifact and self._deployment.artifact is not None:
            self._send(node, self._deployment.artifact)
        else:
            self._use(node)

    def _send(self, node: _Node, artifact: Artifact) -> None:
        if not self._files:  # once for all nodes
            self._files = [ray.put(path.read_bytes()) for path in artifact.paths]
        size = sum(path.stat().st_size for path in artifact.paths) / 1e6
        files = f"{len(artifact.paths)} files, {size:.1f} MB"
        self._note(f"{node.name} receives {artifact.title}: {files}.")
        # nested in lists, so that a node fetches only what it lacks
        nested = [[reference] for reference in self._files]
        self._call_on(node, _receive, artifact, *nested, handle=self._received)

    def _received(self, node: _Node, folder: Path) -> None:
        node.received = folder
        self._use(node)

    def _use(self, node: _Node) -> None:
        node.early_deaths = 0
        for _ in range(node.quota.workers):
            self._start(node)

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
            scheduling_strategy=_on(node),
        )
        member = _Member(node, kind.remote())
        self._members.append(member)
        factory = self._deployment.factory(node.quota, received=node.received)
        reference = member.actor.start.remote(factory)
        self._waiting[reference] = (member, partial(self._started, member))

    def _started(self, member: _Member, reason: str) -> None:
        node = member.node
        if reason:
            self._lose(member)
            if not node.refusal:
                self._refuse(node, reason)
            return
        member.is_ready = self._has_news = True
        node.early_deaths = 0
        if not node.has_worked:
            node.has_worked = True
            facts = {k: v for k, v in node.facts.items() if k not in ("memory", "code")}
            self._record({**facts, "device": node.quota.device, "workers": node.quota.workers})

    def _distribute(self) -> None:
        """Send chunks to the workers with the fewest tasks; suspects alone."""
        while self._queue:
            ready = [m for m in self._members if m.is_ready and len(m.calls) < 2]
            if not ready:
                return
            chunk = [self._queue.popleft()]
            if chunk[0] not in self._suspects:
                while self._queue and len(chunk) < self._chunk:
                    if self._queue[0] in self._suspects:
                        break
                    chunk.append(self._queue.popleft())
            self._call(min(ready, key=lambda member: len(member.running)), chunk)

    def _call(self, member: _Member, chunk: list[int]) -> None:
        site, localise = member.node.site, self._deployment.localise
        tasks = [(task_id, localise(self._tasks[task_id], site)) for task_id in chunk]
        # a suspect must be alone in the worker; without tasks all that it keeps is answered
        is_alone = not chunk or chunk[0] in self._suspects
        keep = 0 if is_alone else 2 * member.node.quota.view_workers
        reference = member.actor.work.remote(tasks, keep)
        member.calls.append(chunk)
        member.running.update(chunk)
        self._waiting[reference] = (member, partial(self._answered, member))

    def _answered(self, member: _Member, events: list[Event] | str) -> None:
        if isinstance(events, str):  # another worker would fail in the same way
            raise RunError(f"{member.node.name}: {events}")
        member.calls.pop(0)
        for event in events:
            if event.task_id not in member.running:
                continue
            member.running.discard(event.task_id)
            task, result = self._tasks[event.task_id], getattr(event, "result", None)
            if self._deployment.is_lost(task, result, site=member.node.site):
                self._queue.appendleft(event.task_id)
                continue
            del self._tasks[event.task_id]
            self._events.append(replace(event, worker=member.node.name))
        if member.running and not member.calls:
            self._call(member, [])  # nothing follows: answer all that it keeps
        self._has_news = True

    def _failed(self, owner: _Node | _Member, error: RayError) -> None:
        self._look(now=True)  # if its node is gone, this queues everything again
        node = owner if isinstance(owner, _Node) else owner.node
        if node.id not in self._nodes or node.refusal:
            return
        if isinstance(owner, _Node):
            node.early_deaths += 1
            if isinstance(error, DEATHS) and node.early_deaths < STARTS:
                self._call_on(node, _probe, handle=self._probed)
            else:
                what = "it cannot receive files" if node.facts else "dtpt cannot be started"
                self._refuse(node, f"{what} ({one_line(error)})")
        elif owner in self._members:
            node.early_deaths += not owner.is_ready
            self._lose(owner, error=error)
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
        if error is not None and not _is_network(error):
            at_work = member.running.difference(*member.calls[1:])
            self._suspects.update(at_work)
            if len(at_work) == 1:
                self._blame(member, *at_work, error=error)
        self._queue.extendleft(sorted(member.running, reverse=True))
        self._has_news = True

    def _blame(self, member: _Member, task_id: int, *, error: RayError) -> None:
        failure = self._attempts.blame(task_id, "", reason=one_line(error))
        if failure is not None:
            member.running.discard(task_id)
            del self._tasks[task_id]
            self._events.append(replace(failure, worker=member.node.name))

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


def _on(node: _Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)


def _is_network(error: RayError) -> bool:
    return isinstance(error, ActorUnavailableError) or "node has died" in str(error)


def _why_unfit(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """Return why a node would not compute the same as the driver; "" when it would."""
    if theirs["dtpt"] != ours["dtpt"]:
        return f"it has dtpt {theirs['dtpt']}, the driver {ours['dtpt']}; install the same on all"
    if theirs["code"] != ours["code"]:
        return f"its dtpt {theirs['dtpt']} has other code than the driver; install the same on all"
    return ""
