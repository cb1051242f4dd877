"""Fit temperature, prediction sets and threshold to labelled images, and apply them to new ones.

Images come in clusters, which are independent of each other; images of one cluster are not. So the
labelled images are divided by cluster, each cluster weighs the same, and where a test needs
independent images it takes one of each cluster, chosen by hash. With one image per cluster this is
the usual procedure.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from dtpt.calibration.conformal import (
    FloatArray,
    Stored,
    aps_scores,
    as_stored,
    calibrated_probabilities,
    class_limits,
    cluster_weights,
    falling,
    lac_scores,
    score_limit,
)
from dtpt.calibration.selective import lowest_valid_threshold, threshold_sequence
from dtpt.errors import CalibrationError
from dtpt.metrics import fit_temperature

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
SetKind = Literal["lac", "aps"]
Fraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Limit = Annotated[float, Field(ge=0, le=1)]

# Fewer clusters do not determine a temperature.
LEAST_FOR_TEMPERATURE = 10
TEMPERATURE_FRACTION = 0.25


class Record(BaseModel):
    """A part of a calibration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Targets(Record):
    """What a calibration shall guarantee, and the temperature if it is not to be fitted."""

    coverage: Fraction = Field(
        default=0.9,
        description="Fraction of new images whose prediction set shall contain the true class.",
    )
    error: Fraction = Field(
        default=0.05, description="Largest error rate among accepted predictions."
    )
    confidence: Fraction = Field(
        default=0.95, description="With which the error rate is not exceeded."
    )
    class_conditional: bool = Field(
        default=False,
        description="The coverage holds for every class by itself (Mondrian); classes with too few "
        "labelled images are in every set.",
    )
    temperature: float | None = Field(
        default=None,
        ge=0.01,
        le=100,
        description="Fixed instead of fitted; 1 leaves the probabilities as they are.",
    )


class Fit(Record):
    """The fitted numbers."""

    temperature: Annotated[float, Field(ge=1e-3, le=1e3)]  # fitted ones are from 0.01 to 100
    lac: Limit | tuple[Limit, ...]  # largest score that a LAC set admits; (C,) by class
    aps: Limit | tuple[Limit, ...]  # largest score that an APS set admits; (C,) by class
    threshold: Limit | None  # None: always abstain
    accepted: Annotated[int, Field(ge=0)]  # labelled images at or above it, one per cluster
    wrong: Annotated[int, Field(ge=0)]  # wrong predictions among them
    bound: Limit  # upper bound of the error rate on new images


@dataclass(frozen=True)
class LabelledPredictions:
    """Predictions of one method on images whose class is known."""

    log_probabilities: Stored  # (n, C), with the digits that runs store
    labels: IntArray  # (n,)
    predictions: IntArray  # (n,)
    clusters: IntArray  # (n,) number of the image's cluster
    chosen: BoolArray  # (n,) the one image of its cluster for tests that need independent images
    classes: IntArray | None = None  # (n, C) class of each column, where rows are ranked

    @classmethod
    def of(
        cls,
        log_probabilities: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        predictions: npt.ArrayLike,
        clusters: Sequence[str] | npt.NDArray[np.object_] | None = None,
    ) -> "LabelledPredictions":
        """Check lengths and class indices.

        Args:
            log_probabilities: (n, C).
            labels: (n,) true classes.
            predictions: (n,) predicted classes.
            clusters: (n,) names; images with the same are not independent. None: all are.
        """
        rows = as_stored(log_probabilities)
        truth, predicted = np.asarray(labels), np.asarray(predictions)
        names = np.arange(len(truth)) if clusters is None else np.asarray(clusters, np.object_)
        if not (len(rows) == len(truth) == len(predicted) == len(names)):
            raise CalibrationError(
                f"{len(rows)} rows of probabilities, {len(truth)} labels, {len(predicted)} "
                f"predictions and {len(names)} clusters; expected equal numbers."
            )
        for name, values in (("label", truth), ("prediction", predicted)):
            outside = (values < 0) | (values >= rows.shape[1])
            if outside.any():
                value = values[outside][0]
                raise CalibrationError(f"A {name} is {value}; expected 0 to {rows.shape[1] - 1}.")
        found, numbers = np.unique(names, return_inverse=True)
        chosen = one_per_cluster(numbers, hash_fractions(found, "image"))
        return cls(rows, truth.astype(np.int64), predicted.astype(np.int64), numbers, chosen)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def wrong(self) -> BoolArray:
        """(n,) whether the prediction is not the label."""
        return np.not_equal(self.predictions, self.labels)

    @property
    def weights(self) -> FloatArray:
        """(n,) 1 / size of the image's cluster."""
        return cluster_weights(self.clusters)

    @property
    def cluster_count(self) -> int:
        """How many clusters there are."""
        return int(self.chosen.sum())

    @property
    def true_classes(self) -> IntArray:
        """(n,) labels, in the numbering of the classes before they were ranked."""
        return self.labels if self.classes is None else self.classes[self._rows, self.labels]

    @property
    def _rows(self) -> IntArray:
        return np.arange(len(self))

    def ranked(self) -> "LabelledPredictions":
        """Return the same predictions with the classes of each row numbered by probability.

        No temperature changes that order, and no score depends on the numbering: what is fitted
        many times is then sorted once.
        """
        order = falling(self.log_probabilities)  # (n, C)
        rank = np.argsort(order, axis=1)
        return replace(
            self,
            log_probabilities=np.take_along_axis(self.log_probabilities, order, axis=1),
            labels=rank[self._rows, self.labels],
            predictions=rank[self._rows, self.predictions],
            classes=order,
        )

    def take(self, kept: BoolArray | IntArray) -> "LabelledPredictions":
        """Return some of the images; whole clusters, so that each keeps its chosen image."""
        return LabelledPredictions(
            self.log_probabilities[kept],
            self.labels[kept],
            self.predictions[kept],
            self.clusters[kept],
            self.chosen[kept],
            None if self.classes is None else self.classes[kept],
        )


def hash_fractions(ids: Iterable[str], purpose: str) -> FloatArray:
    """Return a pseudorandom number from 0 to 1 for each id, the same on every machine.

    Different purposes divide the same ids independently.
    """
    texts = (f"dtpt {purpose}:{name}".encode() for name in ids)
    digests = (hashlib.sha256(text).digest()[:8] for text in texts)
    return np.array([int.from_bytes(digest, "big") / 2**64 for digest in digests], np.float64)


def one_per_cluster(clusters: IntArray, fractions: FloatArray) -> BoolArray:
    """Return which images (n,) are chosen: of cluster k the one at `fractions[k]` of its images."""
    sizes = np.bincount(clusters)  # (m,)
    places = np.minimum((fractions * sizes).astype(np.int64), sizes - 1)
    order = np.argsort(clusters, kind="stable")
    chosen = np.zeros(len(clusters), dtype=np.bool_)
    chosen[order[np.cumsum(sizes) - sizes + places]] = True
    return chosen


def temperature_part(clusters: Iterable[str]) -> BoolArray:
    """Return which images are for the temperature and the order of thresholds: about a quarter.

    `clusters` (n,) are the names of their clusters, which stay together.
    """
    return hash_fractions(clusters, "temperature") < TEMPERATURE_FRACTION


@dataclass(frozen=True)
class Scored:
    """Images at one temperature."""

    confidence: FloatArray  # (n,) calibrated, of the predicted class
    lac: FloatArray  # (n, C)
    aps: FloatArray  # (n, C)

    @classmethod
    def at(
        cls,
        temperature: float,
        log_probabilities: npt.ArrayLike,
        *,
        predictions: IntArray,
        ranked: bool = False,
    ) -> Self:
        p = calibrated_probabilities(log_probabilities, temperature)
        confidence = p[np.arange(len(p)), predictions]
        return cls(confidence, lac_scores(p), aps_scores(p, ranked=ranked))

    @classmethod
    def of(cls, rows: LabelledPredictions, temperature: float) -> Self:
        ranked, predictions = rows.classes is not None, rows.predictions
        return cls.at(temperature, rows.log_probabilities, predictions=predictions, ranked=ranked)

    def take(self, kept: BoolArray) -> "Scored":
        return Scored(self.confidence[kept], self.lac[kept], self.aps[kept])


def fit(first: LabelledPredictions, second: LabelledPredictions, *, targets: Targets) -> Fit:
    """Fit temperature and the order of thresholds on one part, sets and threshold on the other.

    Raises:
        CalibrationError: the images do not allow these targets; the message gives the reason.
    """
    check_labelled(first, second)
    temperature = targets.temperature or temperature_of(first)
    apart, tested = (Scored.of(part, temperature) for part in (first, second))
    return fit_scored(temperature, apart.confidence, tested=tested, rows=second, targets=targets)


def fit_scored(
    temperature: float,
    apart: FloatArray,
    *,
    tested: Scored,
    rows: LabelledPredictions,
    targets: Targets,
) -> Fit:
    """Fit sets and threshold; `apart` is the confidence of the first part, `rows` the second."""
    level, one = targets.confidence, rows.chosen
    thresholds = threshold_sequence(apart, rows.cluster_count, error=targets.error, level=level)
    threshold, accepted, wrong, bound = lowest_valid_threshold(
        tested.confidence[one],
        rows.wrong[one],
        thresholds=thresholds,
        error=targets.error,
        level=level,
    )
    return Fit(
        temperature=temperature,
        lac=_limit(tested.lac, rows, targets=targets),
        aps=_limit(tested.aps, rows, targets=targets),
        threshold=threshold,
        accepted=accepted,
        wrong=wrong,
        bound=bound,
    )


def _limit(
    scores: FloatArray, rows: LabelledPredictions, *, targets: Targets
) -> float | tuple[float, ...]:
    of_truth = scores[np.arange(len(rows)), rows.labels]  # (n, C) -> (n,)
    if not targets.class_conditional:
        return score_limit(of_truth, rows.weights, coverage=targets.coverage)
    limits = class_limits(
        of_truth,
        rows.true_classes,
        clusters=rows.clusters,
        classes=scores.shape[1],
        coverage=targets.coverage,
    )
    return tuple(limits.tolist())


def temperature_of(rows: LabelledPredictions) -> float:
    """Return the temperature by maximum likelihood; 1 where the images do not determine one.

    Fewer than ten clusters do not, and neither do predictions that are all right or all wrong.
    """
    if rows.cluster_count < LEAST_FOR_TEMPERATURE or rows.wrong.all() or not rows.wrong.any():
        return 1.0
    return fit_temperature(rows.log_probabilities, rows.labels, weights=rows.weights)


def check_labelled(*parts: LabelledPredictions) -> None:
    """Raise for labelled images on which no guarantee can rest."""
    labels = np.concatenate([part.true_classes for part in parts])
    if not all(map(len, parts)):
        raise CalibrationError(f"{len(labels)} labelled images are too few to calibrate on.")
    if len(np.unique(labels)) == 1:
        raise CalibrationError(
            f"All {len(labels)} labelled images are of class {labels[0]}; expected several of the "
            f"{parts[0].log_probabilities.shape[1]} classes."
        )
    if all(part.wrong.all() for part in parts):
        raise CalibrationError(
            f"None of the {len(labels)} predictions is right: do labels and class list match?"
        )


class Applied(NamedTuple):
    """A fit applied to n images."""

    confidence: FloatArray  # (n,) calibrated, of the predicted class
    members: BoolArray  # (n, C) whether a class is in the image's set
    abstained: BoolArray  # (n,)


def apply(
    fitted: Fit,
    log_probabilities: npt.ArrayLike,
    *,
    predictions: npt.ArrayLike,
    sets: SetKind = "lac",
) -> Applied:
    """Apply a fit to (n, C) log-probabilities of the same method and (n,) predicted classes.

    Example:
        >>> numbers = Fit(
        ...     temperature=1, lac=0.75, aps=0.9, threshold=0.6, accepted=90, wrong=1, bound=0.05
        ... )
        >>> applied = apply(numbers, np.log([[0.5, 0.3, 0.2]]), predictions=[0])
        >>> applied.members.tolist(), applied.abstained.tolist()
        ([[True, True, False]], [True])
    """
    chosen: IntArray = np.asarray(predictions, dtype=np.int64)
    scored = Scored.at(fitted.temperature, log_probabilities, predictions=chosen)
    return apply_scored(fitted, scored, predictions=chosen, sets=sets)


def apply_scored(
    fitted: Fit,
    scored: Scored,
    *,
    predictions: IntArray,
    sets: SetKind,
    classes: IntArray | None = None,
) -> Applied:
    """Do what `apply` does, on scores at the fitted temperature.

    `classes` (n, C) is the class of every column where rows are ranked.
    """
    scores, limit = (scored.lac, fitted.lac) if sets == "lac" else (scored.aps, fitted.aps)
    limits = np.asarray(limit)  # one for all, or (C,)
    members = scores <= (limits if limits.ndim == 0 or classes is None else limits[classes])
    members[np.arange(len(members)), predictions] = True  # which can only raise coverage
    threshold = np.inf if fitted.threshold is None else fitted.threshold
    return Applied(scored.confidence, members, scored.confidence < threshold)
