"""The rule for replicas, threads and view-making processes."""

import pytest

from dtpt.runs.resources import (
    Machine,
    Resources,
    Work,
    choose_resources,
    describe_work,
)

GB = 10**9
SMALL = Work(pictures=1000, replica_bytes=GB, picture_seconds=0.2)
LARGE = Work(pictures=1000, replica_bytes=4 * GB, picture_seconds=20)


@pytest.mark.parametrize(
    ("machine", "work", "given", "expected"),
    [
        # on a CPU: every core has a replica, with one thread whatever the machine
        (Machine(2, 20 * GB), SMALL, {}, Resources(2, 1, 0)),
        (Machine(64, 200 * GB), SMALL, {}, Resources(50, 1, 0)),
        (Machine(1, 20 * GB), SMALL, {}, Resources(1, 1, 0)),
        (Machine(8, None), LARGE, {}, Resources(8, 1, 0)),
        # memory bounds the number
        (Machine(8, 10 * GB), LARGE, {}, Resources(2, 1, 0)),
        (Machine(8, 1 * GB), LARGE, {}, Resources(1, 1, 7)),
        # threads are counted
        (Machine(8, 100 * GB), LARGE, {"threads": 4}, Resources(2, 4, 0)),
        # small work is not worth a start
        (Machine(8, 100 * GB), Work(20, GB, 0.2), {}, Resources(1, 1, 7)),
        (Machine(8, 100 * GB), Work(5, GB, 0.2), {}, Resources(1, 1, 0)),
        (Machine(2, 100 * GB), Work(4, GB, 20.0), {}, Resources(2, 1, 0)),
        # an accelerator has one replica and views beside it
        (Machine(16, 100 * GB, "cuda"), LARGE, {}, Resources(1, 1, 8)),
        (Machine(4, 100 * GB, "mps"), LARGE, {}, Resources(1, 1, 3)),
        # what is given is taken
        (Machine(8, 100 * GB), LARGE, {"workers": 3}, Resources(1, 1, 3)),
        (Machine(8, 100 * GB), LARGE, {"workers": 0}, Resources(1, 1, 0)),
        (Machine(2, GB), LARGE, {"replicas": 3, "workers": 2}, Resources(3, 1, 2)),
        (Machine(8, 100 * GB), LARGE, {"replicas": 3}, Resources(3, 1, 0)),
        (Machine(8, 100 * GB), LARGE, {"replicas": 1}, Resources(1, 1, 7)),
        # what only this process has stays here
        (Machine(8, 100 * GB), Work(1000, GB, 1.0, can_leave=False), {}, Resources(1, 1, 7)),
        (
            Machine(8, 100 * GB),
            Work(1000, GB, 1.0, can_leave=False),
            {"replicas": 4},
            Resources(1, 1, 7),
        ),
    ],
)
def test_resources_follow_machine_work_and_wishes(machine, work, given, expected):
    assert choose_resources(machine, work, **given) == expected


def test_automatic_choice_never_uses_more_than_the_cores():
    for cores in range(1, 33):
        for threads in (None, 1, 2, 5):
            for work in (SMALL, LARGE):
                found = choose_resources(Machine(cores, 10**12), work, threads=threads)
                busy = found.replicas * (found.threads + found.workers)
                assert busy <= max(cores, found.threads)


def test_larger_models_need_more_memory_and_time(tiny_model):
    few = describe_work(tiny_model, pictures=1, views=1, classes=2, can_leave=True)
    many = describe_work(tiny_model, pictures=1, views=64, classes=1000, can_leave=True)
    assert few.replica_bytes < many.replica_bytes
    assert few.picture_seconds < many.picture_seconds
    assert few.replica_bytes > 300_000_000  # a process with torch
