"""Check guarantees on images that were not fitted on: by cross-fitting, by many random splits.

Every split is by cluster, and every cluster weighs the same, as in the guarantees.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import get_args

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
    one_per_cluster,
    temperature_of,
    temperature_part,
)
from dtpt.errors import CalibrationError
from dtpt.metrics import METRICS, Conventions, tempered

EFFECTS = ("ece", "floor", "signed_gap", "nll")
NAN = float("nan")
LOW_CLASSES = 0.05  # quantile of coverage over classes that is reported


@dataclass(frozen=True)
class HeldOut:
    """A fit evaluated on labelled images that it was not fitted on."""

    covered: BoolArray  # (n,) whether the set contains the true class
    size: IntArray  # (n,) classes in the set
    accepted: BoolArray  # (n,)
    wrong: BoolArray  # (n,) whether the prediction is wrong, accepted or not
    confidence: FloatArray  # (n,) calibrated
    label: IntArray  # (n,) true class
    weight: FloatArray  # (n,) 1 / size of the image's cluster

    def take(self, kept: BoolArray) -> "HeldOut":
        """Return some of the images."""
        return HeldOut(*(getattr(self, field.name)[kept] for field in fields(self)))

    @property
    def coverage(self) -> float:
        """Fraction of sets that contain the true class."""
        return float(np.average(self.covered, weights=self.weight))

    @property
    def mean_size(self) -> float:
        """Mean number of classes in a set."""
        return float(np.average(self.size, weights=self.weight))

    @property
    def acceptance(self) -> float:
        """Fraction of images that are not abstained from."""
        return float(np.average(self.accepted, weights=self.weight))

    @property
    def error(self) -> float:
        """Error rate of the accepted predictions; NaN where none is accepted."""
        weight = self.weight[self.accepted]
        return float(np.average(self.wrong[self.accepted], weights=weight)) if len(weight) else NAN

    @property
    def class_coverage(self) -> float:
        """Coverage of classes at the 5 % quantile."""
        return low_class_coverage(self.by_class(1))

    def by_class(self, classes: int) -> FloatArray:
        """Return weights of covered images and of all images of every class (2, C)."""
        parts = (self.weight * self.covered, self.weight)
        return np.stack([np.bincount(self.label, part, minlength=classes) for part in parts])


def low_class_coverage(by_class: FloatArray) -> float:
    """Return the coverage below which 5 % of the classes with images lie; see `by_class`."""
    covered, images = by_class[:, by_class[1] > 0]
    return float(np.quantile(covered / images, LOW_CLASSES))


def evaluate_fit(
    fitted: Fit, rows: LabelledPredictions, *, sets: SetKind = "lac", scored: Scored | None = None
) -> HeldOut:
    """Evaluate a fit on other images; `scored`: the rows at its temperature, where known."""
    known = Scored.of(rows, fitted.temperature) if scored is None else scored
    applied = apply_scored(
        fitted, known, predictions=rows.predictions, sets=sets, classes=rows.classes
    )
    return HeldOut(
        covered=applied.members[np.arange(len(rows)), rows.labels],
        size=applied.members.sum(axis=1),
        accepted=~applied.abstained,
        wrong=rows.wrong,
        confidence=applied.confidence,
        label=rows.true_classes,
        weight=rows.weights,
    )


def concatenate(parts: Sequence[HeldOut], *, same_classes: bool = True) -> HeldOut:
    """Join evaluated images; classes of different data sets are numbered on."""
    counts = [0 if same_classes else int(part.label.max()) + 1 for part in parts]
    offsets = np.cumsum([0, *counts[:-1]])
    moved = [replace(part, label=part.label + k) for part, k in zip(parts, offsets, strict=True)]
    names = [field.name for field in fields(HeldOut)]
    return HeldOut(*(np.concatenate([getattr(part, name) for part in moved]) for name in names))


def temperature_effect(
    rows: LabelledPredictions, temperature: float
) -> dict[str, tuple[float, float]]:
    """Return ECE, its noise floor, signed gap and NLL before and after, on rows apart from it."""
    both = [tempered(rows.log_probabilities, rows.labels, temperature=t) for t in (1, temperature)]
    before, after = ([METRICS[key].value(p, Conventions()) for key in EFFECTS] for p in both)
    return dict(zip(EFFECTS, zip(before, after, strict=True), strict=True))


def cross_fit(
    rows: LabelledPredictions, clusters: Sequence[str], *, targets: Targets
) -> tuple[HeldOut, HeldOut]:
    """Fit on one half of the clusters, evaluate on the other, and vice versa; LAC and APS sets.

    Halves are by hash of the clusters' names (n,): the same images for every method.

    Raises:
        CalibrationError: a half does not allow these targets.
    """
    names, ranked = np.asarray(clusters, dtype=np.object_), rows.ranked()
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
    """Many random splits of the clusters into a fitted and a held-out half.

    Arrays have one entry per split.
    """

    targets: Targets
    coverage: FloatArray  # of held-out LAC sets
    coverage_aps: FloatArray
    size: FloatArray  # mean classes in a held-out LAC set
    size_aps: FloatArray
    error: FloatArray  # of accepted held-out predictions; NaN without any
    error_of_all: FloatArray  # the same over all images: the true rate, if they are the population
    acceptance: FloatArray  # fraction of held-out images that are accepted
    class_coverage: float  # of held-out LAC sets over all splits: 5 % of the classes have less
    class_coverage_aps: float

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
    """Fit on a random half of the clusters and evaluate on the other, many times.

    Raises:
        CalibrationError: half of the images does not allow these targets.
    """
    count = rows.cluster_count
    if _temperature_count(count) == 0:
        raise CalibrationError(
            f"{len(rows)} labelled images of {count} clusters are too few to fit on one half and "
            "check on the other."
        )
    check_labelled(rows, rows)
    ranked, classes = rows.ranked(), rows.log_probabilities.shape[1]
    orders, choices = (np.random.default_rng(key) for key in (seed, [seed, 1]))
    found, by_class = [], np.zeros((2, 2, classes))  # LAC and APS; covered and all
    for _ in range(splits):
        chosen = one_per_cluster(rows.clusters, choices.random(count))
        drawn = replace(ranked, chosen=chosen)
        held_out, error = _one_split(drawn, orders.permutation(count), targets=targets)
        by_class += [part.by_class(classes) for part in held_out]
        found.append(_columns(*held_out, error_of_all=error))
    columns = np.array(found, dtype=np.float64).T
    return SplitCheck(targets, *columns, *map(low_class_coverage, by_class))


def _temperature_count(clusters: int) -> int:
    return round(clusters // 2 * TEMPERATURE_FRACTION)


def _one_split(
    rows: LabelledPredictions, order: IntArray, *, targets: Targets
) -> tuple[tuple[HeldOut, HeldOut], float]:
    """Return LAC and APS sets of the held-out half, and the error rate over all images."""
    count = len(order)
    part = np.full(count, 2)  # 0: temperature, 1: sets and threshold, 2: held out
    part[order[: count // 2]] = 1
    part[order[: _temperature_count(count)]] = 0
    early, late, held_out = (part[rows.clusters] == k for k in range(3))  # (n,) each
    temperature = targets.temperature or temperature_of(rows.take(early))
    scored = Scored.of(rows, temperature)
    fitted = fit_scored(
        temperature,
        scored.confidence[early],
        tested=scored.take(late),
        rows=rows.take(late),
        targets=targets,
    )
    lac, aps = (evaluate_fit(fitted, rows, sets=kind, scored=scored) for kind in get_args(SetKind))
    return (lac.take(held_out), aps.take(held_out)), lac.error


def _columns(lac: HeldOut, aps: HeldOut, *, error_of_all: float) -> tuple[float, ...]:
    """Return the arrays of `SplitCheck`, in their order."""
    return (
        lac.coverage,
        aps.coverage,
        lac.mean_size,
        aps.mean_size,
        lac.error,
        error_of_all,
        lac.acceptance,
    )
