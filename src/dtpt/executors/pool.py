"""Executors: run tasks in this process or in supervised worker processes (`ray.py`: on a cluster).

A *worker* answers tasks. It is made by a picklable *factory*, so that every process makes its own.
The executor supervises: a worker process that dies is replaced. The item that it had begun is
blamed and tried again until `ATTEMPTS` processes have died on it; then its task fails. Tasks that
were only queued are repeated at no cost. No torch here.
"""

import pickle
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import count, islice
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dtpt.errors import DtptError, WorkerError, os_error
from dtpt.executors.process import WorkerProcess, start, stop

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SERVE = f"{__name__}:serve"
ATTEMPTS = 3  # worker processes that may die on one item before its task fails
STARTS = 3  # worker processes that may die in a row before one is ready
SECONDS_TO_END = 5.0
SECONDS_TO_FINISH = 2.0  # for what an interrupted worker has begun

T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    """A task has a result; `worker` is the number of its worker, on a cluster the node's name."""

    task_id: int
    result: Any
    worker: int | str = 0


@dataclass(frozen=True)
class Failed:
    """Too many workers died on one item of a task; "" if it is not known, or the only one."""

    task_id: int
    reason: str
    item: str = ""
    worker: int | str = 0


Event = Done | Failed
Announce = Callable[[int, str], None]  # (task id, item): called before anything that may crash


class Worker(Protocol):
    """Answers tasks, in any order; may work ahead on those that wait."""

    @property
    def pending(self) -> int: ...

    def add(self, task_id: int, task: Any) -> None: ...

    def next(self) -> Iterable[Event]: ...  # works until a task is done; there must be one

    def close(self) -> None: ...


Factory = Callable[[Announce], Worker]


class Executor(Protocol):
    """Takes tasks while it has room and returns what became of them."""

    @property
    def room(self) -> int: ...  # tasks that should be submitted now, so that no worker waits

    def submit(self, task: Any) -> int: ...  # returns the task's id

    def collect(self) -> list[Event]:
        """Wait for results, or for room; a DtptError when no worker can go on."""
        ...

    def close(self) -> None: ...


class FunctionWorker:
    """Answers each task by one function call."""

    def __init__(self, function: Callable[[Any], Any], announce: Announce) -> None:
        self._function = function
        self._announce = announce
        self._tasks: deque[tuple[int, Any]] = deque()

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def add(self, task_id: int, task: Any) -> None:
        self._tasks.append((task_id, task))

    def next(self) -> list[Event]:
        task_id, task = self._tasks.popleft()
        self._announce(task_id, "")
        return [Done(task_id, self._function(task))]

    def close(self) -> None:
        self._tasks.clear()


class InlineExecutor:
    """One worker in this process."""

    def __init__(self, factory: Factory, *, depth: int = 1) -> None:
        self._worker = factory(lambda _task, _item: None)
        self._depth = depth
        self._ids = count()

    @property
    def room(self) -> int:
        return max(self._depth - self._worker.pending, 0)

    def submit(self, task: Any) -> int:
        task_id = next(self._ids)
        self._worker.add(task_id, task)
        return task_id

    def collect(self) -> list[Event]:
        return list(self._worker.next())

    def close(self) -> None:
        self._worker.close()


class Attempts(Counter[tuple[int, str]]):
    """The workers that died on each item of a task; shared by the supervised executors."""

    def blame(self, task_id: int, item: str = "", *, reason: str) -> Failed | None:
        """Count a death; return a failure when there were too many."""
        self[task_id, item] += 1
        if self[task_id, item] < ATTEMPTS:
            return None
        text = f"{ATTEMPTS} worker processes died while they worked on it ({reason})."
        return Failed(task_id, text, item)


# What a worker process sends beside events: _READY, (task id, item) when it begins an item, and
# why it cannot go on.
_READY = "ready"


@dataclass(frozen=True)
class _Stopped:
    kind: type[DtptError]
    message: str


@dataclass(eq=False)
class _Member:
    process: WorkerProcess
    tasks: dict[int, Any] = field(default_factory=dict)  # the oldest first
    begun: tuple[int, str] = (-1, "")  # the item at work
    is_ready: bool = False

    def send(self, task_id: int, task: Any) -> None:
        self.tasks[task_id] = task
        with suppress(OSError):  # it died; `collect` notices
            self.process.pipe.send((task_id, task))


class ProcessExecutor:
    """Workers in processes of this machine."""

    def __init__(
        self,
        factories: Factory | Sequence[Factory],  # several are used in turn, one for each worker
        workers: int,
        *,
        depth: int = 2,  # tasks that a worker should have, the one at work included
        warm: list[WorkerProcess] | None = None,  # from `warm_up`; those used are taken out
        files: Sequence[int] = (),  # descriptors that the processes inherit
        environment: Mapping[str, str] | None = None,  # variables that differ from ours
        remedy: str = "use fewer workers",  # when processes die at their start
    ) -> None:
        # plain pickle: `send` would share the memory of tensors, which other programs cannot open
        each = factories if isinstance(factories, Sequence) else [factories]
        self._factories = [pickle.dumps(factory) for factory in each]
        self._depth = depth
        self._start = partial(start, SERVE, files=tuple(files), environment=environment)
        self._remedy = remedy
        self._ids = count()
        self._attempts = Attempts()
        self._early_deaths = 0
        self._members: list[_Member] = []
        try:
            for slot in range(workers):
                self._members.append(self._join(slot, warm.pop() if warm else None))
        except BaseException:
            self.close()
            raise

    def _join(self, slot: int, process: WorkerProcess | None = None) -> _Member:
        try:
            process = process or self._start()
        except OSError as error:
            raise WorkerError(f"Cannot start another process: {os_error(error)}.") from error
        with suppress(OSError):
            process.pipe.send_bytes(self._factories[slot % len(self._factories)])
        return _Member(process)

    @property
    def room(self) -> int:
        return sum(max(self._depth - len(member.tasks), 0) for member in self._members)

    def submit(self, task: Any) -> int:
        task_id = next(self._ids)
        min(self._members, key=lambda member: len(member.tasks)).send(task_id, task)
        return task_id

    def collect(self) -> list[Event]:
        events: list[Event] = []
        while not events:
            ready = wait([member.process.pipe for member in self._members])
            for slot, member in enumerate(self._members):
                if member.process.pipe in ready:
                    events += self._receive(slot, member)
        return events

    def _receive(self, slot: int, member: _Member) -> list[Event]:
        try:
            message = member.process.pipe.recv()
        except (EOFError, OSError):
            return self._replace(slot, member)
        if isinstance(message, _Stopped):
            # not by its constructor, whose arguments may not be its message
            raise message.kind.__new__(message.kind, message.message)
        if message == _READY:
            member.is_ready = True
            self._early_deaths = 0
        elif isinstance(message, tuple):
            member.begun = message
        elif member.tasks.pop(message.task_id, None) is not None:
            return [replace(message, worker=slot)]
        return []

    def _replace(self, slot: int, member: _Member) -> list[Event]:
        """Give the tasks of a dead worker to a new one; return the failure of a poison task."""
        reason = member.process.exit_reason()
        stop([member.process])
        self._early_deaths += not member.is_ready
        if self._early_deaths >= STARTS:
            raise WorkerError(
                f"Worker processes die as soon as they start ({reason}), often because memory ran "
                f"out: {self._remedy}."
            )
        failure = None
        if member.begun[0] in member.tasks:
            failure = self._attempts.blame(*member.begun, reason=reason)
        self._members[slot] = self._join(slot)
        for task_id, task in member.tasks.items():
            if failure is None or failure.task_id != task_id:
                self._members[slot].send(task_id, task)
        return [] if failure is None else [replace(failure, worker=slot)]

    def close(self) -> None:
        is_busy = any(member.tasks for member in self._members)
        processes = [member.process for member in self._members]
        stop(processes, SECONDS_TO_FINISH if is_busy else SECONDS_TO_END)
        self._members = []


@contextmanager
def warm_up(
    workers: int, *, module: str, environment: Mapping[str, str] | None = None
) -> Iterator[list[WorkerProcess]]:
    """Start processes that import a module meanwhile; those left in the list are ended."""
    waiting: list[WorkerProcess] = []
    try:
        for _ in range(workers):
            waiting.append(start(SERVE, environment=environment))
            waiting[-1].pipe.send(module)
        yield waiting
    finally:
        stop(waiting)


def serve(pipe: "Connection[Any, Any]") -> None:
    """Run in a worker process: answer tasks until the pipe closes."""
    message = pipe.recv()
    while isinstance(message, str):  # a module to import while the caller prepares
        import_module(message)
        message = pipe.recv()
    begun = ""

    def announce(task_id: int, item: str) -> None:
        nonlocal begun
        begun = item
        pipe.send((task_id, item))

    try:
        worker: Worker = message(announce)
        try:
            pipe.send(_READY)
            _answer_all(worker, pipe)
        finally:
            worker.close()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise
    except DtptError as error:
        pipe.send(_Stopped(type(error), str(error)))
    except Exception as error:
        traceback.print_exc()  # a bug of ours
        where = f" on {begun!r}" if begun else ""
        with suppress(OSError):
            text = f"A worker failed{where}: {type(error).__name__}: {error}."
            pipe.send(_Stopped(WorkerError, text))


def _answer_all(worker: Worker, pipe: "Connection[Any, Any]") -> None:
    tasks: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, tasks), daemon=True).start()
    while True:
        while not worker.pending or not tasks.empty():
            task = tasks.get()
            if isinstance(task, BaseException):
                raise task
            worker.add(*task)
        for event in worker.next():
            pipe.send(event)


def _receive(pipe: "Connection[Any, Any]", tasks: "SimpleQueue[Any]") -> None:
    # A pipe holds little. If tasks waited in it while this process sends a large result, and the
    # executor a large task, both would wait for ever.
    try:
        while True:
            tasks.put(pipe.recv())
    except BaseException as error:  # mostly EOFError; raised again where tasks are taken
        tasks.put(error)


def is_shippable(value: object) -> bool:
    """Check whether a process that does not run the caller's script could be sent a value.

    Example:
        >>> is_shippable([1, "two"]), is_shippable(lambda: 3)
        (True, False)
    """
    try:
        return b"__main__" not in pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


def completed(
    executor: Executor, tasks: Iterable[tuple[T, Any]]
) -> Iterator[list[tuple[T, Event]]]:
    """Run (key, task) pairs, as many at a time as the executor has room for.

    Yields keys with what became of their tasks, those that end together in one list. An iterator
    that had no more tasks is asked again after results, of which further tasks may be made.
    """
    waiting = iter(tasks)
    pair = next(waiting, None)
    running: dict[int, T] = {}
    while pair is not None or running:
        while pair is not None and executor.room:
            running[executor.submit(pair[1])] = pair[0]
            pair = next(waiting, None)
        done = executor.collect()  # an event of an unknown task, or a second one, is dropped
        results = [
            (running.pop(event.task_id), event) for event in done if event.task_id in running
        ]
        if results:
            yield results
        if pair is None:
            pair = next(waiting, None)


def in_order(executor: Executor, tasks: Iterable[Any], *, ahead: int) -> Iterator[Event]:
    """Run tasks and yield their events in order; at most `ahead` are begun before the next one."""
    waiting = iter(tasks)
    begun: deque[int] = deque()
    events: dict[int, Event] = {}
    while True:
        for task in islice(waiting, min(executor.room, ahead - len(begun))):
            begun.append(executor.submit(task))
        if not begun:
            return
        if begun[0] in events:
            yield events.pop(begun.popleft())
        else:
            events |= {event.task_id: event for event in executor.collect()}
