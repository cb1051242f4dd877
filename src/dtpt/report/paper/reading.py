"""What the paper's tables show, computed from `tables.json`: the facts of `dtpt paper`.

Differences between methods are compared with their variation over data sets, and sentences of the
paper (`reading.toml`) with the printed numbers. Everything is in the paper's units: percent, and
AURC times 1000.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import combinations, product
from statistics import fmean, median, stdev
from typing import Any

from dtpt.data.catalog import catalog_entry
from dtpt.methods import PAPER_METHODS
from dtpt.metrics import METRICS, metrics_with
from dtpt.metrics.distributions import student_tail
from dtpt.report.paper.checks import Check, check_paper
from dtpt.report.paper.numbers import (
    EXACT,
    MEAN_TABLES,
    SEEDS,
    SET_TABLES,
    family_of,
    paper_columns,
    paper_data,
    paper_mean,
)

COMPARED = ("ece", "accuracy", "aurc")
OWN, RIVAL = "d-tpt", "o-tpt"
PAIRS = (("tpt", "zero-shot"), *((OWN, other) for other in PAPER_METHODS if other != OWN))
DOMINANT_PAIRS = (("tpt+no-tdd", "tpt"), ("tpt+no-idd", "tpt"))


@dataclass(frozen=True)
class Difference:
    """One method minus another over the data sets of a table."""

    table: str
    model: str
    metric: str
    first: str
    second: str
    sets: int
    mean: float
    error: float  # standard error over the sets
    t: float
    p: float  # two-sided, of this comparison alone
    better: int  # sets on which the first is better
    median: float
    without: tuple[tuple[tuple[str, ...], float], ...]  # sets left out, and the mean of the others


@dataclass(frozen=True)
class Sources:
    """A difference of mean ECEs, and its standard deviation by what is drawn anew."""

    sets: Difference
    seeds: float
    images: float  # an upper bound


@dataclass(frozen=True)
class Contradiction:
    """Printed numbers that contradict a sentence; the method that it calls better comes first."""

    table: str
    model: str
    prompt: str
    column: str  # data set or family
    metric: str
    values: dict[str, float]  # by method


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper as comparisons of printed numbers."""

    quote: str
    where: str
    reading: str
    comparisons: int
    exceptions: tuple[Contradiction, ...]


@dataclass(frozen=True)
class PaperReading:
    """All facts."""

    differences: dict[str, list[Difference]]  # by metric
    dominant: list[Difference]  # TPT without its dominant dimensions, Figure 3b
    sources: list[Sources]
    winners: dict[str, dict[str, dict[str, int]]]  # by kind of column, metric and method
    checks: list[Check]
    claims: list[Claim]


def read_paper() -> PaperReading:
    """Compute all facts from the printed numbers."""
    kinds = {"data sets": SET_TABLES, "means": MEAN_TABLES}
    return PaperReading(
        differences={metric: _differences(metric) for metric in COMPARED},
        dominant=[
            difference("fig3b", metric, first=first, second=second)
            for metric in ("ece", "accuracy")
            for first, second in DOMINANT_PAIRS
        ],
        sources=[_sources(table) for table in SET_TABLES],
        winners={
            kind: {
                metric.key: count_winners(tables, metric.key) for metric in metrics_with("paper")
            }
            for kind, tables in kinds.items()
        },
        checks=check_paper(),
        claims=[_claim(entry) for entry in texts()["claim"]],
    )


@lru_cache(maxsize=1)
def texts() -> dict[str, Any]:
    """Return the captions of the tables, and the sentences of the paper."""
    return tomllib.loads((files("dtpt.report.paper") / "reading.toml").read_text("utf-8"))


def _is_misprinted(table: str, metric: str) -> bool:
    return f"{table} {metric}" in paper_data()["errata"]


def _is_better(first: float, second: float, *, metric: str) -> bool:
    return (first - second if METRICS[metric].higher_is_better else second - first) > EXACT


def difference(table: str, metric: str, *, first: str, second: str) -> Difference:
    """Compare two methods over the data sets of a table."""
    columns = paper_columns([table])
    values = {c.name: c.numbers[first, metric] - c.numbers[second, metric] for c in columns}
    mean, count = fmean(values.values()), len(values)
    error = stdev(values.values()) / math.sqrt(count)
    return Difference(
        table=table,
        model=columns[0].model,
        metric=metric,
        first=first,
        second=second,
        sets=count,
        mean=mean,
        error=error,
        t=mean / error,
        p=student_tail(mean / error, count - 1),
        better=sum(_is_better(value, 0.0, metric=metric) for value in values.values()),
        median=median(values.values()),
        # of four sets only one is left out: two are half of them
        without=tuple(_most_influential(values, n) for n in ((1, 2) if count > 4 else (1,))),
    )


def _most_influential(values: Mapping[str, float], number: int) -> tuple[tuple[str, ...], float]:
    """Return the sets whose absence changes the mean most, and the mean of the others."""
    mean = fmean(values.values())
    rest = {
        names: fmean(value for name, value in values.items() if name not in names)
        for names in combinations(values, number)
    }
    return max(rest.items(), key=lambda item: abs(item[1] - mean))


def _differences(metric: str) -> list[Difference]:
    """Compare the pairs in all tables per data set that have a metric."""
    return [
        difference(table, metric, first=first, second=second)
        for table in SET_TABLES
        if not _is_misprinted(table, metric)
        for first, second in PAIRS
    ]


def _sources(table: str) -> Sources:
    """Return what seeds, images and data sets add to D-TPT's mean ECE minus O-TPT's."""
    found = difference(table, "ece", first=OWN, second=RIVAL)
    spreads, variance = [], 0.0
    for method in (OWN, RIVAL):
        printed = paper_mean(found.model, family_of(table), method=method, metric="ece")
        spreads.append((printed.std if printed else None) or 0.0)
        for column in paper_columns([table]):
            # given the bins, an ECE has at most the variance of an accuracy
            rate = column.numbers[method, "accuracy"] / 100
            variance += rate * (1 - rate) / catalog_entry(column.name).images
    seeds = math.hypot(*spreads) / math.sqrt(SEEDS)
    return Sources(found, seeds=seeds, images=100 * math.sqrt(variance) / found.sets)


def count_winners(tables: Sequence[str], metric: str) -> dict[str, int]:
    """Count the columns in which each of the paper's rows is the best, alone or with others."""
    counts = dict.fromkeys(PAPER_METHODS, 0)
    for column in paper_columns(tables):
        if not _is_misprinted(column.table, metric):
            values = {method: column.numbers[method, metric] for method in PAPER_METHODS}
            best = (max if METRICS[metric].higher_is_better else min)(values.values())
            for method, value in values.items():
                counts[method] += value == best
    return counts


def _claim(entry: Mapping[str, Any]) -> Claim:
    outcomes = list(_outcomes(entry))
    exceptions = tuple(outcome for outcome in outcomes if outcome is not None)
    return Claim(entry["quote"], entry["where"], entry["reading"], len(outcomes), exceptions)


def _outcomes(claim: Mapping[str, Any]) -> Iterator[Contradiction | None]:
    """Yield None for every comparison that agrees with a sentence, the numbers for every other."""
    rule = claim.get("rule", "each")
    only = {key: claim[key] for key in ("model", "prompt") if key in claim}
    columns = paper_columns(claim["tables"], **only)
    for column, metric, first in product(columns, claim["metrics"], claim["first"]):
        own = column.numbers[first, metric]
        others = {second: column.numbers[second, metric] for second in claim["second"]}
        lost = {m: v for m, v in others.items() if not _is_better(own, v, metric=metric)}
        if rule == "each":
            found = [{m: v} if m in lost else {} for m, v in others.items()]
        else:
            found = [lost if rule == "all" or lost == others else {}]
        names = (column.table, column.model, column.prompt, column.name, metric)
        for better in found:
            yield Contradiction(*names, {first: own, **better}) if better else None
