"""Efficient points, correlations, and scores from runs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.analysis import DispersionPoint, MethodScore
from dtpt.analysis.pareto import efficient, pareto_points
from dtpt.analysis.scatter import correlation, dispersion_scatter
from dtpt.analysis.scores import score_method, without_dominant

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


def score(method, lambda_, accuracy, ece):
    label = method if lambda_ is None else f"{method}@{lambda_:g}"
    return MethodScore(label, method, lambda_, 10, accuracy, ece, 0.5)


def test_points_are_judged_among_all_and_within_their_method():
    points = pareto_points(
        [
            score("c-tpt", 1.0, 0.60, 0.10),
            score("c-tpt", 2.0, 0.58, 0.05),
            score("c-tpt", 3.0, 0.57, 0.06),
            score("d-tpt", 1.0, 0.61, 0.04),
        ]
    )
    assert [p.efficient for p in points] == [False, False, False, True]
    assert [p.efficient_in_method for p in points] == [True, True, False, True]


def test_scatter_correlates_over_all_and_within_data_sets():
    # within each set ECE falls with ATFD, between the sets it rises
    values = [("a", 0.1, 0.12), ("a", 0.2, 0.11), ("b", 0.6, 0.52), ("b", 0.7, 0.51)]
    points = [DispersionPoint(name, "{}", "tpt", atfd, ece) for name, atfd, ece in values]
    found = dispersion_scatter(points)
    expected = np.corrcoef([v[1] for v in values], [v[2] for v in values])[0, 1]
    assert found.pearson == pytest.approx(expected)
    assert found.pearson_within == pytest.approx(-1.0)
    assert found.spearman == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("first", "second"), [([1.0, 2.0], [1.0, 2.0]), ([0.1, 0.1, 0.1], [1.0, 2.0, 3.0])]
)
def test_no_correlation_without_points_or_spread(first, second):
    assert correlation(np.array(first), np.array(second)) is None


def test_nothing_to_correlate_is_no_error():
    assert dispersion_scatter([]).pearson is None


def test_scores_are_accuracy_and_gap_to_confidence():
    found = score_method(
        "d-tpt", 1e5, confidence=[0.9, 0.9, 0.9, 0.9], correct=[True, True, False, False]
    )
    assert (found.label, found.images, found.accuracy) == ("d-tpt@100000", 4, 0.5)
    assert found.ece == pytest.approx(0.4)
    assert found.confidence == pytest.approx(0.9)


def test_without_dominant_needs_both_variants():
    scores = [
        score(name, None, 0.5, 0.1)
        for name in ("zero-shot", "tpt", "zero-shot+no-idd", "zero-shot+no-tdd", "tpt+no-tdd")
    ]
    (found,) = without_dominant("set", scores)
    assert found.original.method == "zero-shot"
    assert found.without_tdd.method == "zero-shot+no-tdd"
    assert found.without_idd.method == "zero-shot+no-idd"
