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
    """Result of the test."""

    status: str  # passed, failed, or partial: drawings could not be made or time ran out
    answers: int  # predictions that were compared
    seconds: float
    largest_difference: float  # of any probability, the engine's against Algorithm 1's
    problems: tuple[str, ...]


def self_test(most_seconds: float = MOST_SECONDS) -> SelfTest:
    """Classify a few drawings with the embedded model, on one thread of the CPU.

    Every label must be the expected one, and the engine must agree with Algorithm 1. Without the
    package of drawings a generated image is used, whose label is not checked.

    Args:
        most_seconds: No further image is started after that.
    """
    from dtpt.runs.worker import torch_threads

    started = time.monotonic()
    differences: list[float] = []
    wrong: list[str] = []
    left_out: list[str] = []
    with torch_threads(1):
        classifiers = _classifiers()
        for image, expected in _images(left_out):
            if time.monotonic() - started > most_seconds:
                left_out.append(f"It was stopped after {most_seconds:g} seconds.")
                break
            for classifier in classifiers:
                name = classifier.method.name
                label, difference = _compare(classifier, image)
                differences.append(difference)
                if expected is not None and label != expected:
                    wrong.append(f"{name} predicts {label!r} for the drawing of a {expected}.")
                if not difference <= LARGEST_DIFFERENCE:  # also NaN
                    wrong.append(f"{name}: engine and Algorithm 1 differ by {difference:.1e}.")
    return SelfTest(
        status="failed" if wrong else "partial" if left_out else "passed",
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


def _images(left_out: list[str]) -> "Iterator[tuple[Image, str | None]]":
    """Yield images with their class; what cannot be drawn is noted in `left_out`."""
    from dtpt.data.openmoji import OpenMojiRef, require_packages
    from dtpt.errors import DatasetError

    try:
        require_packages()
    except DatasetError as error:
        left_out.append(f"No drawing was classified. {error}")
        yield _noise(), None
        return
    for codepoint, name in DRAWINGS.items():
        yield OpenMojiRef(codepoint, PRESENTATION).open(), name


def _noise() -> "Image":
    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (128, 128, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def _compare(classifier: "Classifier", image: "Image") -> tuple[str, float]:
    """Return the engine's label, and how far its probabilities are from Algorithm 1's."""
    from dtpt.methods.algorithm_1 import algorithm_1

    features = classifier.view_features(image)
    prediction = classifier.tune(features)
    reference = algorithm_1(
        classifier.model, classifier.predictor.prompts, views=features, method=classifier.method
    )
    return prediction.label, float(abs(reference.numpy() - prediction.probabilities).max())
