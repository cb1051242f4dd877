"""What is known about an answer: how others of its confidence turned out, and what is promised.

Both hold only for the very same subject: model, method, weight, class list, prompt, views, tuning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dtpt.calibration import Promise, Subject
from dtpt.metrics import binomial_interval
from dtpt.prediction.answers import promised_about
from dtpt.runs import open_run
from dtpt.runs.promised import subject_of
from dtpt.tuning import Outcome
from dtpt.web.schemas import Evidence, Promised

NEAREST = 100  # answers that a statement is made of
LEAST = 30  # fewer say too little


class EvidenceSource(Protocol):
    """Something that knows how answers turned out."""

    @property
    def names(self) -> Sequence[str]:
        """What it knows about, for people."""
        ...

    def about(self, subject: Subject, confidence: float) -> list[Evidence]:
        """Return what is known about an answer; nothing if nothing fits."""
        ...


@dataclass(frozen=True)
class _Answers:
    """The answers of one method on one data set of a run."""

    dataset: str
    subject: Subject
    confidence: npt.NDArray[np.float64]
    correct: npt.NDArray[np.bool_]


class RunEvidence:
    """Evidence from one run; its rows are read once.

    Of several seeds the first counts: the same picture seen twice is not two pieces of evidence.

    Args:
        path: folder or file of the run.

    Raises:
        RunError: there is no readable run.
    """

    def __init__(self, path: Path) -> None:
        with open_run(path) as run:
            first = [cell for cell in run.cells if cell.seed == run.spec.seeds[0]]
            self._answers = [
                _Answers(cell.dataset, subject_of(run, cell), rows.confidence, rows.correct)
                for cell in first
                for rows in (run.rows_of(cell),)
            ]

    @property
    def names(self) -> tuple[str, ...]:
        """The run's data sets."""
        return tuple(dict.fromkeys(answers.dataset for answers in self._answers))

    def about(self, subject: Subject, confidence: float) -> list[Evidence]:
        """Return one statement per data set that was answered in the same way."""
        return [
            _near(answers, confidence)
            for answers in self._answers
            if len(answers.confidence) >= LEAST and _same(answers.subject, subject)
        ]


def _same(first: Subject, second: Subject) -> bool:
    """Tell whether answers compare; the order of the classes does not matter."""
    return not _by_name(first).differences(_by_name(second))


def _by_name(subject: Subject) -> Subject:
    return subject.model_copy(update={"classes": tuple(sorted(subject.classes))})


def _near(answers: _Answers, confidence: float) -> Evidence:
    """Count the right ones among the answers that are nearest in confidence."""
    distance = np.abs(answers.confidence - confidence)
    chosen = np.argsort(distance, kind="stable")[:NEAREST]
    confidences = answers.confidence[chosen]
    right, count = int(answers.correct[chosen].sum()), len(chosen)
    low, high = binomial_interval(right, count)
    return Evidence(
        source=answers.dataset,
        right=right,
        count=count,
        least_confidence=float(confidences.min()),
        most_confidence=float(confidences.max()),
        mean_confidence=float(confidences.mean()),
        low=low,
        high=high,
    )


def promised(
    promises: Sequence[Promise], subject: Subject, *, outcome: Outcome, classes: Sequence[str]
) -> Promised | None:
    """Return what the first promise that is about this subject says; None if none is."""
    for promise in promises:
        if promise.subject.differences(subject):
            continue
        index = int(outcome.probabilities.argmax())
        confidence, members, answered = promised_about(promise, outcome.logits, index=index)
        return Promised(
            source=promise.basis.dataset,
            pictures=promise.basis.pictures,
            confidence=confidence,
            prediction_set=[classes[k] for k in members],
            is_answered=answered,
            coverage=promise.levels.coverage,
            error=promise.levels.error,
            level=promise.levels.confidence,
            threshold=promise.fit.threshold,
            assumption=promise.assumption,
        )
    return None
