"""How often intervals of differences hold the truth, on simulated clusters of images.

Images of one cluster (six of a drawing, say) share most of their difficulty and luck; two methods
share most of the luck of an image. Each is right with a probability that its confidence states with
a slope and a shift: (1, 0) is calibrated, (1.5, 0.2) overconfident. The true difference comes from
many clusters; `dtpt compare` computes its intervals from few, over one or three seeds, by the mean
over data sets or pooled over images.
"""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from benchmarks import measuring
from benchmarks.measuring import Listed
from dtpt.metrics import COMPARED, METRICS, Conventions, Predictions, draw_metrics, pool
from dtpt.metrics.comparison import Drawn, compare_drawn, mean_over_sets

Boast = tuple[float, float]
"""Slope and shift of the logit of the confidence."""
PAIRS: dict[str, tuple[Boast, Boast]] = {
    "both overconfident": ((1.5, 0.2), (1.2, 0.0)),
    "one calibrated": ((1.0, 0.0), (1.5, 0.3)),
}
SKILLS = (0.0, 0.1)  # of the first and the second method
PER_CLUSTER = 6
TRUTH_CLUSTERS = 40_000

Made = list[list[Predictions]]
"""The predictions of both methods, seed by seed."""


def intervals(
    *,
    clusters: Listed = "85,852",
    correlations: Listed = "70,95",
    seeds: Listed = "1,3",
    sets: int = 3,
    draws: int = 400,
    seed: int = 0,
) -> measuring.Row:
    """Simulate the coverage of 95 % intervals for every metric that is compared.

    Args:
        clusters: Of all data sets together, six images each.
        correlations: Within a cluster, of the difficulty of its images, in percent.
        seeds: Numbers of seeds that are averaged.
        sets: Data sets that the clusters are divided among.
        draws: Simulated comparisons for each row; 400 give ± 2 points.
        seed: Of the simulation.
    """
    numbers = measuring.whole_numbers
    found = []
    for percent, (name, boasts) in product(numbers(correlations, "--correlations"), PAIRS.items()):
        within, rng = percent / 100, np.random.default_rng([seed, percent])
        truth, icc = true_differences(rng, boasts, within=within)
        for count, views in product(numbers(clusters, "--clusters"), numbers(seeds, "--seeds")):
            sizes = [len(part) for part in np.array_split(np.arange(count), sets)]
            hits: dict[str, list[dict[str, bool]]] = {"datasets": [], "images": []}
            for _ in range(draws):
                made = [
                    clustered(rng, size, boasts=boasts, seeds=views, within=within)
                    for size in sizes
                ]
                for average, held in hits.items():
                    held.append(covered(made, truth, rng=rng, average=average))
            row = {"icc": icc, "methods": name, "clusters": count, "seeds": views}
            for average, held in hits.items():
                means = {key: float(np.mean([one[key] for one in held])) for key in held[0]}
                found.append({**row, "average": average, **means})
    return {"sets": sets, "draws": draws, "rows": found}


def clustered(
    rng: np.random.Generator,
    clusters: int,
    *,
    boasts: Sequence[Boast],
    seeds: int = 1,
    within: float = 0.7,
) -> Made:
    """Simulate two methods on clusters of six images, seed by seed."""
    codes = np.repeat(np.arange(clusters), PER_CLUSTER)

    def correlated() -> npt.NDArray[np.float64]:
        shared, own = rng.normal(size=clusters)[codes], rng.normal(size=len(codes))
        return np.asarray(np.sqrt(within) * shared + np.sqrt(1 - within) * own)

    ease, luck = correlated(), correlated()
    made: Made = []
    for (slope, shift), skill in zip(boasts, SKILLS, strict=True):
        mine, is_shared = correlated(), (rng.uniform(size=clusters) < 0.8)[codes]
        made.append([])
        for _ in range(seeds):
            noise = rng.normal(size=(2, len(codes)))
            logit = 1.2 * (ease + 0.09 * noise[0]) + 0.4 + skill
            drawn = 0.97 * np.where(is_shared, luck, mine) + 0.24 * noise[1]
            correct = ndtr(drawn) < _squash(logit)
            confidence = np.maximum(_squash(slope * logit + shift), 0.05)
            made[-1].append(
                Predictions.from_confidence(
                    confidence,
                    correct,
                    p_label=np.where(correct, confidence, (1 - confidence) / 2),
                    sum_squares=confidence**2 + 0.5 * (1 - confidence) ** 2,
                    clusters=codes,
                )
            )
    return made


def _squash(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-values)))


def true_differences(
    rng: np.random.Generator, boasts: Sequence[Boast], *, within: float = 0.7
) -> tuple[dict[str, float], float]:
    """Return first minus second method in every metric, and the ICC of being right."""
    (first,), (second,) = clustered(rng, TRUTH_CLUSTERS, boasts=boasts, within=within)
    truth = {
        key: METRICS[key].value(first, Conventions()) - METRICS[key].value(second, Conventions())
        for key in COMPARED
    }
    right = first.correct.reshape(-1, PER_CLUSTER).astype(float)  # (images,) -> (clusters, 6)
    between, inside = right.mean(axis=1).var(ddof=1), right.var(axis=1, ddof=1).mean()
    variance = max(between - inside / PER_CLUSTER, 0.0)
    return truth, float(variance / (variance + inside))


def drawn_over(
    made: Sequence[Made], *, rng: np.random.Generator, average: str, resamples: int = 150
) -> dict[str, dict[str, Drawn]]:
    """Draw the metrics of both methods over some sets, as a mean over them or pooled."""
    names = dict(enumerate("ab"))
    if average == "images":
        methods = {
            name: pool({str(k): one[index] for k, one in enumerate(made)})
            for index, name in names.items()
        }
        return draw_metrics(methods, generator=rng, resamples=resamples)
    sets = [
        draw_metrics(
            {name: pool({"": one[index]}) for index, name in names.items()},
            generator=rng,
            resamples=resamples,
        )
        for one in made
    ]
    return {n: {key: mean_over_sets([s[n][key] for s in sets]) for key in COMPARED} for n in "ab"}


def covered(
    made: Sequence[Made],
    truth: Mapping[str, float],
    *,
    rng: np.random.Generator,
    average: str,
) -> dict[str, bool]:
    """Return for every metric whether the 95 % interval of one simulation holds the truth."""
    drawn = drawn_over(made, rng=rng, average=average)
    # undo the correction: each interval has 95 % for itself
    found = compare_drawn(drawn, [("a", "b")], level=1 - 0.05 * len(COMPARED))
    return {one.metric: bool(one.low <= truth[one.metric] <= one.high) for one in found}
