"""A short test of an installation: a few drawings, two methods, the engine beside Algorithm 1."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

    from dtpt.prediction import Classifier

MOST_SECONDS = 20.0
LARGEST_DIFFERENCE = 1e-4  # of a probability: rounding gives less than 1e-6
METHODS = ("tpt", "d-tpt")
VIEWS = 8
CLASSES = ("bicycle", "camel", "key", "owl", "pizza", "sailboat", "umbrella", "violin")
DRAWINGS = {"1F42B": "camel", "1F355": "pizza", "1F989": "owl", "1F511": "key"}
PRESENTATION = "noisy"


@dataclass(frozen=True)
class SelfTest:
    """What came out.

    Attributes:
        status: "passed", "failed", or "partly" when the drawings could not be made or time ran out.
        answers: How many answers were compared.
        seconds: That it took.
        largest_difference: Of any probability, the engine's against Algorithm 1's.
        problems: What is wrong, or was left out, a sentence each.
    """

    status: str
    answers: int
    seconds: float
    largest_difference: float
    problems: tuple[str, ...]


def self_test(most_seconds: float = MOST_SECONDS) -> SelfTest:
    """Classify a few drawings with the embedded model, on one thread of the CPU.

    Every answer must be the expected one, and the engine must agree with Algorithm 1. Without the
    package of drawings a generated picture stands in, whose label nobody expects.

    Args:
        most_seconds: No further picture is begun after that.
    """
    from dtpt.bench.machine import torch_threads

    started = time.monotonic()
    differences: list[float] = []
    wrong: list[str] = []
    left_out: list[str] = []
    with torch_threads(1):
        classifiers = _classifiers()
        for picture, expected in _pictures(left_out):
            if time.monotonic() - started > most_seconds:
                left_out.append(f"It was stopped after {most_seconds:g} seconds.")
                break
            for classifier in classifiers:
                label, difference = _compare(classifier, picture)
                differences.append(difference)
                wrong += _judge(
                    classifier.method.name, label, expected=expected, difference=difference
                )
    return SelfTest(
        status="failed" if wrong else "partly" if left_out else "passed",
        answers=len(differences),
        seconds=round(time.monotonic() - started, 2),
        largest_difference=max(differences, default=0.0),
        problems=(*wrong, *left_out),
    )


def _classifiers() -> "list[Classifier]":
    from dtpt.clip.loading import load_model
    from dtpt.prediction import Classifier

    model = load_model("pocket", device="cpu")
    return [Classifier(model, CLASSES, method=name, views=VIEWS) for name in METHODS]


def _pictures(left_out: list[str]) -> "Iterator[tuple[Image, str | None]]":
    """Yield pictures with what they show; what cannot be drawn is told in `left_out`."""
    from dtpt.bench.inputs import photograph
    from dtpt.data.openmoji import OpenMojiRef, require_packages
    from dtpt.errors import DatasetError

    try:
        require_packages()
    except DatasetError as error:
        left_out.append(f"No drawing was classified. {error}")
        yield photograph(128, 128), None
        return
    for codepoint, name in DRAWINGS.items():
        yield OpenMojiRef(codepoint, PRESENTATION).open(), name


def _compare(classifier: "Classifier", picture: "Image") -> tuple[str, float]:
    """Return the engine's label, and how far its probabilities are from Algorithm 1's."""
    from dtpt.methods.algorithm_1 import algorithm_1

    features = classifier.view_features(picture)
    answer = classifier.tune(features)
    written = algorithm_1(
        classifier.model, classifier.tuner.prompts, views=features, method=classifier.method
    )
    return answer.label, float(abs(written.numpy() - answer.probabilities).max())


def _judge(method: str, label: str, *, expected: str | None, difference: float) -> list[str]:
    found = []
    if expected is not None and label != expected:
        found.append(f"{method} takes the drawing of a {expected} for a {label}.")
    if not difference <= LARGEST_DIFFERENCE:  # also NaN
        found.append(
            f"{method}: the engine and Algorithm 1 differ by {difference:.1e} on "
            f"{expected or 'a generated picture'}; at most {LARGEST_DIFFERENCE:.0e} is rounding."
        )
    return found
