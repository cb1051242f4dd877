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
from importlib import import_module
from itertools import count
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
    """Too many worker processes died on one item of a task; "" if it is not known, or the only."""

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

    def next(self) -> Iterable[Event]:
        """Work until a task is done; there must be one."""
        ...

    def close(self) -> None: ...


Factory = Callable[[Announce], Worker]


class Executor(Protocol):
    """Takes tasks while it has room and returns what became of them."""

    @property
    def room(self) -> int:
        """Tasks that should be submitted now, so that no worker waits."""
        ...

    def submit(self, task: Any) -> int:
        """Queue a task and return its id."""
        ...

    def collect(self) -> list[Event]:
        """Wait for results; may be empty when only the room has changed.

        Raises:
            DtptError: A worker cannot go on, and another one could not either.
        """
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


class Attempts:
    """Counts the workers that died on each item; shared by the supervised executors."""

    def __init__(self) -> None:
        self._deaths: Counter[tuple[int, str]] = Counter()

    def blame(self, task_id: int, item: str, *, reason: str) -> Failed | None:
        """Count a death; return a failure when there were too many."""
        self._deaths[task_id, item] += 1
        if self._deaths[task_id, item] < ATTEMPTS:
            return None
        text = f"{ATTEMPTS} worker processes died while they worked on it ({reason})."
        return Failed(task_id, text, item)


@dataclass(frozen=True)
class _Begun:
    task_id: int
    item: str


@dataclass(frozen=True)
class _Stopped:
    kind: type[DtptError]
    message: str


_READY = "ready"


@dataclass
class _Member:
    number: int
    process: WorkerProcess
    tasks: dict[int, Any] = field(default_factory=dict)  # the oldest first
    begun: _Begun | None = None
    is_ready: bool = False


class ProcessExecutor:
    """Workers in processes of this machine.

    Args:
        factory: Makes the worker in each process.
        workers: Number of processes.
        depth: Tasks that a worker should have, the one at work included.
        warm: Processes from `warm_up`; those that are used are taken out of the list.
        files: File descriptors that the processes inherit.
        environment: Their variables that differ from ours.
        remedy: What a user can do when processes die at their start.
    """

    def __init__(
        self,
        factory: Factory,
        workers: int,
        *,
        depth: int = 2,
        warm: list[WorkerProcess] | None = None,
        files: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        remedy: str = "use fewer workers",
    ) -> None:
        # plain pickle: `send` would share the memory of tensors, which other programs cannot open
        self._factory = pickle.dumps(factory)
        self._depth = depth
        self._files, self._environment = tuple(files), environment
        self._remedy = remedy
        self._ids, self._numbers = count(), count()
        self._attempts = Attempts()
        self._early_deaths = 0
        self._queue: deque[tuple[int, Any]] = deque()
        self._events: list[Event] = []
        self._members: list[_Member] = []
        try:
            for _ in range(workers):
                self._members.append(self._join(warm.pop() if warm else self._start()))
        except BaseException:
            self.close()
            raise

    def _start(self) -> WorkerProcess:
        try:
            return start(SERVE, files=self._files, environment=self._environment)
        except OSError as error:
            raise WorkerError(f"Cannot start another process: {os_error(error)}.") from error

    def _join(self, process: WorkerProcess) -> _Member:
        with suppress(BrokenPipeError, ConnectionResetError):  # it died; `collect` notices
            process.pipe.send_bytes(self._factory)
        return _Member(next(self._numbers), process)

    @property
    def room(self) -> int:
        free = sum(max(self._depth - len(member.tasks), 0) for member in self._members)
        return max(free - len(self._queue), 0)

    def submit(self, task: Any) -> int:
        task_id = next(self._ids)
        self._queue.append((task_id, task))
        self._distribute()
        return task_id

    def _distribute(self) -> None:
        """Give queued tasks to the workers with the fewest."""
        while self._queue:
            member = min(self._members, key=lambda candidate: len(candidate.tasks))
            if len(member.tasks) >= self._depth:
                return
            task_id, task = self._queue.popleft()
            member.tasks[task_id] = task
            with suppress(OSError):  # it died; `collect` notices
                member.process.pipe.send((task_id, task))

    def collect(self) -> list[Event]:
        while not self._events:
            ready = wait([member.process.pipe for member in self._members])
            for member in [m for m in self._members if m.process.pipe in ready]:
                try:
                    message = member.process.pipe.recv()
                except (EOFError, OSError):
                    self._replace(member)
                else:
                    self._handle(member, message)
        self._distribute()
        events, self._events = self._events, []
        return events

    def _handle(self, member: _Member, message: Any) -> None:
        if isinstance(message, _Stopped):
            raise _rebuilt(message)
        if message == _READY:
            member.is_ready = True
            self._early_deaths = 0
        elif isinstance(message, _Begun):
            member.begun = message
        elif member.tasks.pop(message.task_id, None) is not None:
            self._events.append(replace(message, worker=member.number))

    def _replace(self, member: _Member) -> None:
        """Start another worker in place of a dead one, and queue its tasks again."""
        reason = member.process.exit_reason()
        stop([member.process])
        self._early_deaths += not member.is_ready
        if self._early_deaths >= STARTS:
            raise WorkerError(
                f"Worker processes die as soon as they start ({reason}), often because memory ran "
                f"out: {self._remedy}."
            )
        begun = member.begun
        if begun is not None and begun.task_id in member.tasks:
            failure = self._attempts.blame(begun.task_id, begun.item, reason=reason)
            if failure is not None:
                del member.tasks[begun.task_id]
                self._events.append(failure)
        self._queue.extend(member.tasks.items())
        self._members[self._members.index(member)] = self._join(self._start())
        self._distribute()

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
        pipe.send(_Begun(task_id, item))

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


def _rebuilt(stopped: _Stopped) -> DtptError:
    # not by its constructor, whose arguments may not be its message
    error = stopped.kind.__new__(stopped.kind)
    Exception.__init__(error, stopped.message)
    return error


def completed(
    executor: Executor, tasks: Iterable[tuple[T, Any]]
) -> Iterator[list[tuple[T, Event]]]:
    """Run (key, task) pairs, as many at a time as the executor has room for.

    Yields keys with what became of their tasks, those that end together in one list.
    """
    waiting = iter(tasks)
    running: dict[int, T] = {}
    is_over = False
    while not is_over or running:
        while not is_over and executor.room:
            pair = next(waiting, None)
            if pair is None:
                is_over = True
            else:
                running[executor.submit(pair[1])] = pair[0]
        if running or not is_over:
            events = [event for event in executor.collect() if event.task_id in running]
            if events:
                yield [(running.pop(event.task_id), event) for event in events]


def in_order(executor: Executor, tasks: Iterable[Any], *, ahead: int) -> Iterator[Event]:
    """Run tasks and yield their events in order; at most `ahead` are begun before the next one."""
    waiting = iter(tasks)
    begun: deque[int] = deque()
    events: dict[int, Event] = {}
    is_over = False
    while not is_over or begun:
        while not is_over and executor.room and len(begun) < ahead:
            try:
                begun.append(executor.submit(next(waiting)))
            except StopIteration:
                is_over = True
        if begun and begun[0] in events:
            yield events.pop(begun.popleft())
        elif begun or not is_over:
            events |= {event.task_id: event for event in executor.collect()}
