"""The choice of workers, threads and view workers."""

from dataclasses import replace

import pytest

from dtpt.methods import resolve_method
from dtpt.runs.resources import (
    Machine,
    Resources,
    Work,
    choose_resources,
    describe_work,
    pack_seconds,
)

GB = 10**9
SMALL = Work(images=1000, worker_bytes=GB, image_seconds=0.2)
LARGE = Work(images=1000, worker_bytes=4 * GB, image_seconds=20)


@pytest.mark.parametrize(
    ("machine", "work", "given", "expected"),
    [
        # on a CPU: every core has a worker, with one thread whatever the machine
        (Machine(2, 20 * GB), SMALL, {}, Resources(2, 1, 0)),
        (Machine(64, 200 * GB), SMALL, {}, Resources(50, 1, 0)),
        (Machine(1, 20 * GB), SMALL, {}, Resources(1, 1, 0)),
        (Machine(8, None), LARGE, {}, Resources(8, 1, 0)),
        # memory bounds the number
        (Machine(8, 10 * GB), LARGE, {}, Resources(2, 1, 0)),
        (Machine(8, 1 * GB), LARGE, {}, Resources(1, 1, 7)),
        # threads are counted
        (Machine(8, 100 * GB), LARGE, {"threads": 4}, Resources(2, 4, 0)),
        # small work does not pay for a start
        (Machine(8, 100 * GB), Work(20, GB, 0.2), {}, Resources(1, 1, 7)),
        (Machine(8, 100 * GB), Work(5, GB, 0.2), {}, Resources(1, 1, 0)),
        (Machine(2, 100 * GB), Work(4, GB, 20.0), {}, Resources(2, 1, 0)),
        # an accelerator has one worker and view workers beside it
        (Machine(16, 100 * GB, "cuda"), LARGE, {}, Resources(1, 1, 8)),
        (Machine(4, 100 * GB, "mps"), LARGE, {}, Resources(1, 1, 3)),
        # several have one each, as far as there is work, and share the cores
        (Machine(16, 100 * GB, "cuda", 4), LARGE, {}, Resources(4, 1, 3)),
        (Machine(16, 100 * GB, "cuda", 4), LARGE, {"view_workers": 2}, Resources(4, 1, 2)),
        (Machine(16, 100 * GB, "cuda", 4), LARGE, {"workers": 2}, Resources(2, 1, 7)),
        (Machine(2, 100 * GB, "cuda", 4), LARGE, {}, Resources(4, 1, 0)),
        (Machine(16, 100 * GB, "cuda", 4), Work(40, GB, 20.0), {}, Resources(2, 1, 7)),
        (Machine(16, 100 * GB, "cuda", 4), Work(9, GB, 20.0), {}, Resources(1, 1, 0)),
        # explicit values are kept
        (Machine(8, 100 * GB), LARGE, {"view_workers": 3}, Resources(1, 1, 3)),
        (Machine(8, 100 * GB), LARGE, {"view_workers": 0}, Resources(1, 1, 0)),
        (Machine(2, GB), LARGE, {"workers": 3, "view_workers": 2}, Resources(3, 1, 2)),
        (Machine(8, 100 * GB), LARGE, {"workers": 3}, Resources(3, 1, 0)),
        (Machine(8, 100 * GB), LARGE, {"workers": 1}, Resources(1, 1, 7)),
        # what only this process has is used here
        (Machine(8, 100 * GB), Work(1000, GB, 1.0, is_shippable=False), {}, Resources(1, 1, 7)),
        (
            Machine(8, 100 * GB),
            Work(1000, GB, 1.0, is_shippable=False),
            {"workers": 4},
            Resources(1, 1, 7),
        ),
    ],
)
def test_resources_follow_machine_work_and_options(machine, work, given, expected):
    assert choose_resources(machine, work, **given) == expected


def test_automatic_choice_never_uses_more_than_the_cores():
    for cores in range(1, 33):
        for threads in (None, 1, 2, 5):
            for work in (SMALL, LARGE):
                chosen = choose_resources(Machine(cores, 10**12), work, threads=threads)
                busy = chosen.workers * (chosen.threads + chosen.view_workers)
                assert busy <= max(cores, chosen.threads)


def test_larger_models_need_more_memory_and_time(tiny_model):
    few = describe_work(tiny_model, images=1, views=1, classes=2, is_shippable=True)
    many = describe_work(tiny_model, images=1, views=64, classes=1000, is_shippable=True)
    assert few.worker_bytes < many.worker_bytes
    assert few.image_seconds < many.image_seconds
    assert few.worker_bytes > 300_000_000  # a process with torch


def test_features_of_a_pack_cost_methods_views_classes_and_tuning(tiny_model):
    def seconds(*names, views=64, classes=1000):
        methods = [resolve_method(name) for name in names]
        return pack_seconds(tiny_model, methods, views=views, classes=classes)

    assert seconds("zero-shot") < seconds("zero-shot", "vte") < seconds("tpt")
    assert seconds("vte", views=1) < seconds("vte")
    assert seconds("vte", classes=10) < seconds("vte")


def test_no_process_makes_views_of_a_pack():
    work = Work(images=5000, worker_bytes=10**9, image_seconds=1e-6, is_rendered=False)
    machine = Machine(cores=8, memory=16 * 10**9)
    assert choose_resources(machine, work) == Resources(1, 1, 0)
    assert choose_resources(machine, replace(work, image_seconds=0.1)).workers == 8
