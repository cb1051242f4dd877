"""How promises do on pictures that they were not fitted on: by cross-fitting, by many splits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dtpt.calibration.fitting import (
    Fit,
    Levels,
    Scored,
    SetKind,
    check_labelled,
    fit,
    fit_scored,
    state_scored,
    temperature_of,
)
from dtpt.calibration.scores import FloatArray
from dtpt.calibration.splitting import (
    TEMPERATURE_SHARE,
    BoolArray,
    IntArray,
    Labelled,
    hash_shares,
    temperature_part,
)
from dtpt.errors import PromiseError


@dataclass(frozen=True)
class Judged:
    """Pictures that were judged by promises fitted on others.

    Attributes:
        hit: (n,) whether the set holds the true class.
        size: (n,) classes in the set.
        answered: (n,) whether an answer was given.
        wrong: (n,) whether the answer is, or would have been, wrong.
        confidence: (n,) calibrated.
    """

    hit: BoolArray
    size: IntArray
    answered: BoolArray
    wrong: BoolArray
    confidence: FloatArray

    def take(self, chosen: IntArray) -> "Judged":
        """Return some of the pictures."""
        return Judged(
            self.hit[chosen],
            self.size[chosen],
            self.answered[chosen],
            self.wrong[chosen],
            self.confidence[chosen],
        )

    @property
    def coverage(self) -> float:
        """Share of sets that hold the true class."""
        return float(self.hit.mean())

    @property
    def mean_size(self) -> float:
        """Classes in a set, on average."""
        return float(self.size.mean())

    @property
    def share_answered(self) -> float:
        """Share of pictures with an answer."""
        return float(self.answered.mean())

    @property
    def error(self) -> float:
        """Share of wrong answers among the given ones; NaN where none was given."""
        given = int(self.answered.sum())
        return float((self.wrong & self.answered).sum() / given) if given else float("nan")


def judge(found: Fit, rows: Labelled, *, sets: SetKind = "lac") -> Judged:
    """Judge a promise on labelled pictures that it has not seen.

    Example:
        >>> numbers = Fit(
        ...     temperature=1, lac=0.75, aps=0.9, threshold=0.6, given=90, wrong=1, bound=0.05
        ... )
        >>> unsure, sure = [0.5, 0.3, 0.2], [0.8, 0.1, 0.1]
        >>> judged = judge(
        ...     numbers, Labelled.of(np.log([unsure, sure]), [1, 0], predictions=[0, 0])
        ... )
        >>> judged.coverage, judged.mean_size, judged.share_answered, judged.error
        (1.0, 1.5, 0.5, 0.0)
    """
    return judge_scored(found, Scored.of(rows, found.temperature), rows=rows, sets=sets)


def judge_both(found: Fit, rows: Labelled) -> tuple[Judged, Judged]:
    """Judge a promise with LAC and with APS sets.

    Example:
        >>> numbers = Fit(
        ...     temperature=1, lac=0.5, aps=0.9, threshold=0.6, given=90, wrong=1, bound=0.05
        ... )
        >>> rows = Labelled.of(np.log([[0.5, 0.3, 0.2]]), [1], predictions=[0])
        >>> [judged.mean_size for judged in judge_both(numbers, rows)]
        [1.0, 3.0]
    """
    scored = Scored.of(rows, found.temperature)
    return (
        judge_scored(found, scored, rows=rows, sets="lac"),
        judge_scored(found, scored, rows=rows, sets="aps"),
    )


def judge_scored(found: Fit, scored: Scored, *, rows: Labelled, sets: SetKind = "lac") -> Judged:
    """Do what `judge` does, on scores at the promise's temperature."""
    said = state_scored(found, scored, predictions=rows.predictions, sets=sets)
    return Judged(
        hit=said.members[np.arange(len(rows)), rows.labels],
        size=said.members.sum(axis=1),
        answered=said.answered,
        wrong=rows.wrong,
        confidence=said.confidence,
    )


def cross_fit(
    rows: Labelled, ids: Sequence[str], *, levels: Levels, sets: SetKind = "lac"
) -> Judged:
    """Fit on one half of the pictures, judge the other, and the other way round.

    Raises:
        PromiseError: a half cannot carry a promise.
    """
    fitted = cross_fits(rows, ids, levels=levels)
    return together([judge(found, others, sets=sets) for found, others in fitted])


def cross_fits(
    rows: Labelled, ids: Sequence[str], *, levels: Levels
) -> tuple[tuple[Fit, Labelled], ...]:
    """Return, for both halves, the numbers that one gives and the pictures of the other.

    Halves are by hash of the ids: the same pictures for every method.

    Raises:
        PromiseError: a half cannot carry a promise.
    """
    names = np.asarray(ids, dtype=np.object_)
    half = hash_shares(names, "halves") < 0.5
    found = []
    for mine in (half, ~half):
        chosen, early = rows.take(mine), temperature_part(names[mine])
        numbers = fit(chosen.take(early), chosen.take(~early), levels=levels)
        found.append((numbers, rows.take(~mine)))
    return tuple(found)


def together(parts: Sequence[Judged]) -> Judged:
    """Put judged pictures behind each other.

    Example:
        >>> one = Judged(*(np.array([value]) for value in (True, 2, True, False, 0.8)))
        >>> together([one, one]).mean_size
        2.0
    """
    return Judged(
        hit=np.concatenate([part.hit for part in parts]),
        size=np.concatenate([part.size for part in parts]),
        answered=np.concatenate([part.answered for part in parts]),
        wrong=np.concatenate([part.wrong for part in parts]),
        confidence=np.concatenate([part.confidence for part in parts]),
    )


@dataclass(frozen=True)
class Splits:
    """What many random splits show; one entry per split.

    Attributes:
        levels: what was promised.
        coverage: share of held-out sets that hold the true class, LAC.
        coverage_aps: the same of APS sets.
        size: classes in a LAC set, on average over held-out pictures.
        size_aps: the same of APS sets.
        error: share of wrong answers among those given to held-out pictures; NaN without any.
        error_of_all: the same among all pictures of the pool: the truth, if the pool is the world.
        answered: share of held-out pictures with an answer.
    """

    levels: Levels
    coverage: FloatArray
    coverage_aps: FloatArray
    size: FloatArray
    size_aps: FloatArray
    error: FloatArray
    error_of_all: FloatArray
    answered: FloatArray

    @property
    def kept(self) -> float:
        """Share of splits whose threshold keeps the error of the pool at the promised level.

        A split without a threshold gives no answers, and so no wrong ones.
        """
        return float((np.nan_to_num(self.error_of_all) <= self.levels.error).mean())

    @property
    def kept_held_out(self) -> float:
        """The same on the held-out half alone, where chance in that half counts as well."""
        return float((np.nan_to_num(self.error) <= self.levels.error).mean())

    @property
    def with_threshold(self) -> float:
        """Share of splits that give answers at all."""
        return float((~np.isnan(self.error_of_all)).mean())


def random_splits(rows: Labelled, *, splits: int, levels: Levels, seed: int = 0) -> Splits:
    """Fit on a random half of the pictures and judge the other, many times.

    Raises:
        PromiseError: half of the pictures cannot carry a promise.
    """
    if _early(len(rows)) == 0:
        raise PromiseError(
            f"{len(rows)} labelled pictures are too few to fit on one half and judge the other."
        )
    draws = np.random.default_rng(seed)
    ranked = rows.ranked()
    check_labelled(rows.take(np.arange(1)), rows)
    found = [_one_split(ranked, draws.permutation(len(rows)), levels=levels) for _ in range(splits)]
    columns = np.array(found, dtype=np.float64).T
    return Splits(levels, *columns)


def _early(pictures: int) -> int:
    """Return how many pictures of a half are for the temperature."""
    return round(pictures // 2 * TEMPERATURE_SHARE)


def _one_split(rows: Labelled, order: IntArray, *, levels: Levels) -> tuple[float, ...]:
    """Return the columns of `Splits`, in their order, of one division of ranked rows."""
    half = len(order) // 2
    early, late = np.split(order[:half], [_early(len(order))])
    first, second = rows.take(early), rows.take(late)
    temperature = temperature_of(first)
    scored = Scored.of(rows, temperature)
    apart = scored.confidence[early]
    found = fit_scored(temperature, apart, tested=scored.take(late), rows=second, levels=levels)
    lac, aps = (judge_scored(found, scored, rows=rows, sets=kind) for kind in ("lac", "aps"))
    held_out = order[half:]
    judged, other = lac.take(held_out), aps.take(held_out)
    return (
        judged.coverage,
        other.coverage,
        judged.mean_size,
        other.mean_size,
        judged.error,
        lac.error,
        judged.share_answered,
    )
