"""Brier score, its two parts, and log-likelihood against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.metrics import brier, nll, top_brier_parts

cheap = settings(max_examples=300, deadline=None, database=None)
samples = st.lists(
    st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.8, 0.9]) | st.floats(0, 1), st.booleans()),
    min_size=1,
    max_size=15,
)


def split(pairs: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([c for c, _ in pairs]), np.array([y for _, y in pairs])


def min_max_fit(confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """The other definition: the largest, over starts, of the smallest mean, over ends."""
    levels = np.unique(confidence)

    def mean(low: float, high: float) -> float:
        return float(correct[(confidence >= low) & (confidence <= high)].mean())

    def value(at: float) -> float:
        starts, ends = levels[levels <= at], levels[levels >= at]
        return max(min(mean(low, high) for high in ends) for low in starts)

    return np.array([value(c) for c in confidence])


@cheap
@given(samples)
def test_refinement_is_the_error_of_the_min_max_fit(pairs: list[tuple[float, bool]]) -> None:
    confidence, correct = split(pairs)
    expected = ((correct - min_max_fit(confidence, correct)) ** 2).mean()
    assert top_brier_parts(confidence, correct).refinement == pytest.approx(expected, abs=1e-12)


@cheap
@given(samples, st.randoms())
def test_parts_add_up_and_do_not_depend_on_the_order(pairs, random) -> None:
    parts = top_brier_parts(*split(pairs))
    assert parts.calibration + parts.refinement == pytest.approx(parts.score, abs=1e-12)
    assert 0 <= parts.refinement <= parts.score + 1e-12
    random.shuffle(pairs)
    again = top_brier_parts(*split(pairs))
    assert again.refinement == pytest.approx(parts.refinement, abs=1e-12)


def test_a_monotone_change_of_scale_moves_calibration_only() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.beta(4, 2, size=500)
    correct = rng.uniform(size=500) < confidence
    honest, boastful = (
        top_brier_parts(confidence, correct),
        top_brier_parts(confidence**0.2, correct),
    )
    assert boastful.refinement == pytest.approx(honest.refinement)
    assert boastful.calibration > honest.calibration + 0.01


def test_many_samples_in_the_worst_order_are_fitted() -> None:
    confidence = np.linspace(0, 1, 50_000)
    correct = confidence < 0.5  # all high confidences wrong: one block in the end
    assert top_brier_parts(confidence, correct).refinement == pytest.approx(0.25, abs=1e-12)


def test_brier_and_nll_equal_their_definitions() -> None:
    rng = np.random.default_rng(9)
    probabilities, labels = rng.dirichlet(np.full(5, 0.5), size=200), rng.integers(5, size=200)
    squares = ((probabilities - np.eye(5)[labels]) ** 2).sum(axis=1)
    logs = [math.log(row[k]) for row, k in zip(probabilities, labels, strict=True)]
    assert brier(probabilities, labels) == pytest.approx(squares.mean(), abs=1e-14)
    assert nll(probabilities, labels) == pytest.approx(-np.mean(logs), abs=1e-12)


def test_a_zero_probability_of_the_label_counts_as_the_floor() -> None:
    assert nll([[1.0, 0.0]], [1]) == pytest.approx(-math.log(1e-12))
