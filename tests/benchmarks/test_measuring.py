"""Timing is fair, memory is what a fresh process grew by, and work is counted."""

import os
import time

import pytest
import torch

from benchmarks.measuring import (
    BenchmarkError,
    count_gflop,
    in_turns,
    machine,
    matmul_peak_gflops,
    method_names,
    table_text,
    torch_threads,
    whole_numbers,
)
from benchmarks.memory import grown_mb
from dtpt.clip.packed import PackedWeights
from dtpt.methods import PAPER_METHODS


def test_variants_take_turns_and_every_second_round_is_reversed():
    order = []
    variants = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    times = in_turns(variants, 3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"  # the first pair warms up
    assert [len(one.seconds) for one in times.values()] == [3, 3]
    assert [len(one.processor_seconds) for one in times.values()] == [3, 3]


def test_without_warm_up_nothing_runs_more_often_than_asked():
    calls = []
    in_turns({"a": lambda: calls.append(1)}, 2, warm_up=False)
    assert len(calls) == 2


def test_the_best_counts_and_its_result_is_kept(monkeypatch):
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 22.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    results = iter("abc")
    times = in_turns({"x": lambda: next(results)}, 3, warm_up=False)["x"]
    assert (times.seconds, times.best, times.result) == ((3.0, 1.0, 2.0), 1.0, "b")
    assert times.best_processor == min(times.processor_seconds)


@pytest.mark.parametrize("repeat", [0, -1])
def test_no_repetitions_are_refused(repeat):
    with pytest.raises(BenchmarkError, match="--repeat"):
        in_turns({"a": lambda: None}, repeat)


@pytest.fixture
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), *_paths()]))


def _paths():
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def test_the_work_is_counted_and_its_preparation_is_not(importable):
    small = grown_mb("memory_hogs:hog", {"before": 0, "during": 60})
    prepared = grown_mb("memory_hogs:hog", {"before": 200, "during": 60})
    freed = grown_mb("memory_hogs:hog", {"before": 0, "during": 60, "freed": 300})
    assert all(50 < grown < 90 for grown in (small, prepared, freed))


def test_a_failure_in_the_other_process_is_one_line(importable):
    with pytest.raises(BenchmarkError, match="no such hog") as caught:
        grown_mb("memory_hogs:hog", {"before": -1, "during": 0})
    assert "\n" not in str(caught.value)


def test_a_description_has_all_that_decides_about_speed():
    described = machine()
    assert set(described) >= {
        *("processor", "cores", "threads", "load", "system", "python", "torch", "numpy", "pillow")
    }
    assert all(value not in ("", None) for value in described.values())


def test_threads_are_set_inside_and_restored_after_an_error():
    inside, before = [], torch.get_num_threads()

    def fail():
        with torch_threads(2):
            inside.append(torch.get_num_threads())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (inside, torch.get_num_threads()) == ([2], before)
    with pytest.raises(BenchmarkError, match="--threads"), torch_threads(0):
        pass


def test_work_is_counted_in_multiplications_and_additions():
    image, filters = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
    gflop = count_gflop(lambda: torch.conv2d(image, filters))
    assert gflop == pytest.approx(2 * 36 * 4 * 27 / 1e9)


def test_the_peak_is_a_rate():
    assert matmul_peak_gflops(64, repeat=1) > 0


def test_attention_and_packed_products_are_counted_as_the_products_they_are():
    q, kv = torch.ones(2, 3, 5, 8, requires_grad=True), torch.ones(2, 3, 7, 8, requires_grad=True)
    scores = 2 * 2 * 3 * 5 * 7 * 8 / 1e9  # of two times three heads, (5, 8) by (8, 7)

    def attend():
        return torch.nn.functional.scaled_dot_product_attention(q, kv, kv)

    assert count_gflop(attend) == pytest.approx(2 * scores)
    assert count_gflop(lambda: attend().sum().backward()) == pytest.approx((2 + 5) * scores)
    x, weight = torch.ones(3, 4, 256), torch.ones(512, 256)
    packed = count_gflop(lambda: PackedWeights().linear(x, weight, bias=torch.zeros(512), name="w"))
    assert packed == pytest.approx(2 * 12 * 256 * 512 / 1e9)


def test_sets_of_methods_can_be_joined_with_names():
    assert method_names("five") == PAPER_METHODS
    assert method_names("one, tps,d-tpt") == ("d-tpt", "tps")


@pytest.mark.parametrize("text", ["", "x", "10,", "0", "-1", "3.5"])
def test_numbers_below_one_are_refused(text):
    with pytest.raises(BenchmarkError, match="--classes"):
        whole_numbers(text, "--classes")


def test_a_result_is_printed_with_a_line_for_each_fact_and_a_column_for_each_row():
    rows = [{"size": 1, "seconds": 0.25}, {"size": 2, "seconds": None}]
    lines = table_text({"rows": rows, "repeat": 3, "fractions": {"a": 0.5}}).splitlines()
    assert [line.split() for line in lines] == [
        ["repeat", "3"],
        ["fractions", "a", "0.5"],
        ["size", "1", "2"],
        ["seconds", "0.25", "-"],
    ]
    assert table_text(rows).splitlines()[0].split() == ["size", "1", "2"]
