"""Executors: the same results everywhere, dead workers replaced, poison tasks fail alone."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pool_workers import (
    BatchWorker,
    BrokenFactory,
    Calls,
    DieOnce,
    DyingFactory,
    Unloadable,
    die_if_negative,
    die_or_name,
    divide_by_zero,
    double,
    echo,
    raise_run_error,
    raise_unknown_name,
    sines,
    slow_echo,
    thread_variable,
)

from dtpt.errors import RunError, UnknownName, WorkerError
from dtpt.executors import pool
from dtpt.executors.pool import (
    Done,
    Failed,
    InlineExecutor,
    ProcessExecutor,
    completed,
    in_order,
    is_shippable,
    warm_up,
)
from dtpt.executors.process import CAN_START, start, stop

pytestmark = pytest.mark.skipif(not CAN_START, reason="no processes can be started here")
LONG = 120.0  # seconds; a loaded machine takes its time


def run_all(executor, tasks):
    """Return {task: event} of all tasks."""
    with closing(executor):
        lists = completed(executor, ((task, task) for task in tasks))
        return {task: event for events in lists for task, event in events}


def test_processes_compute_the_bits_of_one_process():
    alone = run_all(InlineExecutor(Calls(sines)), range(8))
    together = run_all(ProcessExecutor(Calls(sines), 2), range(8))
    for seed in range(8):
        np.testing.assert_array_equal(together[seed].result, alone[seed].result)
    assert {event.worker for event in together.values()} <= {0, 1}


def test_every_worker_keeps_its_own_factory_also_after_it_died():
    factories = [Calls(partial(die_or_name, name)) for name in ("first", "second")]
    tasks = [*range(6), -1, *range(6, 12)]
    events = run_all(ProcessExecutor(factories, 2), tasks)
    assert isinstance(events.pop(-1), Failed)
    names = {event.worker: event.result for event in events.values()}
    assert names == {0: "first", 1: "second"}
    assert all(event.result == names[event.worker] for event in events.values())


@pytest.mark.parametrize("depth", [1, 3])
def test_no_more_tasks_are_taken_than_there_is_room_for(depth):
    taken, executor = [], ProcessExecutor(Calls(double), 2, depth=depth)
    with closing(executor):
        tasks = ((taken.append(number), number) for number in range(40))
        done = 0
        for events in completed(executor, tasks):
            assert len(taken) - done <= 2 * depth + 1
            done += len(events)
    assert done == len(taken) == 40


def test_events_come_in_the_order_of_the_tasks_and_few_are_begun_ahead():
    executor, taken = ProcessExecutor(Calls(slow_echo), 2), []
    with closing(executor):
        tasks = (taken.append(number) or number for number in range(9))
        results = []
        for event in in_order(executor, tasks, ahead=3):
            results.append(event.result)
            assert len(taken) <= len(results) + 3
    assert results == list(range(9))


def test_worker_may_answer_many_tasks_at_once_in_any_order():
    executor = InlineExecutor(BatchWorker, depth=4)
    events = run_all(executor, range(10))
    assert {task: event.result[0] for task, event in events.items()} == {k: k for k in range(10)}
    assert max(event.result[1] for event in events.values()) == 4
    with closing(ProcessExecutor(BatchWorker, 1, depth=4)) as executor:
        assert [event.result[0] for event in in_order(executor, range(10), ahead=4)] == [*range(10)]


def test_repeated_and_unknown_events_count_once(monkeypatch):
    executor = InlineExecutor(Calls(double))
    collect = executor.collect

    def noisy():
        (event,) = collect()
        return [event, event, Done(99, "unknown")]

    monkeypatch.setattr(executor, "collect", noisy)
    with closing(executor):
        lists = list(completed(executor, ((task, task) for task in range(3))))
    assert [[(key, event.result) for key, event in one] for one in lists] == [
        [(0, 0)],
        [(1, 2)],
        [(2, 4)],
    ]


def test_large_tasks_and_large_results_do_not_block_each_other():
    # both ends of a pipe that is full would wait for ever
    tasks = [bytes([number]) * 3_000_000 for number in range(8)]
    with closing(ProcessExecutor(Calls(echo), 2, depth=4)) as executor:
        assert [event.result for event in in_order(executor, tasks, ahead=8)] == tasks


def test_poison_task_fails_after_three_deaths_and_costs_only_itself():
    events = run_all(ProcessExecutor(Calls(die_if_negative), 2, depth=3), [1, 2, -1, 3, 4, -2, 5])
    failed = {task: event for task, event in events.items() if isinstance(event, Failed)}
    assert set(failed) == {-1, -2}
    assert all("signal 9" in event.reason for event in failed.values())
    assert {event.result for task, event in events.items() if task > 0} == {1, 2, 3, 4, 5}


def test_task_on_which_one_worker_died_is_repeated(tmp_path):
    function = DieOnce(str(tmp_path / "mark"), 3)
    events = run_all(ProcessExecutor(Calls(function), 2), range(6))
    assert {task: event.result for task, event in events.items()} == {k: 2 * k for k in range(6)}


def test_killed_workers_are_replaced():
    executor = ProcessExecutor(Calls(slow_echo), 2)
    with closing(executor):
        results = completed(executor, ((number, number) for number in range(12)))
        first = next(results)
        for member in executor._members:
            member.process.process.kill()
        rest = [pair for events in results for pair in events]
    assert sorted(event.result for _, event in (*first, *rest)) == list(range(12))


def test_processes_that_die_at_their_start_are_not_started_for_ever(monkeypatch):
    begun = []
    monkeypatch.setattr(
        pool, "start", lambda *given, **named: begun.append(1) or start(*given, **named)
    )
    with closing(ProcessExecutor(DyingFactory(), 2, remedy="free memory")) as executor:
        executor.submit(1)
        with pytest.raises(WorkerError, match="free memory"):
            executor.collect()
    assert len(begun) <= 5


@pytest.mark.parametrize(
    ("factory", "task", "kind", "words"),
    [
        (BrokenFactory("no model"), 1, RunError, "no model"),
        (Calls(raise_run_error), "full disk", RunError, "full disk"),
        (Calls(raise_unknown_name), "tpd", UnknownName, "tpt"),  # not made by its constructor
        (Calls(divide_by_zero), 7, WorkerError, "ZeroDivisionError"),
        (Calls(echo), Unloadable(), WorkerError, "ValueError"),
    ],
)
def test_error_of_a_worker_ends_the_work_with_its_class_and_text(factory, task, kind, words, capfd):
    with closing(ProcessExecutor(factory, 1)) as executor:
        executor.submit(task)
        with pytest.raises(kind, match=words):
            executor.collect()


def test_error_of_an_inline_worker_is_raised_as_it_is():
    executor = InlineExecutor(Calls(divide_by_zero))
    executor.submit(1)
    with pytest.raises(ZeroDivisionError):
        executor.collect()


def test_system_that_starts_no_process_is_an_error(monkeypatch):
    def refuse(*_, **__):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(pool, "start", refuse)
    with pytest.raises(WorkerError, match="Resource temporarily unavailable"):
        ProcessExecutor(Calls(double), 2)


def test_warm_processes_are_used_and_the_others_end():
    with warm_up(3, module="pool_workers", environment={"OMP_NUM_THREADS": "5"}) as warm:
        started = {worker.process.pid: worker.process for worker in warm}
        events = run_all(ProcessExecutor(Calls(thread_variable), 2, warm=warm), range(4))
        assert len(warm) == 1
    assert {event.result[0] for event in events.values()} == {"5"}
    assert {event.result[1] for event in events.values()} <= set(started)
    assert all(process.poll() is not None for process in started.values())


def test_closing_ends_the_processes_also_in_the_middle_of_the_work():
    executor = ProcessExecutor(Calls(slow_echo), 2, depth=4)
    processes = [member.process.process for member in executor._members]
    for number in range(8):
        executor.submit(number)
    executor.collect()
    executor.close()
    assert all(process.poll() is not None for process in processes)


def test_descriptors_are_inherited():
    read, write = os.pipe()
    try:
        with closing(ProcessExecutor(Calls(partial(os.write, write)), 1, files=[write])) as made:
            made.submit(b"here")
            assert made.collect()[0].result == 4
        assert os.read(read, 4) == b"here"
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    ("value", "expected"),
    [([1, "two"], True), (double, True), (lambda: 3, False), (open(os.devnull), False)],  # noqa: SIM115
)
def test_only_what_other_processes_can_load_is_shippable(value, expected):
    assert is_shippable(value) is expected


def test_functions_of_a_script_are_not_shippable():
    code = (
        "from dtpt.executors.pool import is_shippable\n"
        "def own(): pass\n"
        "print(is_shippable(own), is_shippable(print))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_output_of_workers_does_not_mix_with_ours(capfd):
    run_all(ProcessExecutor(Calls(print), 1), ["loud"])
    out, err = capfd.readouterr()
    assert out == ""
    assert "loud" in err


DRIVER = """
import sys, time
from contextlib import closing
from pool_workers import Calls, echo
from dtpt.executors.pool import ProcessExecutor
executor = ProcessExecutor(Calls(echo), 2)
print(*(member.process.process.pid for member in executor._members), flush=True)
executor.submit(1)
executor.collect()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_workers_end_when_their_driver_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as driver:
        workers = [int(pid) for pid in driver.stdout.readline().split()]
        assert driver.stdout.readline() == "ready\n"
        assert all(is_running(pid) for pid in workers)
        driver.kill()
    deadline = time.monotonic() + LONG
    while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in workers)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_interrupts_are_for_the_driver_alone():
    worker = start(pool.SERVE)
    try:
        worker.pipe.send("json")  # a module to import, while it waits for its factory
        for number in (signal.SIGINT, signal.SIGTERM):
            worker.process.send_signal(number)
        worker.pipe.send(Calls(double))
        assert worker.pipe.recv() == pool._READY
        worker.pipe.send((0, 21))
        messages = [worker.pipe.recv() for _ in range(2)]
        assert messages[1] == Done(0, 42)
    finally:
        stop([worker], LONG)
    assert worker.process.returncode == 0
