"""Fit a promise to labelled pictures, and say what it means for new ones."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dtpt.calibration.abstention import most_lenient, threshold_sequence
from dtpt.calibration.conformal import score_limit
from dtpt.calibration.scores import FloatArray, aps_scores, calibrated, lac_scores
from dtpt.calibration.splitting import BoolArray, IntArray, Labelled
from dtpt.errors import PromiseError, explain
from dtpt.metrics import fit_temperature

SetKind = Literal["lac", "aps"]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]

# Fewer pictures than this do not tell a temperature.
LEAST_FOR_TEMPERATURE = 10


class Frozen(BaseModel):
    """A record that is stored as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Levels(Frozen):
    """What is asked for.

    Attributes:
        coverage: share of new pictures whose set holds the true class, at least.
        error: share of wrong answers among the given ones, at most.
        confidence: how sure the promise on errors is.
    """

    coverage: Share = 0.9
    error: Share = 0.05
    confidence: Share = 0.95

    @classmethod
    def checked(cls, *, coverage: float, error: float, confidence: float) -> Self:
        """Return the levels, or say which of them makes no sense.

        Example:
            >>> Levels.checked(coverage=0.9, error=0.1, confidence=0.95).error
            0.1
        """
        try:
            return cls(coverage=coverage, error=error, confidence=confidence)
        except ValidationError as error_:
            raise PromiseError(f"{explain(error_)}; use a value such as 0.9.") from None


class Fit(Frozen):
    """The numbers behind a promise.

    Attributes:
        temperature: divides log-probabilities before anything else.
        lac: largest score that a LAC set lets in.
        aps: largest score that an APS set lets in.
        threshold: least calibrated confidence of an answer; None: no answer is ever given.
        given: answers at or above it among the labelled pictures it was tested on.
        wrong: those of them that are wrong.
        bound: upper bound of the share of wrong answers among new ones.
    """

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    lac: Annotated[float, Field(ge=0, le=1)]
    aps: Annotated[float, Field(ge=0, le=1)]
    threshold: Annotated[float, Field(ge=0, le=1)] | None
    given: Annotated[int, Field(ge=0)]
    wrong: Annotated[int, Field(ge=0)]
    bound: Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Scored:
    """Pictures at one temperature.

    Attributes:
        confidence: (n,) calibrated, of the predicted class.
        lac: (n, C) scores of all classes.
        aps: (n, C) scores of all classes.
    """

    confidence: FloatArray
    lac: FloatArray
    aps: FloatArray

    @classmethod
    def at(
        cls,
        log_probabilities: npt.ArrayLike,
        temperature: float,
        *,
        predictions: IntArray,
        ranked: bool = False,
    ) -> Self:
        """Score pictures; `ranked` says that their classes stand by falling probability."""
        p = calibrated(log_probabilities, temperature)
        confidence = p[np.arange(len(p)), predictions]
        return cls(confidence, lac_scores(p), aps_scores(p, ranked=ranked))

    @classmethod
    def of(cls, rows: Labelled, temperature: float) -> Self:
        """Score labelled pictures."""
        return cls.at(
            rows.log_probabilities,
            temperature,
            predictions=rows.predictions,
            ranked=rows.is_ranked,
        )

    def take(self, chosen: IntArray) -> "Scored":
        """Return some of the pictures."""
        return Scored(self.confidence[chosen], self.lac[chosen], self.aps[chosen])


@dataclass(frozen=True)
class Statement:
    """What a promise says about n pictures.

    Attributes:
        confidence: (n,) calibrated, of the predicted class.
        members: (n, C) whether a class is in the picture's set.
        answered: (n,) whether an answer is given.
    """

    confidence: FloatArray
    members: BoolArray
    answered: BoolArray


def fit(first: Labelled, second: Labelled, *, levels: Levels) -> Fit:
    """Fit temperature and the order of thresholds on one part, sets and threshold on the other.

    Args:
        first: pictures for what must be known before the second part is looked at.
        second: pictures that prove the promises.
        levels: what is asked for.

    Raises:
        PromiseError: the pictures cannot carry a promise; the message says why.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = 6 * rng.normal(size=(2000, 4))
        >>> labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        >>> rows = Labelled.of(
        ...     logits - np.logaddexp.reduce(logits, axis=1, keepdims=True),
        ...     labels,
        ...     predictions=logits.argmax(axis=1),
        ... )
        >>> found = fit(rows.take(np.arange(500)), rows.take(np.arange(500, 2000)), levels=Levels())
        >>> round(found.temperature), found.threshold is not None
        (1, True)
    """
    check_labelled(first, second)
    temperature = temperature_of(first)
    apart, tested = (Scored.of(part, temperature) for part in (first, second))
    return fit_scored(temperature, apart.confidence, tested=tested, rows=second, levels=levels)


def fit_scored(
    temperature: float, apart: FloatArray, *, tested: Scored, rows: Labelled, levels: Levels
) -> Fit:
    """Fit sets and threshold, once the temperature is known.

    Args:
        temperature: from the first part.
        apart: (m,) confidence of the first part.
        tested: scores of the second part.
        rows: the second part.
        levels: what is asked for.
    """
    row = np.arange(len(rows))
    order = threshold_sequence(apart, len(rows), error=levels.error, level=levels.confidence)
    found = most_lenient(
        tested.confidence,
        rows.wrong,
        thresholds=order,
        error=levels.error,
        level=levels.confidence,
    )
    return Fit(
        temperature=temperature,
        lac=score_limit(tested.lac[row, rows.labels], levels.coverage),
        aps=score_limit(tested.aps[row, rows.labels], levels.coverage),
        threshold=found.value,
        given=found.given,
        wrong=found.wrong,
        bound=found.bound,
    )


def temperature_of(rows: Labelled) -> float:
    """Return the temperature by log-likelihood; 1 where the pictures do not tell one.

    Fewer than ten pictures do not, and neither do answers that are all right or all wrong.

    Example:
        >>> temperature_of(Labelled.of(np.log([[0.8, 0.2]]), [0], predictions=[0]))
        1.0
    """
    if len(rows) < LEAST_FOR_TEMPERATURE or rows.wrong.all() or not rows.wrong.any():
        return 1.0
    return fit_temperature(rows.log_probabilities, rows.labels)


def state(
    found: Fit,
    log_probabilities: npt.ArrayLike,
    *,
    predictions: npt.ArrayLike,
    sets: SetKind = "lac",
) -> Statement:
    """Say what a promise means for pictures: calibrated confidence, set, answer or none.

    The predicted class belongs to every set, which can only raise coverage.

    Args:
        found: the numbers behind the promise.
        log_probabilities: (n, C) of the same method on other pictures.
        predictions: (n,) predicted classes.
        sets: which of the two kinds of sets.

    Example:
        >>> numbers = Fit(
        ...     temperature=1, lac=0.75, aps=0.9, threshold=0.6, given=90, wrong=1, bound=0.05
        ... )
        >>> said = state(numbers, np.log([[0.5, 0.3, 0.2]]), predictions=[0])
        >>> said.members.tolist(), said.answered.tolist()
        ([[True, True, False]], [False])
    """
    chosen: IntArray = np.asarray(predictions, dtype=np.int64)
    scored = Scored.at(log_probabilities, found.temperature, predictions=chosen)
    return state_scored(found, scored, predictions=chosen, sets=sets)


def state_scored(
    found: Fit, scored: Scored, *, predictions: IntArray, sets: SetKind = "lac"
) -> Statement:
    """Do what `state` does, on scores at the promise's temperature."""
    limit = {"lac": found.lac, "aps": found.aps}[sets]
    members = {"lac": scored.lac, "aps": scored.aps}[sets] <= limit
    members[np.arange(len(members)), predictions] = True
    answered = np.zeros(len(members), np.bool_)
    if found.threshold is not None:
        answered = scored.confidence >= found.threshold
    return Statement(scored.confidence, members, answered)


def check_labelled(first: Labelled, second: Labelled) -> None:
    """Refuse labelled pictures on which no promise can rest."""
    count = len(first) + len(second)
    labels = np.concatenate([first.labels, second.labels])
    if count == 0 or len(second) == 0 or len(first) == 0:
        raise PromiseError(f"{count} labelled pictures are too few for any promise.")
    if len(np.unique(labels)) == 1:
        raise PromiseError(
            f"All {count} labelled pictures are of class {labels[0]}: a promise for "
            f"{first.log_probabilities.shape[1]} classes cannot rest on one."
        )
    if first.wrong.all() and second.wrong.all():
        raise PromiseError(
            f"None of the {count} answers is right: labels and class list hardly belong together."
        )
