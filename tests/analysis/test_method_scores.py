"""Efficient points, correlations and scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.analysis.scores import (
    TEMPERATURES,
    DispersionPoint,
    MethodScore,
    correlation,
    dispersion_scatter,
    efficient,
    match_confidence,
    score_method,
    without_dominant,
)

coarse = st.integers(0, 5).map(lambda n: n / 5)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(coarse, coarse), max_size=12))
def test_efficient_points_are_those_that_nothing_dominates(points):
    def dominated(point):
        return any(
            other[0] >= point[0] and other[1] <= point[1] and other != point for other in points
        )

    expected = [not dominated(point) for point in points]
    assert efficient([a for a, _ in points], [e for _, e in points]) == expected


def test_scatter_correlates_over_all_and_within_data_sets():
    # within each set ECE falls with ATFD, between the sets it rises
    values = [("a", 0.1, 0.12), ("a", 0.2, 0.11), ("b", 0.6, 0.52), ("b", 0.7, 0.51)]
    points = [DispersionPoint(name, "{}", "tpt", atfd, ece) for name, atfd, ece in values]
    found = dispersion_scatter(points)
    expected = np.corrcoef([v[1] for v in values], [v[2] for v in values])[0, 1]
    assert found.pearson == pytest.approx(expected)
    assert found.pearson_within == pytest.approx(-1.0)
    assert found.spearman == pytest.approx(0.6)


@pytest.mark.parametrize("both", [[[1.0, 2.0], [1.0, 2.0]], [[0.1, 0.1, 0.1], [1.0, 2.0, 3.0]]])
def test_no_correlation_without_points_or_spread(both):
    assert correlation(np.array(both)) is None


def test_nothing_to_correlate_is_no_error():
    assert dispersion_scatter([]).pearson is None


def test_scores_are_accuracy_and_gap_to_confidence():
    correct = np.array([True, True, False, False])
    found = score_method("d-tpt@1e5", confidence=np.full(4, 0.9), correct=correct)
    assert (found.label, found.images, found.accuracy) == ("d-tpt@1e5", 4, 0.5)
    assert found.ece == pytest.approx(0.4)
    assert found.confidence == pytest.approx(0.9)


def test_without_dominant_needs_both_variants():
    labels = ["zero-shot", "d-tpt@5", "tpt", "zero-shot+no-idd", "zero-shot+no-tdd", "tpt+no-tdd"]
    labels += ["d-tpt+no-tdd@5", "d-tpt+no-idd@5", "d-tpt+no-idd@6"]
    found = without_dominant([MethodScore(label, 10, 0.5, 0.1, 0.5) for label in labels])
    assert [[score.label for score in row] for row in found] == [
        ["zero-shot", "zero-shot+no-tdd", "zero-shot+no-idd"],
        ["d-tpt@5", "d-tpt+no-tdd@5", "d-tpt+no-idd@5"],
    ]


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.83])
def test_the_temperature_behind_a_mean_confidence_is_found(temperature):
    logits = np.random.default_rng(0).normal(0, 3, size=(300, 7))

    def confidence(value):
        scaled = np.exp(logits / value)
        return (scaled / scaled.sum(axis=1, keepdims=True)).max(axis=1)

    curves = np.stack([confidence(value) for value in TEMPERATURES], axis=1)
    correct = np.random.default_rng(1).uniform(size=300) < 0.6
    target = confidence(temperature)
    found = match_confidence("x", float(target.mean()), curves=curves, correct=correct)
    assert found.temperature == pytest.approx(temperature, rel=1e-3)
    expected = score_method("x", confidence=target, correct=correct).ece
    assert found.ece == pytest.approx(expected, abs=2e-3)
