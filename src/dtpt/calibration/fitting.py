"""Fit temperature, prediction sets and threshold to labelled images, and apply them to new ones."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dtpt.calibration.conformal import (
    FloatArray,
    Stored,
    aps_scores,
    as_stored,
    calibrated_probabilities,
    falling,
    lac_scores,
    score_limit,
)
from dtpt.calibration.selective import lowest_valid_threshold, threshold_sequence
from dtpt.errors import CalibrationError, explain
from dtpt.metrics import fit_temperature

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
SetKind = Literal["lac", "aps"]
Fraction = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

# Fewer images do not determine a temperature.
LEAST_FOR_TEMPERATURE = 10
TEMPERATURE_FRACTION = 0.25


class Record(BaseModel):
    """A part of a calibration file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Targets(Record):
    """What a calibration shall guarantee."""

    coverage: Fraction = 0.9  # of new images whose set contains the true class, at least
    error: Fraction = 0.05  # of accepted predictions that are wrong, at most
    confidence: Fraction = 0.95  # of the guarantee on errors

    @classmethod
    def checked(cls, *, coverage: float, error: float, confidence: float) -> Self:
        """Return the targets, or raise with the name of the one that is not between 0 and 1."""
        try:
            return cls(coverage=coverage, error=error, confidence=confidence)
        except ValidationError as invalid:
            raise CalibrationError(f"Invalid target {explain(invalid)}; use e.g. 0.9.") from None


class Fit(Record):
    """The fitted numbers."""

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    lac: Annotated[float, Field(ge=0, le=1)]  # largest score that a LAC set admits
    aps: Annotated[float, Field(ge=0, le=1)]  # largest score that an APS set admits
    threshold: Annotated[float, Field(ge=0, le=1)] | None  # None: always abstain
    accepted: Annotated[int, Field(ge=0)]  # labelled images at or above it
    wrong: Annotated[int, Field(ge=0)]  # wrong predictions among them
    bound: Annotated[float, Field(ge=0, le=1)]  # upper bound of the error rate on new images


@dataclass(frozen=True)
class LabelledPredictions:
    """Predictions of one method on images whose class is known."""

    log_probabilities: Stored  # (n, C), with the digits that runs store
    labels: IntArray  # (n,)
    predictions: IntArray  # (n,)
    is_ranked: bool = False  # the classes of each row are numbered by falling probability

    @classmethod
    def of(
        cls, log_probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, predictions: npt.ArrayLike
    ) -> "LabelledPredictions":
        """Check lengths and class indices."""
        rows = as_stored(log_probabilities)
        truth, predicted = np.asarray(labels), np.asarray(predictions)
        if not (len(rows) == len(truth) == len(predicted)):
            raise CalibrationError(
                f"{len(rows)} rows of probabilities, {len(truth)} labels and {len(predicted)} "
                "predictions; expected equal numbers."
            )
        for name, values in (("label", truth), ("prediction", predicted)):
            outside = (values < 0) | (values >= rows.shape[1])
            if outside.any():
                value = values[outside][0]
                raise CalibrationError(f"A {name} is {value}; expected 0 to {rows.shape[1] - 1}.")
        return cls(rows, truth.astype(np.int64), predicted.astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def wrong(self) -> BoolArray:
        """(n,) whether the prediction is not the label."""
        return np.not_equal(self.predictions, self.labels)

    def ranked(self) -> "LabelledPredictions":
        """Return the same predictions with the classes of each row numbered by probability.

        No temperature changes that order, and no score depends on the numbering: what is fitted
        many times is then sorted once.
        """
        order = falling(self.log_probabilities)  # (n, C)
        rank = np.argsort(order, axis=1)
        row = np.arange(len(self))
        log_probabilities = np.take_along_axis(self.log_probabilities, order, axis=1)
        labels, predictions = rank[row, self.labels], rank[row, self.predictions]
        return LabelledPredictions(log_probabilities, labels, predictions, is_ranked=True)

    def take(self, chosen: BoolArray | IntArray) -> "LabelledPredictions":
        """Return some of the images."""
        return LabelledPredictions(
            self.log_probabilities[chosen],
            self.labels[chosen],
            self.predictions[chosen],
            is_ranked=self.is_ranked,
        )


def hash_fractions(ids: Iterable[str], purpose: str) -> FloatArray:
    """Return a pseudorandom number from 0 to 1 for each id, the same on every machine.

    Different purposes divide the same ids independently.
    """
    texts = (f"dtpt {purpose}:{name}".encode() for name in ids)
    digests = (hashlib.sha256(text).digest()[:8] for text in texts)
    return np.array([int.from_bytes(digest, "big") / 2**64 for digest in digests], np.float64)


def temperature_part(ids: Iterable[str]) -> BoolArray:
    """Return which samples are for the temperature and the order of thresholds: about a quarter."""
    return hash_fractions(ids, "temperature") < TEMPERATURE_FRACTION


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
        ranked, predictions = rows.is_ranked, rows.predictions
        return cls.at(temperature, rows.log_probabilities, predictions=predictions, ranked=ranked)

    def take(self, chosen: IntArray) -> "Scored":
        return Scored(self.confidence[chosen], self.lac[chosen], self.aps[chosen])


def fit(first: LabelledPredictions, second: LabelledPredictions, *, targets: Targets) -> Fit:
    """Fit temperature and the order of thresholds on one part, sets and threshold on the other.

    Raises:
        CalibrationError: the images do not allow these targets; the message gives the reason.
    """
    check_labelled(first, second)
    temperature = temperature_of(first)
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
    row = np.arange(len(rows))
    level = targets.confidence
    thresholds = threshold_sequence(apart, len(rows), error=targets.error, level=level)
    threshold, accepted, wrong, bound = lowest_valid_threshold(
        tested.confidence, rows.wrong, thresholds=thresholds, error=targets.error, level=level
    )
    return Fit(
        temperature=temperature,
        lac=score_limit(tested.lac[row, rows.labels], targets.coverage),
        aps=score_limit(tested.aps[row, rows.labels], targets.coverage),
        threshold=threshold,
        accepted=accepted,
        wrong=wrong,
        bound=bound,
    )


def temperature_of(rows: LabelledPredictions) -> float:
    """Return the temperature by maximum likelihood; 1 where the images do not determine one.

    Fewer than ten images do not, and neither do predictions that are all right or all wrong.
    """
    if len(rows) < LEAST_FOR_TEMPERATURE or rows.wrong.all() or not rows.wrong.any():
        return 1.0
    return fit_temperature(rows.log_probabilities, rows.labels)


def check_labelled(first: LabelledPredictions, second: LabelledPredictions) -> None:
    """Raise for labelled images on which no guarantee can rest."""
    count = len(first) + len(second)
    labels = np.concatenate([first.labels, second.labels])
    if len(second) == 0 or len(first) == 0:
        raise CalibrationError(f"{count} labelled images are too few to calibrate on.")
    if len(np.unique(labels)) == 1:
        raise CalibrationError(
            f"All {count} labelled images are of class {labels[0]}; expected several of the "
            f"{first.log_probabilities.shape[1]} classes."
        )
    if first.wrong.all() and second.wrong.all():
        raise CalibrationError(
            f"None of the {count} predictions is right: do labels and class list match?"
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


def apply_scored(fitted: Fit, scored: Scored, *, predictions: IntArray, sets: SetKind) -> Applied:
    """Do what `apply` does, on scores at the fitted temperature."""
    scores, limit = (scored.lac, fitted.lac) if sets == "lac" else (scored.aps, fitted.aps)
    members = scores <= limit
    members[np.arange(len(members)), predictions] = True  # which can only raise coverage
    threshold = np.inf if fitted.threshold is None else fitted.threshold
    return Applied(scored.confidence, members, scored.confidence < threshold)
