"""Evidence about a prediction: accuracy at similar confidence in stored runs, and calibrations.

Both hold only for the same setup: model, method, λ, class list, prompt, views, tuning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dtpt.calibration import Calibration, Setup
from dtpt.metrics import binomial_interval
from dtpt.runs import open_run
from dtpt.runs.calibrate import setup_of
from dtpt.tuning import Outcome
from dtpt.web.schemas import Calibrated, Evidence

NEAREST = 100  # predictions behind one piece of evidence
LEAST = 30  # fewer say too little


class EvidenceSource(Protocol):
    """Something that knows how answers turned out."""

    @property
    def names(self) -> Sequence[str]:
        """What it knows about, for people."""
        ...

    def about(self, setup: Setup, confidence: float) -> list[Evidence]:
        """Return what is known about an answer; nothing if nothing fits."""
        ...


@dataclass(frozen=True)
class _Answers:
    """The answers of one method on one data set of a run."""

    dataset: str
    setup: Setup
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
                _Answers(cell.dataset, setup_of(run, cell), rows.confidence, rows.correct)
                for cell in first
                for rows in (run.rows_of(cell),)
            ]

    @property
    def names(self) -> tuple[str, ...]:
        """The run's data sets."""
        return tuple(dict.fromkeys(answers.dataset for answers in self._answers))

    def about(self, setup: Setup, confidence: float) -> list[Evidence]:
        """Return one statement per data set that was answered in the same way."""
        return [
            _near(answers, confidence)
            for answers in self._answers
            if len(answers.confidence) >= LEAST and _same(answers.setup, setup)
        ]


def _same(first: Setup, second: Setup) -> bool:
    """Tell whether answers compare; the order of the classes does not matter."""
    return not _by_name(first).differences(_by_name(second))


def _by_name(setup: Setup) -> Setup:
    return setup.model_copy(update={"classes": tuple(sorted(setup.classes))})


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


def calibrated(
    calibrations: Sequence[Calibration], setup: Setup, *, outcome: Outcome, classes: Sequence[str]
) -> Calibrated | None:
    """Apply the first calibration that is for this setup; None if none is."""
    for calibration in calibrations:
        if calibration.setup.differences(setup):
            continue
        index = int(outcome.probabilities.argmax())
        applied = calibration.apply_one(outcome.logits, index=index)
        return Calibrated(
            source=calibration.provenance.dataset,
            images=calibration.provenance.images,
            confidence=applied.confidence,
            prediction_set=[classes[k] for k in applied.prediction_set],
            abstained=applied.abstained,
            coverage=calibration.targets.coverage,
            error=calibration.targets.error,
            level=calibration.targets.confidence,
            threshold=calibration.fit.threshold,
            assumption=calibration.assumption,
        )
    return None
