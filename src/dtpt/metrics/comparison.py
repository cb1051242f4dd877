"""Can two methods be told apart? Paired differences, corrected for how many there are.

Both methods saw the same pictures. Pictures are drawn again together for all methods, within each
data set, and every metric is computed from all drawn pictures of all sets, for each seed, then
averaged over seeds. The spread of the difference over 1,000 draws gives its standard error; an
interval is estimate ± t × standard error with Student's t, which holds at the extreme levels that a
correction asks for, where quantiles of draws do not.

With one seed each, accuracy is tested exactly (McNemar), and its interval excludes 0 exactly when
the test rejects.

A table of k differences has intervals of level 1 - (1 - level) / k (Bonferroni): with probability
`level` all of them are right at once. p-values are also given after Holm's correction, which is
never the stricter of the two.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dtpt.errors import MetricError, UnknownName
from dtpt.metrics.bootstrap import Interval
from dtpt.metrics.differences import (
    Difference,
    accuracy_difference,
    holm,
    student_difference,
)
from dtpt.metrics.pooling import PooledPredictions, check_paired
from dtpt.metrics.predictions import Conventions
from dtpt.metrics.resampling import Resamples, resampled_counts, sort_samples
from dtpt.metrics.table import METRICS, metrics_with
from dtpt.metrics.validation import FloatArray, check_level, check_resamples

COMPARED = tuple(metric.key for metric in metrics_with("compared"))
"""The metrics that are compared: those with little or no bias from binning."""


@dataclass(frozen=True)
class Comparison:
    """The difference of two methods in one metric, first minus second, as a fraction.

    Attributes:
        first: name of the first method.
        second: name of the second method.
        metric: key in `METRICS`.
        estimate: the difference.
        low: lower end of its interval.
        high: upper end of its interval.
        p: two-sided p-value of "no difference", for this comparison alone.
        p_holm: the same after Holm's correction for all comparisons of the table.
        n: pictures behind it.
        level: level of this interval, after the correction.
        comparisons: number of comparisons in the table.
    """

    first: str
    second: str
    metric: str
    estimate: float
    low: float
    high: float
    p: float
    p_holm: float
    n: int
    level: float
    comparisons: int

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, with `separated` and `better`."""
        return {**asdict(self), "separated": self.separated, "better": self.better}

    @property
    def separated(self) -> bool:
        """Whether the interval excludes 0: the methods can be told apart."""
        return self.low > 0 or self.high < 0

    @property
    def better(self) -> str | None:
        """Name of the better method; `None` when they cannot be told apart or no sign is better."""
        upward = METRICS[self.metric].higher_is_better
        if upward is None or not self.separated:
            return None
        return self.first if (self.estimate > 0) == upward else self.second


def compare(
    first: PooledPredictions,
    second: PooledPredictions,
    *,
    generator: np.random.Generator,
    metrics: Sequence[str] = COMPARED,
    conventions: Conventions | None = None,
    resamples: int = 1000,
    level: float = 0.95,
) -> tuple[Comparison, ...]:
    """Compare two methods, named "first" and "second"; corrected for the number of metrics.

    Args:
        first: from `pool`.
        second: from `pool`, with the same pictures.
        generator: the source of all randomness.
        metrics: keys; those that the predictions do not allow are left out.
        conventions: bins and ties.
        resamples: draws of the pictures.
        level: probability that all intervals together are right.

    Example:
        >>> from dtpt.metrics import Predictions, pool
        >>> rng = np.random.default_rng(0)
        >>> right = rng.uniform(size=400) < 0.7
        >>> sure, modest = (
        ...     pool({"dtd": [Predictions.from_confidence(np.full(400, c), right)]})
        ...     for c in (0.95, 0.75)
        ... )
        >>> found = compare(sure, modest, generator=rng, metrics=["accuracy", "absolute_gap"])
        >>> [(c.metric, round(c.estimate, 3), c.better) for c in found]
        [('accuracy', 0.0, None), ('absolute_gap', 0.2, 'second')]
    """
    return compare_table(
        {"first": first, "second": second},
        [("first", "second")],
        generator=generator,
        metrics=metrics,
        conventions=conventions,
        resamples=resamples,
        level=level,
    )


def compare_table(
    methods: Mapping[str, PooledPredictions],
    pairs: Sequence[tuple[str, str]],
    *,
    generator: np.random.Generator,
    metrics: Sequence[str] = COMPARED,
    conventions: Conventions | None = None,
    resamples: int = 1000,
    level: float = 0.95,
) -> tuple[Comparison, ...]:
    """Compare pairs of methods on the same pictures; corrected for pairs times metrics.

    All methods share the draws. The parameters are those of `compare`.

    Args:
        methods: predictions by name of the method.
        pairs: (first, second) names to compare.
        generator: the source of all randomness.
        metrics: keys; those that the predictions do not allow are left out.
        conventions: bins and ties.
        resamples: draws of the pictures.
        level: probability that all intervals together are right.

    Returns:
        For each pair the metrics in the order given.

    Example:
        >>> from dtpt.metrics import Predictions, pool
        >>> made = pool({"dtd": [Predictions.from_confidence([0.9, 0.4, 0.8], [1, 0, 0])]})
        >>> rng = np.random.default_rng(0)
        >>> found = compare_table({"a": made, "b": made}, [("a", "b")], generator=rng)
        >>> {c.separated for c in found}, found[0].comparisons
        ({False}, 6)
    """
    if not pairs:
        return ()
    drawn = draw_metrics(
        _named(methods, pairs),
        generator=generator,
        metrics=metrics,
        conventions=conventions,
        resamples=resamples,
    )
    return compare_drawn(drawn, pairs, level=level)


@dataclass(frozen=True)
class Drawn:
    """One method and metric: the value and its draws, both averaged over seeds.

    Attributes:
        method: the predictions.
        estimate: the value, as a fraction.
        draws: (resamples,) the value on pictures drawn again; all methods share the draws.
    """

    method: PooledPredictions
    estimate: float
    draws: FloatArray

    def interval(self, level: float) -> Interval:
        """Return estimate ± t × standard error."""
        found = student_difference(
            self.estimate,
            _error(self.method, self.draws),
            freedom=_freedom(self.method),
            level=level,
        )
        return Interval(low=found.low, high=found.high)


def draw_metrics(
    methods: Mapping[str, PooledPredictions],
    *,
    generator: np.random.Generator,
    metrics: Sequence[str] = COMPARED,
    conventions: Conventions | None = None,
    resamples: int = 1000,
) -> dict[str, dict[str, Drawn]]:
    """Compute metrics of all methods on the same draws of the pictures, by name and metric.

    Everything that is then said (intervals, differences of any pairs) rests on one drawing. The
    parameters are those of `compare`.

    Example:
        >>> from dtpt.metrics import Predictions, pool
        >>> made = pool({"dtd": [Predictions.from_confidence([0.9, 0.4, 0.8], [1, 0, 0])]})
        >>> found = draw_metrics({"a": made}, generator=np.random.default_rng(0))
        >>> round(found["a"]["signed_gap"].estimate, 3), found["a"]["accuracy"].draws.shape
        (0.367, (1000,))
    """
    return _draw(
        methods,
        _allowed(methods, metrics),
        conventions=conventions or Conventions(),
        resamples=check_resamples(resamples),
        generator=generator,
    )


def compare_drawn(
    drawn: Mapping[str, Mapping[str, Drawn]],
    pairs: Sequence[tuple[str, str]],
    *,
    metrics: Sequence[str] | None = None,
    level: float = 0.95,
) -> tuple[Comparison, ...]:
    """Compare pairs of methods whose metrics are drawn; corrected for pairs times metrics.

    Args:
        drawn: from `draw_metrics`.
        pairs: (first, second) names to compare.
        metrics: keys, all that were drawn when not given; others are left out.
        level: probability that all intervals together are right.

    Example:
        >>> from dtpt.metrics import Predictions, pool
        >>> made = pool({"dtd": [Predictions.from_confidence([0.9, 0.4, 0.8], [1, 0, 0])]})
        >>> drawn = draw_metrics({"a": made, "b": made}, generator=np.random.default_rng(0))
        >>> [c.separated for c in compare_drawn(drawn, [("a", "b")], metrics=["aurc"])]
        [False]
    """
    if not pairs:
        return ()
    known = drawn[pairs[0][0]]
    keys = [key for key in (known if metrics is None else metrics) if key in known]
    count = len(pairs) * len(keys)
    corrected = 1 - (1 - check_level(level)) / max(count, 1)
    asked = [(*pair, key) for pair in pairs for key in keys]
    found = [
        _difference(drawn[first][key], drawn[second][key], metric=key, level=corrected)
        for first, second, key in asked
    ]
    size = len(next(iter(known.values())).method) if known else 0
    return tuple(
        Comparison(*names, **asdict(one), p_holm=p, n=size, level=corrected, comparisons=count)
        for names, one, p in zip(asked, found, holm([one.p for one in found]), strict=True)
    )


def _freedom(method: PooledPredictions) -> int:
    return len(method) - len(method.sets)


def _error(method: PooledPredictions, draws: FloatArray) -> float:
    """Return a standard error from draws.

    Resampling within sets understates a variance by (pictures - sets) / pictures.
    """
    return float(draws.std()) * math.sqrt(len(method) / _freedom(method))


def _difference(first: Drawn, second: Drawn, *, metric: str, level: float) -> Difference:
    """Return the difference of two methods in one metric."""
    error = _error(first.method, first.draws - second.draws)
    estimate = first.estimate - second.estimate
    plain = student_difference(estimate, error, freedom=_freedom(first.method), level=level)
    if metric != "accuracy" or len(first.method.seeds) > 1 or len(second.method.seeds) > 1:
        return plain
    right, other = first.method.seeds[0].correct, second.method.seeds[0].correct
    wins, losses = int((right & ~other).sum()), int((other & ~right).sum())
    return accuracy_difference(plain, wins, losses=losses, n=len(right), level=level)


def _named(
    methods: Mapping[str, PooledPredictions], pairs: Sequence[tuple[str, str]]
) -> dict[str, PooledPredictions]:
    """Return the methods that some pair names."""
    names = dict.fromkeys(name for pair in pairs for name in pair)
    for name in names:
        if name not in methods:
            raise UnknownName("method of a comparison", name, methods)
    return {name: methods[name] for name in names}


def _allowed(methods: Mapping[str, PooledPredictions], metrics: Sequence[str]) -> list[str]:
    """Keep the metrics that all predictions allow; refuse what cannot be compared."""
    first, *others = methods.values()
    for other in others:
        check_paired(first, other)
    if len(first) <= len(first.sets):
        raise MetricError(
            f"A comparison needs more pictures than data sets, got {dict(first.sets)}."
        )
    comparable = [key for key, metric in METRICS.items() if metric.has_resamples]
    for key in metrics:
        if key not in comparable:
            raise UnknownName("metric of a comparison", key, comparable)
    known = [seed.known for method in methods.values() for seed in method.seeds]
    return [key for key in metrics if all(METRICS[key].needs in needs for needs in known)]


def _draw(
    methods: Mapping[str, PooledPredictions],
    keys: Sequence[str],
    *,
    conventions: Conventions,
    resamples: int,
    generator: np.random.Generator,
) -> dict[str, dict[str, Drawn]]:
    """Return estimates and draws of all methods by name and metric; all share the draws."""
    sorted_seeds = {
        name: [sort_samples(seed, conventions) for seed in method.seeds]
        for name, method in methods.items()
    }
    parts: dict[str, list[dict[str, FloatArray]]] = {name: [] for name in methods}
    sizes = [count for _, count in next(iter(methods.values())).sets]
    for counts in resampled_counts(sizes, resamples, generator=generator):
        for name, seeds in sorted_seeds.items():
            drawn = [Resamples(samples, counts) for samples in seeds]
            parts[name].append(
                {key: np.mean([METRICS[key].draws(part) for part in drawn], axis=0) for key in keys}
            )
    return {
        name: {
            key: Drawn(
                method,
                _estimate(method, key, conventions=conventions),
                np.concatenate([part[key] for part in parts[name]]),
            )
            for key in keys
        }
        for name, method in methods.items()
    }


def _estimate(method: PooledPredictions, key: str, *, conventions: Conventions) -> float:
    return float(np.mean([METRICS[key].value(seed, conventions) for seed in method.seeds]))
