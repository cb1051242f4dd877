"""Timing is fair: in turns, equally often, and the result of the fastest is kept."""

import time

import pytest

from dtpt.bench.timing import in_turns
from dtpt.errors import BenchmarkError


def test_ways_take_turns_and_every_second_round_is_reversed():
    order = []
    ways = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    times = in_turns(ways, 3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"  # the first pair warms up
    assert [len(own.seconds) for own in times.values()] == [3, 3]
    assert [len(own.processor_seconds) for own in times.values()] == [3, 3]


def test_without_warm_up_nothing_runs_more_often_than_asked():
    calls = []
    in_turns({"a": lambda: calls.append(1)}, 2, warm_up=False)
    assert len(calls) == 2


def test_the_best_counts_and_its_result_is_kept():
    naps = iter([0.03, 0.0, 0.02])

    def nap():
        length = next(naps)
        time.sleep(length)
        return length

    times = in_turns({"nap": nap}, 3, warm_up=False)["nap"]
    assert times.result == 0.0
    assert times.best == min(times.seconds)
    assert times.best_processor == min(times.processor_seconds)
    assert times.seconds[0] >= 0.03
    assert times.processor_seconds[0] < 0.03  # sleeping is not work


@pytest.mark.parametrize("repeat", [0, -1])
def test_no_repetitions_are_refused(repeat):
    with pytest.raises(BenchmarkError, match="1 or more"):
        in_turns({"a": lambda: None}, repeat)
