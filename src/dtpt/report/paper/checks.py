"""Whether the printed numbers are possible: means, copied rows, bounds, sizes of the test sets."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from dtpt.data.catalog import catalog_entry
from dtpt.methods import PAPER_METHODS
from dtpt.report.paper.numbers import (
    EXACT,
    ROUNDING,
    SEEDS,
    SET_TABLES,
    PaperColumn,
    family_of,
    paper_columns,
    paper_mean,
)

PERCENTS = 10_000  # with two decimals, from 0 to 100


@dataclass(frozen=True)
class Check:
    """A property that printed numbers must have."""

    name: str
    checked: int
    failed: tuple[str, ...]  # the numbers that do not have it
    detail: str = ""


def check_paper() -> list[Check]:
    """Check the printed means, whether values are possible, and the sizes of the test sets."""
    tuned = PAPER_METHODS[1:]
    return [
        *_mean_checks(),
        _copy_check(),
        *_bound_checks(),
        _size_check("zero-shot accuracy is k / n", PAPER_METHODS[:1], runs=1),
        _size_check("tuned accuracy is k / n (one run)", tuned, runs=1),
        _size_check("tuned accuracy is k / 2n (two runs)", tuned, runs=2),
        _size_check("tuned accuracy is k / 3n (three runs)", tuned, runs=SEEDS),
    ]


def _mean_checks() -> Iterator[Check]:
    from_column, from_main = {}, {}
    for column in paper_columns((*SET_TABLES, "fig3b"), means=True):
        sets = paper_columns([column.table])
        for (method, metric), value in column.numbers.items():
            name = f"{column.table} {method} {metric}"
            mean = fmean(own.numbers[method, metric] for own in sets)
            from_column[name] = abs(value - mean)
            if column.table in SET_TABLES:
                family = family_of(column.table)
                main = paper_mean(column.model, family, method=method, metric=metric)
                from_main[name] = abs(value - main.value) if main else math.inf
    # a printed mean and the numbers above it are rounded by up to ROUNDING each
    most = 2 * ROUNDING
    wrong = tuple(name for name, size in from_column.items() if size > most + EXACT)
    largest = f"largest deviation {max(from_column.values()):.4f}; rounding allows {most:.2f}"
    yield Check("printed mean is that of its column", len(from_column), wrong, largest)
    wrong = tuple(name for name, size in from_main.items() if size > EXACT)
    yield Check("mean in tables 4 to 7 is that in tables 1 and 2", len(from_main), wrong)


def _copy_check() -> Check:
    copies, pairs = [], 0
    for table in SET_TABLES:
        columns = paper_columns([table])
        for first, second in combinations(columns[0].numbers, 2):
            pairs += 1
            if all(abs(c.numbers[first] - c.numbers[second]) < EXACT for c in columns):
                copies.append(f"{table} {' '.join(first)} = {' '.join(second)}")
    return Check("two rows of a table differ", pairs, tuple(copies))


def _bound_checks() -> Iterator[Check]:
    cells = [(column, m) for column in paper_columns(SET_TABLES) for m in PAPER_METHODS]
    below = [_name(c, m) for c, m in cells if c.numbers[m, "aurc"] < _least_aurc(c, m)]
    yield Check("AURC is not below the least possible", len(cells), tuple(below))
    below = [_name(c, m) for c, m in cells if c.numbers[m, "mce"] < c.numbers[m, "ece"]]
    yield Check("MCE is not below ECE", len(cells), tuple(below))


def _name(column: PaperColumn, method: str) -> str:
    return f"{column.table} {column.name} {method}"


def _least_aurc(column: PaperColumn, method: str) -> float:
    """Return the AURC if every right prediction were more confident than every wrong one."""
    right = column.numbers[method, "accuracy"] / 100
    return 1000 * (1 - right + right * math.log(right))


def _size_check(name: str, methods: Sequence[str], *, runs: int) -> Check:
    """Check that accuracies are whole numbers of right predictions in some runs of a test set."""
    failed, checked, telling, chance = [], 0, 0, 1.0
    for column in paper_columns(SET_TABLES):
        n = runs * catalog_entry(column.name).images
        for method in methods:
            percent = column.numbers[method, "accuracy"]
            checked, telling = checked + 1, telling + (n < PERCENTS)
            chance *= min(1.0, n / PERCENTS)
            if abs(100 * round(percent * n / 100) / n - percent) > ROUNDING + EXACT:
                failed.append(_name(column, method))
    detail = f"{telling} can fail; chance that none does {chance:.0e}"
    return Check(name, checked, tuple(failed), detail)
