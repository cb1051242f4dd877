"""What is known about answers of a given confidence, from finished runs of the same set-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dtpt.metrics import binomial_interval
from dtpt.runs import open_run
from dtpt.runs.spec import RunSpec
from dtpt.tuning.settings import TuningSettings
from dtpt.views import ViewRecipe
from dtpt.web.schemas import Evidence

NEAREST = 100  # answers that a statement is made of
LEAST = 30  # fewer say too little


@dataclass(frozen=True)
class SetUp:
    """Everything that must be the same for an old answer to say something about a new one."""

    fingerprint: str
    classes: tuple[str, ...]
    template: str
    recipe: ViewRecipe
    tuning: TuningSettings


class EvidenceSource(Protocol):
    """Something that knows how answers turned out."""

    @property
    def names(self) -> Sequence[str]:
        """What it knows about, for people."""
        ...

    def about(
        self, setup: SetUp, *, method: str, lambda_: float | None, confidence: float
    ) -> list[Evidence]:
        """Return what is known about an answer; nothing if nothing fits."""
        ...


@dataclass(frozen=True)
class _Answers:
    """The answers of one method on one data set of a run."""

    dataset: str
    setup: SetUp
    method: str
    lambda_: float | None
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
            cells = [cell for cell in run.cells if cell.seed == run.spec.seeds[0]]
            self._answers = []
            for cell in cells:
                rows = run.rows_of(cell)
                setup = _setup(run.spec, cell.dataset, classes=run.classes(cell.dataset))
                self._answers.append(
                    _Answers(
                        cell.dataset,
                        setup,
                        cell.method,
                        cell.lambda_,
                        rows.confidence,
                        rows.correct,
                    )
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The run's data sets."""
        return tuple(dict.fromkeys(answers.dataset for answers in self._answers))

    def about(
        self, setup: SetUp, *, method: str, lambda_: float | None, confidence: float
    ) -> list[Evidence]:
        """Return one statement per data set that was answered in the same set-up."""
        return [
            _near(answers, confidence)
            for answers in self._answers
            if (answers.method, answers.lambda_) == (method, lambda_)
            and same_setup(answers.setup, setup)
            and len(answers.confidence) >= LEAST
        ]


def _setup(spec: RunSpec, dataset: str, *, classes: Sequence[str]) -> SetUp:
    return SetUp(
        fingerprint=spec.model.fingerprint,
        classes=tuple(classes),
        template=spec.template if spec.context is None else "",  # a trained context has no words
        recipe=ViewRecipe.model_validate(spec.dataset(dataset).views),
        tuning=TuningSettings.model_validate(spec.tuning),
    )


def same_setup(first: SetUp, second: SetUp) -> bool:
    """Tell whether two set-ups give the same answers; the order of the classes does not matter."""
    return (
        first.fingerprint == second.fingerprint
        and first.template == second.template
        and first.recipe == second.recipe
        and first.tuning == second.tuning
        and _plain(first.classes) == _plain(second.classes)
    )


def _plain(classes: Sequence[str]) -> list[str]:
    return sorted(name.replace("_", " ") for name in classes)


def _near(answers: _Answers, confidence: float) -> Evidence:
    """Count the right ones among the answers that are nearest in confidence."""
    distance = np.abs(answers.confidence - confidence)
    chosen = np.argsort(distance, kind="stable")[:NEAREST]
    right, count = int(answers.correct[chosen].sum()), len(chosen)
    low, high = binomial_interval(right, count)
    return Evidence(
        source=answers.dataset,
        right=right,
        count=count,
        least_confidence=float(answers.confidence[chosen].min()),
        most_confidence=float(answers.confidence[chosen].max()),
        low=low,
        high=high,
    )
