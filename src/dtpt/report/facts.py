"""The facts of a report: numbers, intervals, decisions and winners, computed once.

Tables, verdicts, terminal, page and files render these facts and compute nothing. All values are
fractions. Two views of the same rows: `FamilyFacts` pools all images of a family's data sets and
compares the methods; `MeanFacts` has the mean over data sets and each set, as the paper's tables.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.data import family_title
from dtpt.errors import ReportError
from dtpt.metrics import (
    METRICS,
    Comparison,
    Conventions,
    PooledPredictions,
    draw_metrics,
    metrics_with,
    pool,
)
from dtpt.metrics.comparison import (
    Drawn,
    Draws,
    any_significant,
    best,
    compare_drawn,
    corrected_level,
    mean_over_sets,
)
from dtpt.report.load import Condition, Variant, set_title
from dtpt.report.paper.numbers import PaperDifference, beside_paper

PAPER = tuple(metric.key for metric in metrics_with("paper"))
POOLED = tuple(metric.key for metric in metrics_with("pooled"))
COMPARED = tuple(metric.key for metric in metrics_with("compared"))
SUMMARY = tuple(metric.key for metric in metrics_with("summary"))
AGAINST = ("zero-shot", "tpt")
"""What every method is compared with, where it was run."""


@dataclass(frozen=True)
class Resampling:
    level: float = 0.95  # probability that all intervals of a report hold
    resamples: int = 1000
    seed: int = 0
    against: tuple[str, ...] = ()  # labels; when empty `AGAINST`, else the first method


@dataclass(frozen=True)
class Number:
    """One number and everything that is known about it."""

    value: float | None = None  # None when something is missing
    low: float | None = None
    high: float | None = None
    spread: float | None = None  # standard deviation over seeds of the mean over sets
    spread_within: float | None = None  # mean over sets of the standard deviation over seeds
    significant: bool = False  # better than every other row; of a difference: other than 0
    floor: float | None = None  # noise floor of an ECE
    missing: str = ""  # why there is no value
    note: str = ""
    paper: PaperDifference | None = None


@dataclass(frozen=True)
class FamilyFacts:
    """The methods of one family on the same images, pooled over its data sets."""

    family: str
    title: str
    size: str  # 120 of 1,692 images
    sets: tuple[str, ...]
    images: int
    seeds: int
    level: float  # probability that all intervals of `comparisons` hold
    variants: tuple[Variant, ...]  # those with all images of all sets
    against: tuple[Variant, ...]
    values: dict[str, dict[str, Number]]  # by label and metric; intervals are not corrected
    comparisons: tuple[Comparison, ...]  # with those in `against`, first minus second

    def value(self, variant: Variant, metric: str) -> float:
        return self.values[variant.label][metric].value or 0.0

    def difference(self, first: Variant, second: Variant, *, metric: str) -> Comparison | None:
        """Return first minus second where that is among the comparisons."""
        wanted = (first.label, second.label, metric)
        return next((c for c in self.comparisons if (c.first, c.second, c.metric) == wanted), None)

    def best(self, metric: str) -> Variant | None:
        """Return the variant that is significantly better than every other one, if any."""
        return next((v for v in self.variants if self.values[v.label][metric].significant), None)

    @property
    def is_decided(self) -> bool:
        return any(comparison.significant for comparison in self.comparisons)

    @property
    def shown(self) -> tuple[Variant, ...]:
        """Every method once: at the chosen λ where several were run."""
        chosen = {v.method for v in self.variants if v.derived == "chosen"}
        return tuple(v for v in self.variants if v.derived or v.method not in chosen)

    def document(self) -> dict[str, Any]:
        names = ("value", "low", "high", "significant", "floor")
        return {
            "family": self.title,
            "sets": list(self.sets),
            "images": self.images,
            "values": {
                label: {m: {n: getattr(number, n) for n in names} for m, number in numbers.items()}
                for label, numbers in self.values.items()
            },
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
        }


def compare_conditions(
    conditions: Sequence[Condition], resampling: Resampling | None = None
) -> list[tuple[FamilyFacts, ...]]:
    """Compare the methods of every family of several conditions; the level is that of all."""
    chosen = resampling or Resampling()
    pooled = [
        {f: methods for f in c.families if _is_comparable(methods := pooled_methods(c, f))}
        for c in conditions
    ]
    own = replace(chosen, level=corrected_level(chosen.level, sum(map(len, pooled))))
    compared = [
        tuple(
            compare_pooled(
                methods,
                family,
                resampling=own,
                size=c.size_text(c.sets_of(family), answered=len(next(iter(methods.values())))),
            )
            for family, methods in families.items()
        )
        for c, families in zip(conditions, pooled, strict=True)
    ]
    labels = dict.fromkeys(v.label for families in compared for f in families for v in f.variants)
    for name in chosen.against:
        if labels and name not in labels:
            raise ReportError(
                f"--against {name!r}: no run has all images of it. Use one of {', '.join(labels)}."
            )
    return compared


def pooled_methods(condition: Condition, family: str) -> dict[Variant, PooledPredictions]:
    """Return the predictions of every method that answered all images of a family."""
    sets = condition.sets_of(family)
    pooled = {}
    for variant in condition.variants(sets):
        cells = {name: condition.finished(name, variant) for name in sets}
        if all(cells.values()):
            pooled[variant] = pool({n: [cell.predictions for cell in c] for n, c in cells.items()})
    sizes = [method.sets for method in pooled.values()]
    # where images failed for some methods only, those methods are not paired with the others
    return {v: p for v, p in pooled.items() if p.sets == max(sizes, key=sizes.count)}


def _is_comparable(pooled: Mapping[Variant, PooledPredictions]) -> bool:
    return len(pooled) > 1 and all(len(method) > len(method.sets) for method in pooled.values())


def compare_pooled(
    pooled: Mapping[Variant, PooledPredictions],
    family: str,
    *,
    resampling: Resampling,
    size: str = "",
) -> FamilyFacts:
    """Compare methods on the same images; the level is that of this family alone."""
    drawn = draw_metrics(
        {variant.label: one for variant, one in pooled.items()},
        generator=np.random.default_rng([resampling.seed, *family.encode()]),
        metrics=tuple(dict.fromkeys((*COMPARED, *POOLED))),
        resamples=resampling.resamples,
    )
    first, labels = next(iter(pooled.values())), {variant.label: variant for variant in pooled}
    wanted = resampling.against or [n for n in AGAINST if n in labels] or [next(iter(labels))]
    against = tuple(labels[name] for name in wanted if name in labels)
    # two bases are compared once, the later one first
    pairs = [
        (label, base.label)
        for index, base in enumerate(against)
        for label, variant in labels.items()
        if variant not in against[: index + 1]
    ]
    return FamilyFacts(
        family=family,
        title=family_title(family),
        size=size or f"{len(first):,} images",
        sets=tuple(name for name, _ in first.sets),
        images=len(first),
        seeds=len(first.seeds),
        level=resampling.level,
        variants=tuple(pooled),
        against=against,
        values=_pooled_numbers(drawn, pooled),
        comparisons=compare_drawn(drawn, pairs, metrics=COMPARED, level=resampling.level),
    )


def _pooled_numbers(
    drawn: Mapping[str, Mapping[str, Drawn]], pooled: Mapping[Variant, PooledPredictions]
) -> dict[str, dict[str, Number]]:
    winners = {metric: best(drawn, metric) for metric in next(iter(drawn.values()))}
    numbers: dict[str, dict[str, Number]] = {}
    for variant, predictions in pooled.items():
        floors = [METRICS["floor"].value(seed, Conventions()) for seed in predictions.seeds]
        numbers[variant.label] = {}
        for metric, value in drawn[variant.label].items():
            low, high = _interval_within(value, METRICS[metric].range)
            numbers[variant.label][metric] = Number(
                value.estimate,
                low=low,
                high=high,
                significant=winners[metric] == variant.label,
                floor=sum(floors) / len(floors) if metric == "ece" else None,
            )
    return numbers


def _interval_within(
    drawn: Drawn, possible: tuple[float, float]
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of one value for itself alone, within the metric's range.

    None where every draw gives the same: three right answers of three have no spread.
    """
    if np.ptp(drawn.draws) == 0:
        return None, None
    interval = drawn.interval(0.95)
    return max(interval.low, possible[0]), min(interval.high, possible[1])


MEAN = ""
"""Column of the mean over all data sets of a family, beside those of its sets."""


@dataclass(frozen=True)
class MeanFacts:
    """The paper's metrics of one family: the mean over its data sets, and each set."""

    condition: Condition
    family: str
    sets: tuple[str, ...]
    variants: tuple[Variant, ...]
    numbers: dict[tuple[Variant, str, str], Number]  # by variant, metric and set (or `MEAN`)
    undecided: frozenset[tuple[str, str]]  # (metric, set) without any significant difference


def mean_facts(
    condition: Condition, family: str, *, resampling: Resampling, intervals: bool = False
) -> MeanFacts:
    """Compute means over sets and seeds with both readings of ±, winners and undecided columns.

    A mean over sets exists only when every one of its cells is finished under every seed.
    """
    sets = condition.sets_of(family)
    variants = condition.variants(sets)
    draws = {name: _set_draws(condition, name, resampling=resampling) for name in sets}
    groups = {name: (name,) for name in sets} if len(sets) > 1 else {}
    numbers: dict[tuple[Variant, str, str], Number] = {}
    undecided = set()
    for column, group in {**groups, MEAN: sets}.items():
        drawn = _mean_draws([draws[name] for name in group])
        for metric in PAPER:
            winner = best(drawn, metric)
            undecided |= set() if any_significant(drawn, metric) else {(metric, column)}
            for variant in variants:
                number = _mean_number(condition, group, variant=variant, metric=metric)
                if intervals and number.value is not None:
                    end = drawn[variant.label][metric].quantile_interval()
                    number = replace(number, low=end.low, high=end.high)
                is_best = winner == variant.label
                numbers[variant, metric, column] = replace(number, significant=is_best)
    return MeanFacts(condition, family, sets, variants, numbers, frozenset(undecided))


def _set_draws(condition: Condition, name: str, *, resampling: Resampling) -> Draws:
    """Draw the metrics of all finished variants of a set; those on the same images together."""
    groups: dict[tuple[int, ...], dict[str, PooledPredictions]] = {}
    for variant in condition.variants([name]):
        cells = condition.finished(name, variant)
        if cells:
            pooled = pool({name: [cell.predictions for cell in cells]})
            sizes = tuple(cell.effective for cell in cells)
            groups.setdefault(sizes, {})[variant.label] = pooled
    draws: dict[str, dict[str, Drawn]] = {}
    for methods in groups.values():
        generator = np.random.default_rng([resampling.seed, *name.encode()])
        count = resampling.resamples
        draws |= draw_metrics(methods, generator=generator, metrics=PAPER, resamples=count)
    return draws


def _mean_draws(sets: Sequence[Draws]) -> Draws:
    return {
        label: {m: mean_over_sets([drawn[label][m] for drawn in sets]) for m in PAPER}
        for label in sets[0]
        if all(label in drawn for drawn in sets)
    }


def _mean_number(
    condition: Condition, sets: Sequence[str], *, variant: Variant, metric: str
) -> Number:
    """Average one variant and metric over sets and seeds, or give the reason why not."""
    cells = [condition.finished(name, variant) for name in sets]
    if not all(cells):
        return Number(missing=_missing(condition, sets, variant))
    values = np.array([[cell.metric(metric) for cell in row] for row in cells])
    mean, spread, within = mean_and_spreads(values)
    failed = max(cell.failed for row in cells for cell in row)
    floors = [[cell.metric("floor") for cell in row] for row in cells] if metric == "ece" else []
    return Number(
        value=mean,
        spread=spread,
        spread_within=within,
        note=f"up to {failed} images of a data set could not be read" if failed else "",
        floor=float(np.mean(floors)) if floors else None,
        paper=beside_paper(condition, sets, variant=variant, metric=METRICS[metric], value=mean),
    )


def _missing(condition: Condition, sets: Sequence[str], variant: Variant) -> str:
    """Name the cells of a mean that are absent."""
    problems = []
    for name, seed in itertools.product(sets, condition.seeds):
        cell = condition.cells.get((name, variant, seed))
        if cell is None or not cell.is_finished:
            done = "not run" if cell is None else f"{cell.effective:,} of {cell.expected:,}"
            problems.append(f"{set_title(name)} seed {seed}: {done}")
    more = f" and {len(problems) - 2} more" if len(problems) > 2 else ""
    return f"incomplete: {'; '.join(problems[:2])}{more}"


def mean_and_spreads(
    values: npt.NDArray[np.float64],
) -> tuple[float, float | None, float | None]:
    """Return the mean of (sets, seeds) values, and both readings of the paper's ±.

    They are sample standard deviations over seeds: of the mean over sets, and averaged over sets.
    """
    if values.shape[1] < 2:
        return float(values.mean()), None, None
    of_mean = values.mean(axis=0).std(ddof=1)
    within = values.std(axis=1, ddof=1).mean()
    return float(values.mean()), float(of_mean), float(within)
