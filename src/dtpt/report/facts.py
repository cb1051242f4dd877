"""The facts of a report: numbers, intervals, decisions, computed once.

Tables, verdicts, terminal, page and files render these facts and compute nothing. All values are
fractions. `FamilyFacts` compares the methods of a family: by the mean over its data sets, with the
numbers pooled over all images second. `MeanFacts` has the paper's metrics, as in its tables.

A report makes one kind of claim: a method differs from one that it is compared with (`against`), in
a metric of `COMPARED`. All of these, and whether the untuned model is over- or underconfident, are
one family of tests: with probability `level` none of them is wrong. Bold, verdict and tables state
these decisions and no others.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dtpt.analysis.positions import along_streams
from dtpt.data import family_title
from dtpt.errors import ReportError
from dtpt.metrics import (
    METRICS,
    Comparison,
    Conventions,
    PooledPredictions,
    Predictions,
    draw_metrics,
    metrics_with,
    pool,
)
from dtpt.metrics.comparison import (
    Drawn,
    Draws,
    compare_drawn,
    corrected_level,
    mean_over_sets,
)
from dtpt.metrics.resampling import Interval
from dtpt.report.load import Condition, Variant, set_title
from dtpt.report.paper.numbers import PaperDifference, beside_paper

PAPER = tuple(metric.key for metric in metrics_with("paper"))
HEADLINE = tuple(metric.key for metric in metrics_with("headline"))
SPREAD = ("accuracy", "signed_gap", "ece")
POOLED = tuple(metric.key for metric in metrics_with("pooled"))
COMPARED = tuple(metric.key for metric in metrics_with("compared"))
SUMMARY = tuple(metric.key for metric in metrics_with("summary"))
AGAINST = ("zero-shot", "tpt")
"""What every method is compared with, where it was run."""
Average = Literal["datasets", "images"]
"""`datasets`: the mean over data sets (macro); `images`: pooled over the images of all sets."""


@dataclass(frozen=True)
class Resampling:
    level: float = 0.95  # probability that all intervals of a report hold
    resamples: int = 1000
    seed: int = 0
    against: tuple[str, ...] = ()  # labels; when empty `AGAINST`, else the first method
    average: Average = "datasets"


@dataclass(frozen=True)
class Number:
    """One number and everything that is known about it."""

    value: float | None = None  # None when something is missing
    low: float | None = None
    high: float | None = None
    spread: float | None = None  # standard deviation over seeds of the mean over sets
    spread_within: float | None = None  # mean over sets of the standard deviation over seeds
    significant: bool = False  # better than all of `against`; of a difference: other than 0
    floor: float | None = None  # noise floor of an ECE
    missing: str = ""  # why there is no value
    note: str = ""
    paper: PaperDifference | None = None


@dataclass(frozen=True)
class Spread:
    """How the mean over data sets of a stream method differs between orders, and between seeds."""

    orders: float  # standard deviation over orders, of means over seeds
    seeds: float | None  # over seeds, of means over orders; None for one seed
    low: float  # of the orders
    high: float


@dataclass(frozen=True)
class FamilyFacts:
    """The methods of one family on the same images of its data sets."""

    family: str
    title: str
    size: str  # 5,112 images of 852 drawings
    sets: tuple[str, ...]
    images: int
    clusters: int
    seeds: int
    average: Average
    level: float  # probability that all decisions about this family hold
    variants: tuple[Variant, ...]  # those with all images of all sets
    against: tuple[Variant, ...]
    values: dict[str, dict[str, Number]]  # by label and metric; intervals are not corrected
    pooled: dict[str, dict[str, Number]]  # over all images, where `values` are not and may differ
    worst: dict[str, dict[str, tuple[str, float]]]  # data set and value, by label and metric
    comparisons: tuple[Comparison, ...]  # with those in `against`, first minus second
    spreads: dict[str, dict[str, Spread]] = field(default_factory=dict)  # of stream methods
    orders: int = 1  # of the images, where methods carry state
    direction: str = ""  # `over` or `under`: the untuned model is significantly so

    @property
    def several(self) -> str:
        """What is averaged over: `2 seeds and 10 orders`; empty for one of each."""
        counts = {"seeds": self.seeds, "orders": self.orders}
        return " and ".join(f"{count} {name}" for name, count in counts.items() if count > 1)

    def value(self, variant: Variant, metric: str) -> float:
        return self.values[variant.label][metric].value or 0.0

    def difference(self, first: Variant, second: Variant, *, metric: str) -> Comparison | None:
        """Return first minus second where that is among the comparisons."""
        wanted = (first.label, second.label, metric)
        return next((c for c in self.comparisons if (c.first, c.second, c.metric) == wanted), None)

    def best(self, metric: str) -> tuple[Variant, ...]:
        """Return the variants that are significantly better than all in `against`."""
        return tuple(v for v in self.variants if self.values[v.label][metric].significant)

    @property
    def is_decided(self) -> bool:
        return any(comparison.significant for comparison in self.comparisons)

    @property
    def shown(self) -> tuple[Variant, ...]:
        """Every method once: at the selected λ or fraction of views where several were run."""
        by_lambda = {v.method for v in self.variants if v.derived == "chosen"}
        by_fraction = any(v.derived == "fraction" for v in self.variants)
        return tuple(
            v
            for v in self.variants
            if v.derived or not (v.method in by_lambda or (by_fraction and v.is_mean_of_views))
        )

    def document(self) -> dict[str, Any]:
        return {
            "family": self.title,
            "sets": list(self.sets),
            "images": self.images,
            "clusters": self.clusters,
            "average": self.average,
            "values": _plain(self.values),
            "pooled": _plain(self.pooled),
            "worst": {
                label: {m: {"dataset": name, "value": v} for m, (name, v) in worst.items()}
                for label, worst in self.worst.items()
            },
            "direction": self.direction,
            "spreads": {
                label: {m: asdict(spread) for m, spread in spreads.items()}
                for label, spreads in self.spreads.items()
            },
            "comparisons": [comparison.to_dict() for comparison in self.comparisons],
        }


def _plain(values: Mapping[str, Mapping[str, Number]]) -> dict[str, Any]:
    names = ("value", "low", "high", "significant", "floor")
    return {
        label: {m: {n: getattr(number, n) for n in names} for m, number in numbers.items()}
        for label, numbers in values.items()
    }


def compare_conditions(
    conditions: Sequence[Condition], resampling: Resampling | None = None
) -> list[tuple[FamilyFacts, ...]]:
    """Compare the methods of every family of several conditions; the level is that of all."""
    chosen = resampling or Resampling()
    compared_methods = [
        {f: methods for f in c.families if _is_comparable(methods := family_methods(c, f))}
        for c in conditions
    ]
    own = replace(chosen, level=corrected_level(chosen.level, sum(map(len, compared_methods))))
    compared = [
        tuple(
            compare_methods(
                methods,
                family,
                resampling=own,
                size=c.size_text(c.sets_of(family), answered=len(_joint(methods))),
            )
            for family, methods in families.items()
        )
        for c, families in zip(conditions, compared_methods, strict=True)
    ]
    labels = dict.fromkeys(v.label for families in compared for f in families for v in f.variants)
    for name in chosen.against:
        if labels and name not in labels:
            raise ReportError(
                f"--against {name!r}: no run has all images of it. Use one of {', '.join(labels)}."
            )
    return compared


Methods = Mapping[Variant, Mapping[str, Sequence[Predictions]]]
"""The predictions of methods on the same images, by data set and seed."""


def family_methods(condition: Condition, family: str) -> Methods:
    """Return the predictions of every method that answered all images of a family."""
    sets = condition.sets_of(family)
    methods = {}
    for variant in condition.variants(sets):
        cells = {name: condition.finished(name, variant) for name in sets}
        if all(cells.values()):
            methods[variant] = {n: [cell.predictions for cell in c] for n, c in cells.items()}
    sizes = {variant: [len(seeds[0]) for seeds in m.values()] for variant, m in methods.items()}
    # where images failed for some methods only, those methods are not paired with the others
    usual = max(sizes.values(), key=list(sizes.values()).count, default=[])
    return {variant: m for variant, m in methods.items() if sizes[variant] == usual}


def _joint(methods: Methods) -> PooledPredictions:
    """Return the predictions of the first method on all sets."""
    return pool(next(iter(methods.values())))


def _is_comparable(methods: Methods) -> bool:
    return len(methods) > 1 and can_draw(methods)


def can_draw(methods: Methods) -> bool:
    """Return whether there are intervals: every data set has more than one cluster."""
    return min(_joint(methods).clusters) > 1


def compare_methods(
    methods: Methods, family: str, *, resampling: Resampling, size: str = ""
) -> FamilyFacts:
    """Compare methods on the same images; the level is that of this family alone."""
    labels, first = {variant.label: variant for variant in methods}, _joint(methods)
    by_set = {name: _draw(methods, (name,), resampling=resampling) for name, _ in first.sets}
    macro = _mean_draws(list(by_set.values()))
    several = len(by_set) > 1
    pooled = _draw(methods, tuple(by_set), resampling=resampling) if several else macro
    drawn = macro if resampling.average == "datasets" else pooled
    wanted = resampling.against or [n for n in AGAINST if n in labels] or [next(iter(labels))]
    against = tuple(labels[name] for name in wanted if name in labels)
    # two bases are compared once, the later one first
    pairs = [
        (label, base.label)
        for index, base in enumerate(against)
        for label, variant in labels.items()
        if variant not in against[: index + 1]
    ]
    pairs = [pair for pair in pairs if all(_has_interval(drawn[label]) for label in pair)]
    untuned = drawn.get("zero-shot", {}).get("signed_gap")
    comparisons = compare_drawn(
        drawn, pairs, metrics=COMPARED, level=resampling.level, further=untuned is not None
    )
    each = comparisons[0].level if comparisons else resampling.level
    floors = {v.label: _floor(m.values()) for v, m in methods.items()}
    over_images = {v.label: _floor([pool(m).seeds]) for v, m in methods.items()}
    orders = max(len({p.order for p in next(iter(m.values()))}) for m in methods.values())
    return FamilyFacts(
        family=family,
        title=family_title(family),
        size=size or f"{len(first):,} images",
        sets=tuple(by_set),
        images=len(first),
        clusters=sum(first.clusters),
        seeds=len(first.seeds) // orders,
        orders=orders,
        average=resampling.average,
        level=resampling.level,
        variants=tuple(methods),
        against=against,
        values=_numbers(drawn, floors if drawn is macro else over_images, comparisons=comparisons),
        pooled=_numbers(pooled, over_images) if several and drawn is macro else {},
        worst=_worst(by_set) if several else {},
        comparisons=comparisons,
        spreads={v.label: found for v, m in methods.items() if (found := _spreads(m))},
        direction=_direction(untuned, each) if untuned else "",
    )


def _has_interval(metrics: Mapping[str, Drawn]) -> bool:
    """Tell a single stream, of which nothing is known beyond its order."""
    return all(drawn.streams is None or len(drawn.streams) > 1 for drawn in metrics.values())


def _spreads(sets: Mapping[str, Sequence[Predictions]]) -> dict[str, Spread]:
    """Return the spreads of a stream method that ran in several orders; else nothing."""
    repeats = next(iter(sets.values()))
    orders = len({p.order for p in repeats})
    if orders < 2:
        return {}
    spreads = {}
    for key in SPREAD:
        value = METRICS[key].value
        by_set = [[value(p, Conventions()) for p in repeats] for repeats in sets.values()]
        values = np.mean(by_set, axis=0).reshape(-1, orders)  # (sets, S * O) -> (S, O)
        over_orders, over_seeds = values.mean(axis=0), values.mean(axis=1)
        spreads[key] = Spread(
            float(over_orders.std(ddof=1)),
            float(over_seeds.std(ddof=1)) if len(values) > 1 else None,
            float(over_orders.min()),
            float(over_orders.max()),
        )
    return spreads


def family_positions(condition: Condition, facts: FamilyFacts) -> list[dict[str, Any]]:
    """Return accuracy and calibration along the streams of every method that carries state."""
    found = []
    for variant in facts.variants:
        streams = [
            (cell.order, cell.records, cell.expected)
            for (name, other, repeat), cell in condition.cells.items()
            if other == variant and name in facts.sets and repeat in condition.seeds
            if cell.order is not None
        ]
        if streams:
            known = {"family": facts.title, "order": condition.order, "method": variant.label}
            found.append(known | along_streams(streams))
    return found


def _draw(methods: Methods, sets: tuple[str, ...], *, resampling: Resampling) -> Draws:
    """Draw the metrics of all methods on some data sets, pooled over their images."""
    return draw_metrics(
        {v.label: pool({name: m[name] for name in sets}) for v, m in methods.items()},
        generator=np.random.default_rng([resampling.seed, *"/".join(sets).encode()]),
        metrics=tuple(dict.fromkeys((*HEADLINE, *COMPARED, *POOLED))),
        resamples=resampling.resamples,
    )


def _mean_draws(sets: Sequence[Draws]) -> Draws:
    return {
        label: {m: mean_over_sets([drawn[label][m] for drawn in sets]) for m in numbers}
        for label, numbers in sets[0].items()
        if all(label in drawn for drawn in sets)
    }


def _direction(gap: Drawn, level: float) -> str:
    interval = gap.interval(level)
    return "over" if interval.low > 0 else "under" if interval.high < 0 else ""


def _worst(sets: Mapping[str, Draws]) -> dict[str, dict[str, tuple[str, float]]]:
    """Return for every method and metric with a direction the data set with the worst value."""
    worst: dict[str, dict[str, tuple[str, float]]] = {}
    for label, numbers in next(iter(sets.values())).items():
        worst[label] = {}
        for metric in numbers:
            values = {name: drawn[label][metric].estimate for name, drawn in sets.items()}
            upward = METRICS[metric].higher_is_better
            if upward is not None:
                name = (min if upward else max)(values, key=values.__getitem__)
                worst[label][metric] = (name, values[name])
    return worst


def _floor(sets: Iterable[Sequence[Predictions]]) -> float:
    """Return the noise floor of the ECE, as a mean over data sets and seeds."""
    floor = METRICS["floor"]
    return float(np.mean([[floor.value(p, Conventions()) for p in seeds] for seeds in sets]))


def _numbers(
    drawn: Draws, floors: Mapping[str, float], *, comparisons: Sequence[Comparison] = ()
) -> dict[str, dict[str, Number]]:
    """Write draws as numbers; significant are those that beat all they were compared with."""
    bases = {one.second for one in comparisons}
    outcomes: dict[tuple[str, str], set[bool]] = {}
    for one in comparisons:
        is_better = one.better == one.first and one.first not in bases
        outcomes.setdefault((one.first, one.metric), set()).add(is_better)
    numbers: dict[str, dict[str, Number]] = {}
    for label, metrics in drawn.items():
        numbers[label] = {}
        for metric, value in metrics.items():
            low, high = _interval_within(value, METRICS[metric].range)
            numbers[label][metric] = Number(
                value.estimate,
                low=low,
                high=high,
                significant=outcomes.get((label, metric)) == {True},
                floor=floors.get(label) if metric in ("ece", "ece_above_floor") else None,
            )
    return numbers


def _interval_within(
    drawn: Drawn, possible: tuple[float, float]
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of one value for itself alone, within the metric's range.

    None where every draw gives the same: three right answers of three have no spread.
    """
    if np.ptp(drawn.draws) == 0 or not _has_interval({"": drawn}):
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
    against: tuple[Variant, ...] = ()  # what significant numbers are better than


def mean_facts(
    condition: Condition, family: str, *, resampling: Resampling, intervals: bool = False
) -> MeanFacts:
    """Compute means over sets and seeds with both readings of ±.

    A mean over sets exists only when every one of its cells is finished under every seed.
    """
    sets = condition.sets_of(family)
    variants = condition.variants(sets)
    groups = {**({name: (name,) for name in sets} if len(sets) > 1 else {}), MEAN: sets}
    numbers = {
        (variant, metric, column): _mean_number(condition, group, variant=variant, metric=metric)
        for column, group in groups.items()
        for variant in variants
        for metric in PAPER
    }
    if intervals:
        for variant in variants:
            found = _intervals(condition, variant, groups=groups, resampling=resampling)
            for column, ends in found.items():
                for metric, end in ends.items():
                    key = variant, metric, column
                    numbers[key] = replace(numbers[key], low=end.low, high=end.high)
    return MeanFacts(condition, family, sets, variants, numbers)


def with_decisions(means: MeanFacts, families: Iterable[FamilyFacts]) -> MeanFacts:
    """Mark in the column of the mean what the comparison on the same data sets has decided."""
    for facts in families:
        if facts.average == "datasets" and set(facts.sets) == set(means.sets):
            decided = {
                (variant, metric, MEAN): replace(number, significant=True)
                for (variant, metric, column), number in means.numbers.items()
                if column == MEAN and metric in COMPARED and variant in facts.best(metric)
            }
            return replace(means, numbers={**means.numbers, **decided}, against=facts.against)
    return means


def _intervals(
    condition: Condition,
    variant: Variant,
    *,
    groups: Mapping[str, tuple[str, ...]],
    resampling: Resampling,
) -> dict[str, dict[str, Interval]]:
    """Return the bootstrap intervals of one variant by column and metric, as far as finished."""
    draws = {}
    for name in groups[MEAN]:
        if cells := condition.finished(name, variant):
            draws[name] = draw_metrics(
                {"": pool({name: [cell.predictions for cell in cells]})},
                generator=np.random.default_rng([resampling.seed, *name.encode()]),
                metrics=PAPER,
                resamples=resampling.resamples,
            )
    return {
        column: {m: d.quantile_interval() for m, d in _mean_draws(found)[""].items()}
        for column, group in groups.items()
        if len(found := [draws[name] for name in group if name in draws]) == len(group)
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
