"""Paired comparisons of methods: draws, confidence intervals, p-values, correction, the best one.

Every "significantly different" of dtpt is decided here. All methods see the same images. Images are
drawn again together for all methods, within each data set. A metric is computed from all drawn
images of all sets, for each seed, and averaged over seeds; the mean over data sets (macro) is that
of the sets' own draws. The spread of a difference over the draws gives its standard error, and its
interval is estimate ± t × standard error with Student's t: quantiles of draws do not reach the
extreme levels that a correction asks for.

With one seed each, accuracy is tested exactly (McNemar), and its interval excludes 0 exactly when
the test rejects.

k comparisons have intervals of level 1 - (1 - level) / k (Bonferroni): with probability `level` all
of them hold at once. p-values are also given after Holm's correction.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError, UnknownName
from dtpt.metrics.distributions import (
    binomial_interval,
    binomial_upper_bound,
    mcnemar,
    student_quantile,
    student_tail,
)
from dtpt.metrics.predictions import Conventions, Predictions
from dtpt.metrics.resampling import (
    Interval,
    Resamples,
    SortedSamples,
    centred_interval,
    resampled_counts,
    resampled_metrics,
)
from dtpt.metrics.table import METRICS, metrics_with
from dtpt.metrics.validation import BoolArray, FloatArray, check_level, check_resamples

COMPARED = tuple(metric.key for metric in metrics_with("compared"))
"""The metrics that are compared: those with little or no bias from binning."""


@dataclass(frozen=True, eq=False)
class PooledPredictions:
    """One method's predictions on all images of some data sets, seed by seed."""

    sets: tuple[tuple[str, int], ...]  # (name, images), in order
    seeds: tuple[Predictions, ...]  # the images of all sets one after the other

    def __len__(self) -> int:
        return len(self.seeds[0])


def pool(sets: Mapping[str, Sequence[Predictions]]) -> PooledPredictions:
    """Join one method's predictions on several data sets, seed by seed, on the same images."""
    counts = {name: len(seeds) for name, seeds in sets.items()}
    if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
        raise MetricError(f"Pooling needs the same seeds on every data set, got {counts}.")
    for name, seeds in sets.items():
        for other in seeds[1:]:
            _check_same_images(seeds[0], other, where=f"Two seeds of {name}")
    return PooledPredictions(
        sets=tuple((name, len(seeds[0])) for name, seeds in sets.items()),
        seeds=tuple(_joined(parts) for parts in zip(*sets.values(), strict=True)),
    )


def _check_same_images(first: Predictions, second: Predictions, *, where: str) -> None:
    if len(first) != len(second):
        raise MetricError(f"{where} have {len(first)} and {len(second)} images; expected equal.")
    if first.samples is None or second.samples is None:
        return
    differing = np.flatnonzero(first.samples != second.samples)
    if len(differing):
        index = int(differing[0])
        names = f"{str(first.samples[index])!r} and {str(second.samples[index])!r}"
        raise MetricError(f"{where} have different images at position {index}: {names}.")


def _joined(parts: Sequence[Predictions]) -> Predictions:
    """Concatenate; what one part does not know, the whole does not know."""
    if len(parts) == 1:
        return parts[0]  # keeps what was computed of it

    def column(name: str) -> npt.NDArray[Any] | None:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)

    return Predictions(
        np.concatenate([part.confidence for part in parts]),
        np.concatenate([part.correct for part in parts]),
        p_label=column("p_label"),
        sum_squares=column("sum_squares"),
        samples=column("samples"),
    )


@dataclass(frozen=True, eq=False)
class Drawn:
    """A value, a fraction, with its bootstrap draws; methods on the same images share the draws."""

    estimate: float
    draws: FloatArray  # (resamples,)
    images: int
    strata: int  # data sets, within which images are drawn
    correct: BoolArray | None = None  # (images,) of the only seed, for the exact test

    @property
    def freedom(self) -> int:
        """Degrees of freedom of a standard error."""
        return self.images - self.strata

    def interval(self, level: float) -> "Difference":
        """Return estimate ± t × standard error, and the p-value of a difference from 0."""
        # resampling within sets understates a variance by (images - sets) / images
        error = float(self.draws.std()) * math.sqrt(self.images / self.freedom)
        return student_difference(self.estimate, error, freedom=self.freedom, level=level)

    def quantile_interval(self, level: float = 0.95) -> Interval:
        """Return the quantiles of the draws after centring them on the estimate."""
        return centred_interval(self.draws, self.estimate, level=level)


Draws = Mapping[str, Mapping[str, Drawn]]
"""Drawn values by name of the method and metric."""


def draw_metrics(
    methods: Mapping[str, PooledPredictions],
    *,
    generator: np.random.Generator,
    metrics: Sequence[str] = COMPARED,
    conventions: Conventions | None = None,
    resamples: int = 1000,
) -> dict[str, dict[str, Drawn]]:
    """Compute metrics of all methods on the same draws of the images, by name and metric.

    Metrics that the predictions do not allow are left out.
    """
    chosen, count = conventions or Conventions(), check_resamples(resamples)
    keys = _allowed(methods, metrics)
    samples = {
        name: [SortedSamples(seed, chosen) for seed in method.seeds]
        for name, method in methods.items()
    }
    parts: dict[str, list[dict[str, FloatArray]]] = {name: [] for name in methods}
    sizes = [size for _, size in next(iter(methods.values())).sets]
    for counts in resampled_counts(sizes, count, generator=generator):
        for name, seeds in samples.items():
            drawn = [Resamples(seed, counts) for seed in seeds]
            parts[name].append(
                {key: np.mean([METRICS[key].draws(part) for part in drawn], axis=0) for key in keys}
            )
    return {
        name: {
            key: Drawn(
                float(np.mean([METRICS[key].value(seed, chosen) for seed in method.seeds])),
                np.concatenate([part[key] for part in parts[name]]),
                images=len(method),
                strata=len(sizes),
                correct=method.seeds[0].correct if len(method.seeds) == 1 else None,
            )
            for key in keys
        }
        for name, method in methods.items()
    }


def _allowed(methods: Mapping[str, PooledPredictions], metrics: Sequence[str]) -> list[str]:
    """Return the metrics that all predictions allow; raise for methods that are not paired."""
    first, *others = methods.values()
    for other in others:
        if first.sets != other.sets:
            sets = f"one has {dict(first.sets)}, another {dict(other.sets)}"
            raise MetricError(f"Only methods on the same images can be compared: {sets}.")
        _check_same_images(first.seeds[0], other.seeds[0], where="Two methods")
    comparable = [key for key, metric in METRICS.items() if metric.has_resamples]
    for key in metrics:
        if key not in comparable:
            raise UnknownName("metric of a comparison", key, comparable)
    met = [seed.known for method in methods.values() for seed in method.seeds]
    return [key for key in metrics if all(METRICS[key].needs in needs for needs in met)]


def mean_over_sets(sets: Sequence[Drawn]) -> Drawn:
    """Return the mean of one metric over data sets that were drawn independently."""
    if len(sets) == 1:
        return sets[0]
    return Drawn(
        float(np.mean([drawn.estimate for drawn in sets])),
        np.asarray(np.mean([drawn.draws for drawn in sets], axis=0)),
        images=sum(drawn.images for drawn in sets),
        strata=sum(drawn.strata for drawn in sets),
    )


def bootstrap_intervals(
    predictions: Predictions,
    *,
    generator: np.random.Generator,
    metrics: Sequence[str] | None = None,
    conventions: Conventions | None = None,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Return centred bootstrap intervals by key, of all metrics that can be drawn by default."""
    chosen = conventions or Conventions()
    drawn = draw_metrics(
        {"": pool({"": [predictions]})},
        generator=generator,
        metrics=resampled_metrics(predictions, chosen) if metrics is None else metrics,
        conventions=chosen,
        resamples=resamples,
    )[""]
    return {key: values.quantile_interval(level) for key, values in drawn.items()}


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % bootstrap interval over images, as fractions."""

    value: float
    low: float
    high: float


def estimates(
    method: PooledPredictions, metrics: Sequence[str], *, resamples: int = 1000
) -> dict[str, Estimate]:
    """Return metrics of one method with intervals; images are drawn over all its sets at once."""
    whole = PooledPredictions((("", len(method)),), method.seeds)
    drawn = draw_metrics(
        {"": whole}, generator=np.random.default_rng(0), metrics=metrics, resamples=resamples
    )[""]
    ends = {key: values.quantile_interval() for key, values in drawn.items()}
    return {key: Estimate(drawn[key].estimate, end.low, end.high) for key, end in ends.items()}


@dataclass(frozen=True)
class Comparison:
    """The difference of two methods in one metric, first minus second, as a fraction."""

    first: str
    second: str
    metric: str
    estimate: float
    low: float
    high: float
    p: float  # two-sided p-value of "no difference", for this comparison alone
    p_holm: float  # after Holm's correction for all comparisons
    n: int  # images
    level: float  # of this interval, after the correction
    comparisons: int  # that were corrected for

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def better(self) -> str | None:
        """Name of the significantly better method; None without one, or where no sign is better."""
        upward = METRICS[self.metric].higher_is_better
        if upward is None or not self.significant:
            return None
        return self.first if (self.estimate > 0) == upward else self.second

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, with `significant` and `better`."""
        return {**asdict(self), "significant": self.significant, "better": self.better}


def corrected_level(level: float, comparisons: int) -> float:
    """Return the level of each interval so that all hold at once with probability `level`."""
    return 1 - (1 - check_level(level)) / max(comparisons, 1)


def compare_drawn(
    drawn: Draws,
    pairs: Sequence[tuple[str, str]],
    *,
    metrics: Sequence[str] | None = None,
    level: float = 0.95,
) -> tuple[Comparison, ...]:
    """Compare pairs (first, second) of methods on the same images, each in all metrics.

    All intervals hold at once with probability `level`. Metrics that were not drawn are left out.
    """
    if not pairs:
        return ()
    by_metric = drawn[pairs[0][0]]
    keys = [key for key in (by_metric if metrics is None else metrics) if key in by_metric]
    asked = [(*pair, key) for pair in pairs for key in keys]
    each = corrected_level(level, len(asked))
    differences = [
        _difference(drawn[first][key], drawn[second][key], metric=key, level=each)
        for first, second, key in asked
    ]
    images = next(iter(by_metric.values())).images if by_metric else 0
    return tuple(
        Comparison(*names, **asdict(d), p_holm=p, n=images, level=each, comparisons=len(asked))
        for names, d, p in zip(asked, differences, holm([d.p for d in differences]), strict=True)
    )


def compare_table(
    methods: Mapping[str, PooledPredictions],
    pairs: Sequence[tuple[str, str]],
    *,
    generator: np.random.Generator,
    metrics: Sequence[str] = COMPARED,
    resamples: int = 1000,
    level: float = 0.95,
) -> tuple[Comparison, ...]:
    """Compare pairs of methods on the same images: `draw_metrics`, then `compare_drawn`."""
    names = dict.fromkeys(itertools.chain(*pairs))
    for name in names:
        if name not in methods:
            raise UnknownName("method of a comparison", name, methods)
    if not names:
        return ()
    drawn = draw_metrics(
        {name: methods[name] for name in names},
        generator=generator,
        metrics=metrics,
        resamples=resamples,
    )
    return compare_drawn(drawn, pairs, level=level)


def best(drawn: Draws, metric: str, *, level: float = 0.95) -> str | None:
    """Return the method that is significantly better than every other one, corrected for them.

    None without one. Methods with the same draws (the same rows twice) count as one; a method on
    other images is never significantly different.
    """
    upward = METRICS[metric].higher_is_better
    values = {name: by_metric[metric] for name, by_metric in drawn.items() if metric in by_metric}
    if upward is None or len(values) < 2:
        return None
    top = (max if upward else min)(values, key=lambda name: values[name].estimate)
    others = [k for k, v in values.items() if not np.array_equal(v.draws, values[top].draws)]
    if not others or not all(_is_paired(values[top], values[name]) for name in others):
        return None
    pairs = [(top, name) for name in others]
    comparisons = compare_drawn(drawn, pairs, metrics=[metric], level=level)
    return top if all(comparison.better == top for comparison in comparisons) else None


def any_significant(drawn: Draws, metric: str, *, level: float = 0.95) -> bool:
    """Return whether any two methods are significantly different, corrected for all pairs."""
    names = [name for name, by_metric in drawn.items() if metric in by_metric]
    pairs = list(itertools.combinations(names, 2))
    each = corrected_level(level, len(pairs))
    return any(
        compare_drawn(drawn, [pair], metrics=[metric], level=each)[0].significant
        for pair in pairs
        if _is_paired(drawn[pair[0]][metric], drawn[pair[1]][metric])
    )


def _is_paired(first: Drawn, second: Drawn) -> bool:
    return (first.images, first.strata) == (second.images, second.strata) and first.freedom > 0


@dataclass(frozen=True)
class Difference:
    estimate: float
    low: float
    high: float
    p: float  # two-sided


def _difference(first: Drawn, second: Drawn, *, metric: str, level: float) -> Difference:
    if first.freedom < 1:
        raise MetricError(
            f"A comparison needs more images than data sets, got {first.images} images of "
            f"{first.strata} data sets."
        )
    apart = first.estimate - second.estimate, first.draws - second.draws
    plain = Drawn(*apart, first.images, first.strata).interval(level)
    if metric != "accuracy" or first.correct is None or second.correct is None:
        return plain
    wins = int((first.correct & ~second.correct).sum())
    losses = int((second.correct & ~first.correct).sum())
    return accuracy_difference(plain, wins, losses=losses, n=first.images, level=level)


def student_difference(estimate: float, error: float, *, freedom: int, level: float) -> Difference:
    """Return estimate ± t × standard error and the p-value of the same t."""
    if error <= 1e-12:  # rounding: the difference is the same in every draw
        return Difference(estimate, estimate, estimate, float(abs(estimate) <= 1e-12))
    half = student_quantile(level, freedom) * error
    p = student_tail(estimate / error, freedom)
    return Difference(estimate, estimate - half, estimate + half, p)


def accuracy_difference(
    plain: Difference, wins: int, *, losses: int, n: int, level: float
) -> Difference:
    """Return a difference of accuracies with McNemar's p-value and an interval that agrees with it.

    The interval is the wider of the plain one and one from exact bounds of both rates of images
    that only one method has right (few such images have no normal spread). Where it contradicts
    the test about 0, its end at 0 moves to the bound that belongs to the test: the fraction of the
    first method (`wins`) among the images that only one has right (`wins` + `losses`).
    """
    p = mcnemar(wins, losses)
    low, high = _bounds_from_rates(wins, losses, n=n, level=level)
    low, high = min(low, plain.low), max(high, plain.high)
    if p >= 1 - level:
        return Difference(plain.estimate, min(low, 0.0), max(high, 0.0), p)
    least, most = binomial_interval(wins, wins + losses, level=level)
    if wins > losses and low <= 0:
        low = max((2 * least - 1) * (wins + losses) / n, math.ulp(0.0))
    elif wins < losses and high >= 0:
        high = min((2 * most - 1) * (wins + losses) / n, -math.ulp(0.0))
    return Difference(plain.estimate, low, high, p)


def _bounds_from_rates(wins: int, losses: int, *, n: int, level: float) -> tuple[float, float]:
    """Return bounds of a difference of two rates from the exact bounds of each."""
    # the distances of the bounds from the rates are added as squares, as variances would be
    counts = np.array([wins, n - wins, losses, n - losses])
    distance = binomial_upper_bound(counts, n, level=(1 + level) / 2) - counts / n
    win_above, win_below, loss_above, loss_below = distance.tolist()
    middle = (wins - losses) / n
    return middle - math.hypot(win_below, loss_above), middle + math.hypot(win_above, loss_below)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the order given."""
    values = np.array(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted.tolist()
