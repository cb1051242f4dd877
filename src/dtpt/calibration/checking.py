"""Check guarantees on images that were not fitted on: by cross-fitting, by many random splits."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dtpt.calibration.conformal import FloatArray
from dtpt.calibration.fitting import (
    TEMPERATURE_FRACTION,
    BoolArray,
    Fit,
    IntArray,
    LabelledPredictions,
    Scored,
    SetKind,
    Targets,
    apply_scored,
    check_labelled,
    fit,
    fit_scored,
    hash_fractions,
    temperature_of,
    temperature_part,
)
from dtpt.errors import CalibrationError


@dataclass(frozen=True)
class HeldOut:
    """A fit evaluated on labelled images that it was not fitted on."""

    covered: BoolArray  # (n,) whether the set contains the true class
    size: IntArray  # (n,) classes in the set
    accepted: BoolArray  # (n,)
    wrong: BoolArray  # (n,) whether the prediction is wrong, accepted or not
    confidence: FloatArray  # (n,) calibrated

    def take(self, chosen: IntArray) -> "HeldOut":
        """Return some of the images."""
        return HeldOut(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @property
    def coverage(self) -> float:
        """Fraction of sets that contain the true class."""
        return float(self.covered.mean())

    @property
    def mean_size(self) -> float:
        """Mean number of classes in a set."""
        return float(self.size.mean())

    @property
    def acceptance(self) -> float:
        """Fraction of images that are not abstained from."""
        return float(self.accepted.mean())

    @property
    def error(self) -> float:
        """Error rate of the accepted predictions; NaN where none is accepted."""
        accepted = int(self.accepted.sum())
        return float((self.wrong & self.accepted).sum() / accepted) if accepted else float("nan")


def evaluate_fit(
    fitted: Fit, rows: LabelledPredictions, *, sets: SetKind = "lac", scored: Scored | None = None
) -> HeldOut:
    """Evaluate a fit on other images; `scored`: the rows at its temperature, where known."""
    known = Scored.of(rows, fitted.temperature) if scored is None else scored
    applied = apply_scored(fitted, known, predictions=rows.predictions, sets=sets)
    return HeldOut(
        covered=applied.members[np.arange(len(rows)), rows.labels],
        size=applied.members.sum(axis=1),
        accepted=~applied.abstained,
        wrong=rows.wrong,
        confidence=applied.confidence,
    )


def concatenate(parts: Sequence[HeldOut]) -> HeldOut:
    """Join evaluated images."""
    names = [field.name for field in fields(HeldOut)]
    return HeldOut(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def cross_fit(
    rows: LabelledPredictions, ids: Sequence[str], *, targets: Targets
) -> tuple[HeldOut, HeldOut]:
    """Fit on one half of the images, evaluate on the other, and vice versa; LAC and APS sets.

    Halves are by hash of the ids: the same images for every method.

    Raises:
        CalibrationError: a half does not allow these targets.
    """
    names, ranked = np.asarray(ids, dtype=np.object_), rows.ranked()
    half = hash_fractions(names, "halves") < 0.5
    lac, aps = [], []
    for chosen in (half, ~half):
        part, early = ranked.take(chosen), temperature_part(names[chosen])
        fitted = fit(part.take(early), part.take(~early), targets=targets)
        others = ranked.take(~chosen)
        scored = Scored.of(others, fitted.temperature)
        lac.append(evaluate_fit(fitted, others, sets="lac", scored=scored))
        aps.append(evaluate_fit(fitted, others, sets="aps", scored=scored))
    return concatenate(lac), concatenate(aps)


@dataclass(frozen=True)
class SplitCheck:
    """Many random splits into a fitted and a held-out half; arrays have one entry per split."""

    targets: Targets
    coverage: FloatArray  # of held-out LAC sets
    coverage_aps: FloatArray
    size: FloatArray  # mean classes in a held-out LAC set
    size_aps: FloatArray
    error: FloatArray  # of accepted held-out predictions; NaN without any
    error_of_all: FloatArray  # the same over all images: the true rate, if they are the population
    acceptance: FloatArray  # fraction of held-out images that are accepted

    @property
    def valid(self) -> float:
        """Fraction of splits whose error over all images is within the target.

        A split without a threshold accepts nothing, and so makes no errors.
        """
        return float((np.nan_to_num(self.error_of_all) <= self.targets.error).mean())

    @property
    def valid_held_out(self) -> float:
        """The same on the held-out half alone, with its own sampling noise."""
        return float((np.nan_to_num(self.error) <= self.targets.error).mean())

    @property
    def with_threshold(self) -> float:
        """Fraction of splits that accept anything."""
        return float((~np.isnan(self.error_of_all)).mean())


def check_splits(
    rows: LabelledPredictions, *, splits: int, targets: Targets, seed: int = 0
) -> SplitCheck:
    """Fit on a random half of the images and evaluate on the other, many times.

    Raises:
        CalibrationError: half of the images does not allow these targets.
    """
    if _temperature_count(len(rows)) == 0:
        raise CalibrationError(
            f"{len(rows)} labelled images are too few to fit on one half and check on the other."
        )
    generator = np.random.default_rng(seed)
    ranked = rows.ranked()
    check_labelled(rows.take(np.arange(1)), rows)
    found = [
        _one_split(ranked, generator.permutation(len(rows)), targets=targets) for _ in range(splits)
    ]
    return SplitCheck(targets, *np.array(found, dtype=np.float64).T)


def _temperature_count(images: int) -> int:
    return round(images // 2 * TEMPERATURE_FRACTION)


def _one_split(
    rows: LabelledPredictions, order: IntArray, *, targets: Targets
) -> tuple[float, ...]:
    """Return the columns of `SplitCheck`, in their order."""
    half = len(order) // 2
    early, late = np.split(order[:half], [_temperature_count(len(order))])
    temperature = temperature_of(rows.take(early))
    scored = Scored.of(rows, temperature)
    fitted = fit_scored(
        temperature,
        scored.confidence[early],
        tested=scored.take(late),
        rows=rows.take(late),
        targets=targets,
    )
    lac = evaluate_fit(fitted, rows, sets="lac", scored=scored)
    aps = evaluate_fit(fitted, rows, sets="aps", scored=scored).take(order[half:])
    held_out = lac.take(order[half:])
    return (
        held_out.coverage,
        aps.coverage,
        held_out.mean_size,
        aps.mean_size,
        held_out.error,
        lac.error,
        held_out.acceptance,
    )
