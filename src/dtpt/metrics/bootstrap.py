"""Percentile bootstrap intervals: resample the test set, recompute, take quantiles.

Samples are drawn with replacement, stratified by nothing, from an explicit generator. A resample is
kept as counts per sample; with the samples sorted once by confidence, every metric of a resample is
a few passes over its counts, so 1,000 resamples of 50,000 samples take seconds.

The interval covers the sampling of the test set only, not seeds or training. Binned calibration
errors are biased upwards in small samples and their bootstrap twice so: read those intervals as
spread, not as proof of coverage.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from dtpt.errors import MetricError
from dtpt.metrics.binning import Closed, assign_width_bins
from dtpt.metrics.validation import FloatArray, IntArray, check_count, check_pair, read_array

# Counts held at a time; bounds memory to some tens of megabytes whatever the sizes.
CHUNK = 2**20


class Interval(BaseModel):
    """A confidence interval, in the metric's unit (fractions).

    Example:
        >>> Interval(low=0.1, high=0.2).high
        0.2
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float
    high: float


def bootstrap_statistic(
    statistic: Callable[[IntArray], float],
    count: int,
    *,
    generator: np.random.Generator,
    resamples: int = 1000,
    level: float = 0.95,
) -> Interval:
    """Return the percentile interval of any statistic of resampled sample indices.

    One Python call per resample; `bootstrap_intervals` is much faster for what it knows.

    Example:
        >>> values = np.array([0.0, 1.0, 1.0, 1.0])
        >>> rng = np.random.default_rng(0)
        >>> bootstrap_statistic(lambda i: values[i].mean(), 4, generator=rng, resamples=200)
        Interval(low=0.25, high=1.0)
    """
    check_count(count, "count")
    check_count(resamples, "resamples")
    draws = np.array([statistic(generator.integers(count, size=count)) for _ in range(resamples)])
    return percentile_interval(draws, level=level)


def bootstrap_intervals(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    generator: np.random.Generator,
    losses: Mapping[str, npt.ArrayLike] | None = None,
    bins: int = 20,
    closed: Closed = "right",
    aece_bins: int | None = None,
    resamples: int = 1000,
    level: float = 0.95,
) -> dict[str, Interval]:
    """Return intervals of accuracy, ECE, AECE, MCE, AURC, AUGRC and of mean losses.

    Ties are treated as by default in `aece` ("together") and `aurc` ("average"); a sample drawn
    twice ties with itself.

    Args:
        confidence: (samples,) in [0, 1].
        correct: (samples,) whether the prediction was right.
        generator: the source of all randomness.
        losses: further per-sample values whose mean gets an interval, by name.
        bins: equal-width bins of ECE and MCE.
        closed: which end of a bin belongs to it.
        aece_bins: equal-mass bins of AECE; `None` for the same number as `bins`.
        resamples: number of resamples.
        level: coverage of the interval.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> found = bootstrap_intervals([0.9, 0.8, 0.7], [1, 1, 0], generator=rng, resamples=100)
        >>> sorted(found), found["accuracy"].high
        (['accuracy', 'aece', 'augrc', 'aurc', 'ece', 'mce'], 1.0)
    """
    draws = bootstrap_draws(
        confidence,
        correct,
        generator=generator,
        losses=losses,
        bins=bins,
        closed=closed,
        aece_bins=aece_bins,
        resamples=resamples,
    )
    return {name: percentile_interval(values, level=level) for name, values in draws.items()}


def bootstrap_draws(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    *,
    generator: np.random.Generator,
    losses: Mapping[str, npt.ArrayLike] | None = None,
    bins: int = 20,
    closed: Closed = "right",
    aece_bins: int | None = None,
    resamples: int = 1000,
) -> dict[str, FloatArray]:
    """Return what `bootstrap_intervals` summarises: each metric for each resample.

    Samples are drawn by their position in the input, so that two methods on the same samples with
    equally seeded generators see the same draws, whatever their confidences.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> bootstrap_draws([0.9, 0.8], [1, 0], generator=rng, resamples=5)["accuracy"].shape
        (5,)
    """
    check_count(resamples, "resamples")
    mass_bins = check_count(bins if aece_bins is None else aece_bins, "aece_bins")
    prepared = _prepare(confidence, correct, bins, closed)
    extra = _sorted_losses(losses or {}, prepared.order)
    draws: dict[str, list[FloatArray]] = {}
    for drawn in _resampled_counts(len(prepared.order), resamples, generator):
        counts = drawn[:, prepared.order]
        found = _metrics_of_counts(counts, prepared, mass_bins)
        found |= {name: counts @ values / len(values) for name, values in extra.items()}
        for name, values in found.items():
            draws.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in draws.items()}


def percentile_interval(draws: FloatArray, *, level: float) -> Interval:
    """Return the central interval that holds `level` of the draws.

    Example:
        >>> percentile_interval(np.arange(101.0), level=0.5)
        Interval(low=25.0, high=75.0)
    """
    if not 0 < level < 1:
        raise MetricError(f"level is {level}; expected between 0 and 1, such as 0.95.")
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(low=float(low), high=float(high))


@dataclass(frozen=True)
class _SortedSamples:
    """What all resamples share, samples sorted by descending confidence."""

    order: IntArray  # (n,) original index of each sorted sample
    wrong: FloatArray  # (n,) 1 for an error
    residual: FloatArray  # (n,) correct - confidence
    tie_starts: IntArray  # first sample of each group of equal confidence
    bin_starts: IntArray  # first sample of each occupied equal-width bin
    harmonic: FloatArray  # (n + 1,) sums of 1/k


def _prepare(
    confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int, closed: Closed
) -> _SortedSamples:
    values, hits = check_pair(confidence, correct)
    order = np.argsort(-values, kind="stable")
    values, hits = values[order], hits[order]
    return _SortedSamples(
        order=order,
        wrong=(~hits).astype(np.float64),
        residual=hits - values,
        tie_starts=_run_starts(values),
        bin_starts=_run_starts(assign_width_bins(values, bins, closed=closed)),
        harmonic=np.concatenate(([0.0], np.cumsum(1 / np.arange(1, len(values) + 1)))),
    )


def _run_starts(values: FloatArray | IntArray) -> IntArray:
    return np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))


def _sorted_losses(losses: Mapping[str, npt.ArrayLike], order: IntArray) -> dict[str, FloatArray]:
    result = {}
    for name, values in losses.items():
        array = read_array(values, f"losses[{name!r}]", dimensions=1).astype(np.float64)
        if array.shape != order.shape:
            raise MetricError(
                f"losses[{name!r}] has {len(array)} samples but confidence has {len(order)}."
            )
        result[name] = array[order]
    return result


def _resampled_counts(
    count: int, resamples: int, generator: np.random.Generator
) -> Iterator[FloatArray]:
    """Yield (rows, n) arrays: how often each sample was drawn, in chunks of bounded size."""
    rows = max(1, CHUNK // count)
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        drawn = generator.integers(count, size=(size, count))
        drawn += np.arange(size)[:, None] * count  # one range of numbers per resample
        counts = np.bincount(drawn.ravel(), minlength=size * count)
        yield counts.reshape(size, count).astype(np.float64)


def _metrics_of_counts(
    counts: FloatArray, samples: _SortedSamples, aece_bins: int
) -> dict[str, FloatArray]:
    """Return each metric for each resample, shape (rows,)."""
    total = counts.shape[1]
    weighted = counts * samples.residual
    wrong = counts * samples.wrong
    gaps = np.abs(np.add.reduceat(weighted, samples.bin_starts, axis=1))
    sizes = np.add.reduceat(counts, samples.bin_starts, axis=1)
    tie_sizes = np.add.reduceat(counts, samples.tie_starts, axis=1)
    tie_wrong = np.add.reduceat(wrong, samples.tie_starts, axis=1)
    tie_gaps = np.add.reduceat(weighted, samples.tie_starts, axis=1)
    return {
        "accuracy": 1 - wrong.sum(axis=1) / total,
        "ece": gaps.sum(axis=1) / total,
        "aece": _aece_of_ties(tie_sizes, tie_gaps, aece_bins),
        "mce": (gaps / np.maximum(sizes, 1)).max(axis=1),
        **_areas_of_ties(tie_sizes, tie_wrong, samples.harmonic),
    }


def _aece_of_ties(sizes: FloatArray, gaps: FloatArray, bins: int) -> FloatArray:
    """Assign each tie group to the equal-mass bin of its lowest rank and sum the gaps."""
    rows, total = len(sizes), int(sizes[0].sum())
    rank = total - np.cumsum(sizes, axis=1).astype(np.int64)  # ascending rank: 0 = least confident
    member = np.minimum(rank * bins // total, bins - 1)  # groups nobody drew may have rank n
    member += np.arange(rows)[:, None] * bins
    sums = np.bincount(member.ravel(), weights=gaps.ravel(), minlength=rows * bins)
    return np.asarray(np.abs(sums.reshape(rows, bins)).sum(axis=1) / total)


def _areas_of_ties(
    sizes: FloatArray, wrong: FloatArray, harmonic: FloatArray
) -> dict[str, FloatArray]:
    """Return AURC and AUGRC from tie groups in descending confidence.

    Inside a group of m samples with e errors, after a samples with E errors, the expected risks
    (E + j e/m) / (a + j), j = 1..m, sum to e + (E - a e/m) (H(a+m) - H(a)).
    """
    total = sizes[0].sum()
    reached = np.cumsum(sizes, axis=1).astype(np.int64)
    before = reached - sizes.astype(np.int64)
    errors = np.cumsum(wrong, axis=1)
    slope = wrong / np.maximum(sizes, 1)
    surplus = (errors - wrong) - before * slope
    risks = wrong + surplus * (harmonic[reached] - harmonic[before])
    area = sizes * (errors - wrong / 2)
    return {"aurc": risks.sum(axis=1) / total, "augrc": area.sum(axis=1) / total**2}
