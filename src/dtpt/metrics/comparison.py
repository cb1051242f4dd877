"""Paired comparisons of methods: draws, confidence intervals, p-values, correction.

Every "significantly different" of dtpt is decided here. All methods see the same images. Clusters
of images are drawn again together for all methods, within each data set. A metric is computed from
all drawn images of all sets (pooled), or for each set and averaged over them (macro), and averaged
over seeds. The spread of a difference over the draws gives its standard error, and its interval is
estimate ± t × standard error with Student's t: quantiles of draws do not reach the extreme levels
that a correction asks for.

The interval of a pooled difference in accuracy also holds for few images that only one method has
right: it contains the one from exact binomial bounds. Where every cluster is one image and there is
one seed, it excludes 0 exactly when McNemar's test rejects.

k comparisons have intervals of level 1 - (1 - level) / k (Bonferroni): with probability `level` all
of them hold at once. p-values are also given after Holm's correction.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dtpt.errors import MetricError, UnknownName
from dtpt.metrics.distributions import (
    binomial_interval,
    mcnemar,
    rate_upper_bound,
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
from dtpt.metrics.validation import (
    BoolArray,
    FloatArray,
    IntArray,
    check_level,
    check_resamples,
)

COMPARED = tuple(metric.key for metric in metrics_with("compared"))
"""The metrics that are compared: those whose intervals cover the true difference."""
POWER = 0.8  # of a detectable difference


@dataclass(frozen=True, eq=False)
class PooledPredictions:
    """One method's predictions on all images of some data sets, seed by seed."""

    sets: tuple[tuple[str, int], ...]  # (name, images), in order
    seeds: tuple[Predictions, ...]  # the images of all sets one after the other
    passes: float | None = None  # mean passes of an image through the image tower, where known

    def __len__(self) -> int:
        return len(self.seeds[0])

    @property
    def clusters(self) -> tuple[int, ...]:
        """The number of clusters of each set."""
        ends = itertools.accumulate(size for _, size in self.sets)
        reached = [int(self.seeds[0].cluster_codes[:end].max()) + 1 for end in ends]
        return tuple(np.diff(reached, prepend=0).tolist())


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

    names = [np.char.add(f"{k}/", part.cluster_codes.astype(str)) for k, part in enumerate(parts)]
    return Predictions(
        np.concatenate([part.confidence for part in parts]),
        np.concatenate([part.correct for part in parts]),
        p_label=column("p_label"),
        sum_squares=column("sum_squares"),
        samples=column("samples"),
        # clusters of different sets are different, whatever their names
        clusters=None if all(part.clusters is None for part in parts) else np.concatenate(names),
        order=parts[0].order,
    )


@dataclass(frozen=True, eq=False)
class Drawn:
    """A value, a fraction, with its bootstrap draws; methods on the same images share the draws."""

    estimate: float
    draws: FloatArray  # (resamples,)
    images: int
    clusters: tuple[int, ...]  # of each data set, within which they are drawn
    parts: tuple["Drawn", ...] = ()  # of a mean over data sets: the value of each set
    correct: BoolArray | None = None  # (seeds, images), for the exact bounds of accuracy
    codes: IntArray | None = None  # (images,) cluster of each image
    # (orders,) the value of each stream: its rows depend on each other, so streams are the units
    streams: FloatArray | None = None

    def __sub__(self, other: "Drawn") -> "Drawn":
        """Return the paired difference."""
        streams = None
        if self.streams is not None or other.streams is not None:
            one, two = (d.estimate if d.streams is None else d.streams for d in (self, other))
            streams = np.asarray(one - two)
        return Drawn(
            self.estimate - other.estimate,
            self.draws - other.draws,
            self.images,
            self.clusters,
            tuple(one - two for one, two in zip(self.parts, other.parts, strict=True)),
            streams=streams,
        )

    @property
    def variance(self) -> float:
        """Squared standard error of the estimate."""
        if self.parts:
            return sum(part.variance for part in self.parts) / len(self.parts) ** 2
        # resampling within sets understates a variance by (clusters - sets) / clusters
        count = sum(self.clusters)
        return float(self.draws.var()) * count / (count - len(self.clusters))

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the standard error; of a mean over sets Satterthwaite's."""
        variances = [part.variance for part in self.parts]
        if sum(variances) > 0:
            squares = [v**2 / p.freedom for v, p in zip(variances, self.parts, strict=True)]
            return float(sum(variances) ** 2 / sum(squares))
        return float(sum(self.clusters) - len(self.clusters))

    def interval(self, level: float) -> "Difference":
        """Return estimate ± t × standard error, and the p-value of a difference from 0.

        Of streams, the interval is over orders of the same images.
        """
        if self.streams is not None:
            if len(self.streams) < 2:
                raise MetricError(
                    "A confidence interval of a stream method needs two orders: --order-seeds 0,1."
                )
            count = len(self.streams)
            error = float(self.streams.std(ddof=1)) / math.sqrt(count)
            return student_difference(self.estimate, error, freedom=count - 1, level=level)
        if min(self.clusters) < 2:
            raise MetricError(
                f"A confidence interval needs two clusters of images in every data set, got "
                f"{', '.join(map(str, self.clusters))}."
            )
        error = math.sqrt(self.variance)
        return student_difference(self.estimate, error, freedom=self.freedom, level=level)

    def quantile_interval(self, level: float = 0.95) -> Interval:
        """Return the quantiles of the draws after centring them on the estimate.

        Of streams, that of `interval`; of a single stream, the estimate alone.
        """
        if self.streams is not None:
            if len(self.streams) < 2:
                return Interval(low=self.estimate, high=self.estimate)
            ends = self.interval(level)
            return Interval(low=ends.low, high=ends.high)
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
    """Compute metrics of all methods on the same draws of the clusters, by name and metric.

    Metrics that the predictions do not allow are left out.
    """
    chosen, count = conventions or Conventions(), check_resamples(resamples)
    keys = _allowed(methods, metrics)
    samples = {
        name: [SortedSamples(seed, chosen) for seed in method.seeds]
        for name, method in methods.items()
    }
    parts: dict[str, list[dict[str, FloatArray]]] = {name: [] for name in methods}
    first = next(iter(methods.values()))
    sizes, codes = first.clusters, first.seeds[0].cluster_codes
    for counts in resampled_counts(sizes, count, generator=generator, samples=len(first)):
        for name, seeds in samples.items():
            drawn = [Resamples(seed, counts) for seed in seeds]
            parts[name].append(
                {key: np.mean([METRICS[key].draws(part) for part in drawn], axis=0) for key in keys}
            )
    values = {
        name: {key: [METRICS[key].value(seed, chosen) for seed in method.seeds] for key in keys}
        for name, method in methods.items()
    }
    return {
        name: {
            key: Drawn(
                float(np.mean(values[name][key])),
                np.concatenate([part[key] for part in parts[name]]),
                images=len(method),
                clusters=sizes,
                correct=np.array([seed.correct for seed in method.seeds]),
                codes=codes,
                streams=_by_order(values[name][key], [seed.order for seed in method.seeds]),
            )
            for key in keys
        }
        for name, method in methods.items()
    }


def _by_order(values: Sequence[float], orders: Sequence[int | None]) -> FloatArray | None:
    """Return the mean (orders,) over the seeds of each order; None for methods without state."""
    if None in orders:
        return None
    grouped: dict[int | None, list[float]] = {}
    for value, order in zip(values, orders, strict=True):
        grouped.setdefault(order, []).append(value)
    return np.array([np.mean(group) for group in grouped.values()])


def _allowed(methods: Mapping[str, PooledPredictions], metrics: Sequence[str]) -> list[str]:
    """Return the metrics that all predictions allow; raise for methods that are not paired."""
    first, *others = methods.values()
    for other in others:
        if first.sets != other.sets:
            sets = f"one has {dict(first.sets)}, another {dict(other.sets)}"
            raise MetricError(f"Only methods on the same images can be compared: {sets}.")
        _check_same_images(first.seeds[0], other.seeds[0], where="Two methods")
        if not np.array_equal(first.seeds[0].cluster_codes, other.seeds[0].cluster_codes):
            raise MetricError("Only methods with the same clusters of images can be compared.")
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
        clusters=tuple(count for drawn in sets for count in drawn.clusters),
        parts=tuple(sets),
        streams=_mean_of_streams([drawn.streams for drawn in sets]),
    )


def _mean_of_streams(streams: Sequence[FloatArray | None]) -> FloatArray | None:
    """Return the mean over data sets of the streams of one order."""
    known = [each for each in streams if each is not None]
    return np.asarray(np.mean(known, axis=0)) if len(known) == len(streams) else None


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
    """A value with its 95 % bootstrap interval over clusters of images, as fractions."""

    value: float
    low: float
    high: float


def estimates(
    method: PooledPredictions, metrics: Sequence[str], *, resamples: int = 1000
) -> dict[str, Estimate]:
    """Return pooled metrics of one method with intervals."""
    drawn = draw_metrics(
        {"": method}, generator=np.random.default_rng(0), metrics=metrics, resamples=resamples
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
    error: float  # standard error
    detectable: float  # difference that would be significant with a probability of 80 %
    n: int  # images
    clusters: int  # of images
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
    further: int = 0,
) -> tuple[Comparison, ...]:
    """Compare pairs (first, second) of methods on the same images, each in all metrics.

    All intervals, and `further` tests of the same level, hold at once with probability `level`.
    Metrics that were not drawn are left out.
    """
    if not pairs:
        return ()
    by_metric = drawn[pairs[0][0]]
    keys = [key for key in (by_metric if metrics is None else metrics) if key in by_metric]
    asked = [(*pair, key) for pair in pairs for key in keys]
    each = corrected_level(level, len(asked) + further)
    differences = [
        _difference(drawn[first][key], drawn[second][key], metric=key, level=each)
        for first, second, key in asked
    ]
    return tuple(
        Comparison(
            *names,
            **asdict(difference),
            p_holm=p,
            n=by_metric[names[2]].images,
            clusters=sum(by_metric[names[2]].clusters),
            level=each,
            comparisons=len(asked) + further,
        )
        for names, difference, p in zip(
            asked, differences, holm([d.p for d in differences]), strict=True
        )
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


@dataclass(frozen=True)
class Difference:
    estimate: float
    low: float
    high: float
    p: float  # two-sided
    error: float
    detectable: float


def _difference(first: Drawn, second: Drawn, *, metric: str, level: float) -> Difference:
    difference = first - second
    plain = difference.interval(level)
    if difference.streams is not None:
        return plain
    if metric == "absolute_gap":
        return _allow_for_bias(first, second, plain=plain)
    if metric != "accuracy" or first.correct is None or second.correct is None:
        return plain
    won, lost = first.correct & ~second.correct, second.correct & ~first.correct  # (seeds, images)
    codes = np.arange(first.images) if first.codes is None else first.codes
    counts = _effective(won, codes), _effective(lost, codes)
    if len(won) > 1 or sum(first.clusters) < first.images:
        return _contain_bounds(plain, counts, level=level)
    return accuracy_difference(
        plain, int(won.sum()), losses=int(lost.sum()), n=won.size, level=level
    )


def _allow_for_bias(first: Drawn, second: Drawn, *, plain: Difference) -> Difference:
    """Widen the interval of a difference of absolute values by what each may be too large.

    The estimate of an absolute value near 0 is biased upwards, by at most 0.8 standard errors.
    """
    if plain.error == 0:
        return plain
    above, below = _bias_of_absolute(second), _bias_of_absolute(first)
    low, high = plain.low - below, plain.high + above
    excess = max(plain.estimate - below, -plain.estimate - above, 0.0)
    freedom = (first - second).freedom
    return replace(plain, low=low, high=high, p=student_tail(excess / plain.error, freedom))


def _bias_of_absolute(drawn: Drawn) -> float:
    """Return the bias of |x|, averaged over data sets, if each x is a standard error nearer to 0.

    For x with standard error s the bias is s (2 φ(z) - 2 z Φ(-z)) at z = |x| / s.
    """
    parts = drawn.parts or (drawn,)
    total, normal = 0.0, NormalDist()
    for part in parts:
        error = math.sqrt(part.variance)
        z = max(part.estimate / error - 1, 0.0) if error > 0 else 0.0
        total += 2 * error * (normal.pdf(z) - z * normal.cdf(-z))
    return total / len(parts)


def student_difference(
    estimate: float, error: float, *, freedom: float, level: float
) -> Difference:
    """Return estimate ± t × standard error and the p-value of the same t."""
    if error <= 1e-12:  # rounding: the difference is the same in every draw
        same = estimate if abs(estimate) > 1e-12 else 0.0
        return Difference(same, same, same, float(same == 0), error=0.0, detectable=0.0)
    t = student_quantile(level, freedom)
    return Difference(
        estimate,
        low=estimate - t * error,
        high=estimate + t * error,
        p=student_tail(estimate / error, freedom),
        error=error,
        detectable=(t + student_quantile(2 * POWER - 1, freedom)) * error,
    )


def accuracy_difference(
    plain: Difference, wins: int, *, losses: int, n: int, level: float
) -> Difference:
    """Return a difference of accuracies with McNemar's p-value and an interval that agrees with it.

    The interval contains the one from exact bounds. Where it contradicts the test about 0, its end
    at 0 moves to the bound that belongs to the test: the fraction of the first method (`wins`)
    among the images that only one has right (`wins` + `losses`).
    """
    p = mcnemar(wins, losses)
    wide = _contain_bounds(plain, ((wins / n, n), (losses / n, n)), level=level)
    low, high = wide.low, wide.high
    if p >= 1 - level:
        return replace(wide, low=min(low, 0.0), high=max(high, 0.0), p=p)
    least, most = binomial_interval(wins, wins + losses, level=level)
    if wins > losses and low <= 0:
        low = max((2 * least - 1) * (wins + losses) / n, math.ulp(0.0))
    elif wins < losses and high >= 0:
        high = min((2 * most - 1) * (wins + losses) / n, -math.ulp(0.0))
    return replace(wide, low=low, high=high, p=p)


def _effective(happened: BoolArray, codes: IntArray) -> tuple[float, float]:
    """Return a rate and the number of independent images that would give it the same variance.

    Of (seeds, images) events whose images come in clusters.
    """
    per_image = happened.mean(axis=0)  # (images,)
    rate, n, clusters = float(per_image.mean()), len(per_image), int(codes.max()) + 1
    sums = np.bincount(codes, weights=per_image - rate)  # (clusters,)
    variance = float((sums**2).sum()) / n**2 * clusters / max(clusters - 1, 1)
    if variance <= 0:
        return rate, float(clusters)
    return rate, min(rate * (1 - rate) / variance, float(happened.size))


def _contain_bounds(
    plain: Difference,
    rates: tuple[tuple[float, float], tuple[float, float]],
    *,
    level: float,
) -> Difference:
    """Widen an interval to the one from exact bounds of two rates, each with its effective n.

    The rates are those of images that only the first, and only the second method has right: few
    such images have no normal spread. The distances of the bounds from the rates are added as
    squares, as variances would be.
    """
    one_sided = (1 + level) / 2
    (win_above, win_below), (loss_above, loss_below) = (
        (
            rate_upper_bound(r, n, level=one_sided) - r,
            rate_upper_bound(1 - r, n, level=one_sided) - 1 + r,
        )
        for r, n in rates
    )
    middle = rates[0][0] - rates[1][0]
    low = min(middle - math.hypot(win_below, loss_above), plain.low)
    high = max(middle + math.hypot(win_above, loss_below), plain.high)
    ratio = 1 + NormalDist().inv_cdf(POWER) / NormalDist().inv_cdf(one_sided)
    size = max(plain.detectable, ratio * (high - low) / 2)  # a wider interval detects less
    return replace(plain, low=low, high=high, detectable=size)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's step-down method, in the order given."""
    values = np.array(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted.tolist()
