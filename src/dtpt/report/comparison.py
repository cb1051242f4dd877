"""Which methods can be told apart, family by family: paired by picture, pooled over the sets.

All pictures of a family's sets count alike; they are drawn again within each set, together for all
methods, and seeds are averaged. Intervals are corrected for the number of rows, metrics and
families, so that with probability `level` every one of them is right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dtpt.data import family_title
from dtpt.errors import ReportError
from dtpt.metrics import (
    METRICS,
    Comparison,
    Interval,
    PooledPredictions,
    draw_metrics,
    pool,
)
from dtpt.metrics.comparison import Drawn, compare_drawn
from dtpt.report.gathering.scored_cells import Condition, Contender

COMPARED = ("accuracy", "signed_gap", "absolute_gap", "ece_above_floor", "brier", "nll", "aurc")
"""The metrics of differences: those with little or no bias from binning."""

POOLED = ("accuracy", "signed_gap", "ece", "brier", "nll", "aurc")
"""The metrics of pooled tables; the ECE stands above its floor."""

RANGES = {"signed_gap": (-1.0, 1.0), "brier": (0.0, 2.0), "nll": (0.0, math.inf)}
"""What a pooled metric can be at all, where that is not 0 to 1."""

AGAINST = ("zero-shot", "tpt")
"""What every method is compared with, where it was run."""


@dataclass(frozen=True)
class Resampling:
    """How differences are judged.

    Attributes:
        level: Probability that all intervals of a report are right.
        resamples: Draws of the pictures.
        seed: Of the drawing.
        against: Labels of the methods that all others are compared with; when empty, `AGAINST` as
            far as they were run, else the first method.
    """

    level: float = 0.95
    resamples: int = 1000
    seed: int = 0
    against: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class FamilyComparison:
    """The methods of one family on the same pictures.

    Attributes:
        title: The family's name.
        size: How many pictures stand behind every number: `120 of 1,692 pictures`.
        sets: Its data sets.
        contenders: The methods with all pictures of all sets, in the order met.
        against: Those of them that all others are compared with.
        pooled: Predictions by label.
        drawn: Values and draws by label and metric.
        comparisons: Differences to those in `against`, first minus second.
        level: Probability that all intervals of `comparisons` are right.
    """

    title: str
    size: str
    sets: tuple[str, ...]
    contenders: tuple[Contender, ...]
    against: tuple[Contender, ...]
    pooled: dict[str, PooledPredictions]
    drawn: dict[str, dict[str, Drawn]]
    comparisons: tuple[Comparison, ...]
    level: float

    @property
    def pictures(self) -> int:
        """Pictures behind every number."""
        return len(next(iter(self.pooled.values())))

    @property
    def shown(self) -> tuple[Contender, ...]:
        """Every method once: at the weight that other sets choose, where several were run."""
        chosen = {c.method for c in self.contenders if c.derived == "chosen"}
        return tuple(
            c
            for c in self.contenders
            if c.derived == "chosen" or c.method not in chosen or c.derived == "temperature"
        )

    def value(self, contender: Contender, metric: str) -> float:
        """Return a pooled metric, a fraction."""
        return self.drawn[contender.label][metric].estimate

    def interval(self, contender: Contender, metric: str) -> Interval | None:
        """Return its interval, for itself alone (not corrected), within what is possible.

        None where every draw gives the same: three right answers of three tell no spread.
        """
        drawn = self.drawn[contender.label][metric]
        if np.ptp(drawn.draws) == 0:
            return None
        found, (least, most) = drawn.interval(0.95), RANGES.get(metric, (0.0, 1.0))
        return Interval(low=max(found.low, least), high=min(found.high, most))

    def difference(self, first: Contender, second: Contender, *, metric: str) -> Comparison | None:
        """Return first minus second where that is among the comparisons."""
        names = (first.label, second.label, metric)
        return next((c for c in self.comparisons if (c.first, c.second, c.metric) == names), None)

    def best(self, metric: str) -> Contender | None:
        """Return the best method if it can be told from every other one.

        Corrected for their number. Rows that are the same row twice (a weight chosen for every set
        alike) count as one.
        """
        upward = METRICS[metric].higher_is_better
        known = [c for c in self.contenders if metric in self.drawn[c.label]]
        if upward is None or len(known) < 2:
            return None
        sign = 1 if upward else -1
        best = max(known, key=lambda c: sign * self.value(c, metric))
        draws = self.drawn[best.label][metric].draws
        others = [c for c in known if not np.array_equal(self.drawn[c.label][metric].draws, draws)]
        pairs = [(best.label, other.label) for other in others]
        found = compare_drawn(self.drawn, pairs, metrics=[metric])
        return best if found and all(one.better == best.label for one in found) else None


def compare_families(
    condition: Condition, resampling: Resampling | None = None
) -> tuple[FamilyComparison, ...]:
    """Compare the methods of every family of a condition that has at least two complete ones."""
    return compare_conditions([condition], resampling)[0]


def compare_conditions(
    conditions: Sequence[Condition], resampling: Resampling | None = None
) -> list[tuple[FamilyComparison, ...]]:
    """Compare the methods of every family of several conditions; the level is that of all."""
    chosen = resampling or Resampling()
    ready = [_comparable_methods(condition) for condition in conditions]
    level = 1 - (1 - chosen.level) / max(sum(map(len, ready)), 1)
    return [
        tuple(
            compare_pooled(
                pooled,
                family,
                resampling=replace(chosen, level=level),
                size=condition.size_text(condition.sets_of(family), answered=_count(pooled)),
            )
            for family, pooled in families.items()
        )
        for condition, families in zip(conditions, ready, strict=True)
    ]


def _comparable_methods(
    condition: Condition,
) -> dict[str, dict[Contender, PooledPredictions]]:
    """Return the complete methods of every family that has something to compare."""
    found = {family: pooled_methods(condition, family) for family in condition.families}
    return {family: pooled for family, pooled in found.items() if _is_comparable(pooled)}


def _count(pooled: dict[Contender, PooledPredictions]) -> int:
    """Return the number of pictures, which is the same for all methods."""
    return len(next(iter(pooled.values())))


def _is_comparable(pooled: dict[Contender, PooledPredictions]) -> bool:
    """Tell whether there are two methods, and more pictures than sets to draw again."""
    return len(pooled) > 1 and all(len(one) > len(one.sets) for one in pooled.values())


def pooled_methods(condition: Condition, family: str) -> dict[Contender, PooledPredictions]:
    """Return the predictions of every method that answered all pictures of a family."""
    sets = condition.sets_of(family)
    found = {}
    for contender in condition.contenders(sets):
        cells = {name: condition.finished(name, contender) for name in sets}
        if all(cells.values()):
            predictions = {name: [cell.predictions for cell in row] for name, row in cells.items()}
            found[contender] = pool(predictions)
    sizes = [pooled.sets for pooled in found.values()]
    # where pictures failed for some methods only, those methods are not paired with the others
    return {c: pooled for c, pooled in found.items() if pooled.sets == max(sizes, key=sizes.count)}


def compare_pooled(
    pooled: dict[Contender, PooledPredictions],
    family: str,
    *,
    resampling: Resampling,
    size: str = "",
) -> FamilyComparison:
    """Compare methods on the same pictures; the level is that of this family alone."""
    by_label = {contender.label: one for contender, one in pooled.items()}
    drawn = draw_metrics(
        by_label,
        generator=np.random.default_rng([resampling.seed, *family.encode()]),
        metrics=tuple(dict.fromkeys((*COMPARED, *POOLED))),
        resamples=resampling.resamples,
    )
    wanted = resampling.against or AGAINST
    against = tuple(c for name in wanted for c in pooled if name == c.label)
    if not against and not resampling.against:
        against = tuple(pooled)[:1]
    pairs = _pairs(tuple(pooled), against)
    return FamilyComparison(
        title=family_title(family),
        size=size or f"{_count(pooled):,} pictures",
        sets=tuple(name for name, _ in next(iter(pooled.values())).sets),
        contenders=tuple(pooled),
        against=against,
        pooled=by_label,
        drawn=drawn,
        comparisons=compare_drawn(drawn, pairs, metrics=COMPARED, level=resampling.level),
        level=resampling.level,
    )


def _pairs(contenders: Sequence[Contender], against: Sequence[Contender]) -> list[tuple[str, str]]:
    """Return (other, base) for every base; two bases are compared once, the later one first."""
    pairs = []
    for place, base in enumerate(against):
        others = [c for c in contenders if c != base and c not in against[:place]]
        pairs += [(other.label, base.label) for other in others]
    return pairs


def check_against(comparisons: Sequence[FamilyComparison], names: Sequence[str]) -> None:
    """Refuse a method to compare with that no run holds."""
    known = dict.fromkeys(c.label for one in comparisons for c in one.contenders)
    for name in names:
        if known and name not in known:
            raise ReportError(
                f"--against {name!r}: no run holds all pictures of it; there are "
                f"{', '.join(known)}."
            )
