"""Isotonic regression and the two parts of the Brier score of the confidence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.metrics import top_brier_parts
from dtpt.metrics.isotonic import isotonic_fit

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
def test_fit_equals_the_min_max_formula(pairs: list[tuple[float, bool]]) -> None:
    confidence, correct = split(pairs)
    assert isotonic_fit(confidence, correct) == pytest.approx(min_max_fit(confidence, correct))


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


def test_recalibrated_confidences_have_no_calibration_part() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.beta(4, 2, size=300)
    correct = rng.uniform(size=300) < confidence**2
    fitted = isotonic_fit(confidence, correct)
    assert top_brier_parts(fitted, correct).calibration == pytest.approx(0, abs=1e-12)


def test_many_samples_in_the_worst_order_are_fitted() -> None:
    confidence = np.linspace(0, 1, 50_000)
    correct = confidence < 0.5  # all high confidences wrong: one block in the end
    assert np.unique(isotonic_fit(confidence, correct)).tolist() == [0.5]
