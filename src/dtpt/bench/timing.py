"""Timing that is fair to every way: in turns in one process, equally often, the best of each.

On a machine that does other things as well the best of several is nearest to what a way costs, and
taking turns gives each the same chances. Processor time (of all threads of this process) is kept
beside the time on the clock: other programs disturb it less.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from dtpt.errors import BenchmarkError

Result = TypeVar("Result")


@dataclass(frozen=True)
class Times(Generic[Result]):
    """What one way took.

    Attributes:
        seconds: On the clock, of each repetition.
        processor_seconds: Of all threads of the process, of each repetition.
        result: What the fastest repetition returned.
    """

    seconds: tuple[float, ...]
    processor_seconds: tuple[float, ...]
    result: Result

    @property
    def best(self) -> float:
        """The shortest time on the clock."""
        return min(self.seconds)

    @property
    def best_processor(self) -> float:
        """The shortest processor time."""
        return min(self.processor_seconds)


def in_turns(
    ways: Mapping[str, Callable[[], Result]], repeat: int, *, warm_up: bool = True
) -> dict[str, Times[Result]]:
    """Run every way `repeat` times, in turns; every second round in the opposite order.

    Args:
        ways: What is compared.
        repeat: How often each is timed, at least once.
        warm_up: Whether each runs once before that, not timed.

    Example:
        >>> times = in_turns({"short": lambda: sum(range(10)), "long": lambda: 0}, 3)
        >>> len(times["long"].seconds), times["short"].result
        (3, 45)
    """
    if repeat < 1:
        raise BenchmarkError(f"Repetitions must be 1 or more, not {repeat}.")
    if warm_up:
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    results: dict[str, Result] = {}
    for turn in range(repeat):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            began, began_processor = time.perf_counter(), time.process_time()
            result = ways[name]()
            taken = time.perf_counter() - began
            processor[name].append(time.process_time() - began_processor)
            if taken < min(seconds[name], default=math.inf):
                results[name] = result
            seconds[name].append(taken)
    return {
        name: Times(tuple(seconds[name]), tuple(processor[name]), results[name]) for name in ways
    }
