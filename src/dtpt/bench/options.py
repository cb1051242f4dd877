"""Options that several benchmarks share."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from dtpt.errors import BenchmarkError
from dtpt.methods import PAPER_METHODS

Json = Annotated[
    bool, Parameter(name="--json", negative=(), show_default=False, help="Print JSON.")
]
Threads = Annotated[int | None, Parameter(help="torch threads; its own choice when not given.")]
Repeat = Annotated[int, Parameter(help="Repetitions of each way, in turns; the best counts.")]

METHOD_SETS: dict[str, tuple[str, ...]] = {"one": ("d-tpt",), "five": PAPER_METHODS}


def whole_numbers(text: str, option: str) -> list[int]:
    """Return the numbers of a comma-separated list, each 1 or more.

    Example:
        >>> whole_numbers("10,47", "--classes")
        [10, 47]
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BenchmarkError(f"{option} takes whole numbers from 1 on, say 10,47; not {text!r}.")
    return [int(part) for part in parts]


def method_names(text: str) -> tuple[str, ...]:
    """Return the methods of a comma-separated list, in which "one" and "five" stand for sets.

    Example:
        >>> method_names("one,tps")
        ('d-tpt', 'tps')
    """
    names: Sequence[str] = [part.strip() for part in text.split(",")]
    found = [name for part in names for name in METHOD_SETS.get(part, (part,))]
    return tuple(dict.fromkeys(found))
