"""AURC and AUGRC: exact tie averaging, invariances and bounds."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.errors import MetricError
from dtpt.metrics import augrc, aurc, risk_coverage_curve

cheap = settings(max_examples=500, deadline=None, database=None)
tied = st.lists(
    st.tuples(st.sampled_from([0.1, 0.3, 0.5, 0.9]), st.booleans()), min_size=1, max_size=20
)
Pairs = list[tuple[float, bool]]


def split(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    return np.array([c for c, _ in pairs]), np.array([y for _, y in pairs])


def mean_over_orders(pairs: Pairs) -> Fraction:
    """AURC averaged over every order that sorts confidence, in rational arithmetic."""
    areas = []
    for order in itertools.permutations(pairs):
        if any(a[0] < b[0] for a, b in itertools.pairwise(order)):
            continue
        wrong = list(itertools.accumulate(int(not hit) for _, hit in order))
        areas.append(sum(Fraction(w, k) for k, w in enumerate(wrong, 1)) / len(order))
    return sum(areas, Fraction(0)) / len(areas)


@settings(max_examples=100, deadline=None, database=None)
@given(st.lists(st.tuples(st.sampled_from([0.2, 0.5]), st.booleans()), min_size=1, max_size=6))
def test_tie_averaging_equals_the_mean_over_all_orders(pairs: Pairs) -> None:
    assert aurc(*split(pairs)) == pytest.approx(float(mean_over_orders(pairs)), abs=1e-14)


@cheap
@given(tied, st.randoms(use_true_random=False))
def test_sample_order_does_not_matter_when_ties_are_averaged(pairs: Pairs, random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    # bit-equal: the curve is made of integers at the ends of the tie groups
    assert aurc(*split(pairs)) == aurc(*split(shuffled))
    assert augrc(*split(pairs)) == augrc(*split(shuffled))


def test_stable_ties_keep_input_order() -> None:
    assert risk_coverage_curve([0.5, 0.5], [True, False], ties="stable").aurc == 0.25
    assert risk_coverage_curve([0.5, 0.5], [False, True], ties="stable").aurc == 0.75


@cheap
@given(st.lists(st.tuples(st.integers(0, 1000), st.booleans()), min_size=1, max_size=20))
def test_monotone_transforms_of_confidence_change_nothing(pairs: list[tuple[int, bool]]) -> None:
    level, correct = split(pairs)
    plain, cubed = level / 1000, (level / 1000) ** 3 / 2 + 0.1
    assert aurc(plain, correct) == aurc(cubed, correct)
    assert augrc(plain, correct) == augrc(cubed, correct)


@cheap
@given(tied)
def test_areas_lie_between_oracle_and_worst_order(pairs: Pairs) -> None:
    confidence, correct = split(pairs)
    for area in (aurc, augrc):
        found = area(confidence, correct)
        best = area(correct.astype(float), correct)
        worst = area((~correct).astype(float), correct)
        assert best - 1e-12 <= found <= worst + 1e-12
    assert 0 <= augrc(confidence, correct) <= 0.5
    assert 0 <= aurc(confidence, correct) <= 1


@cheap
@given(tied)
def test_augrc_equals_its_closed_form_with_auroc(pairs: Pairs) -> None:
    confidence, correct = split(pairs)
    right, wrong = confidence[correct], confidence[~correct]
    fraction = correct.mean()
    ranked_wrongly = 0.0
    if len(right) and len(wrong):
        difference = right[:, None] - wrong[None, :]
        ranked_wrongly = ((difference < 0) + 0.5 * (difference == 0)).mean()
    expected = ranked_wrongly * fraction * (1 - fraction) + (1 - fraction) ** 2 / 2
    assert augrc(confidence, correct) == pytest.approx(expected, abs=1e-12)


def test_extreme_cases() -> None:
    assert aurc([0.3, 0.9], [True, True]) == 0
    assert aurc([0.3, 0.9], [False, False]) == 1
    assert augrc([0.3, 0.9], [False, False]) == 0.5
    assert aurc([0.4], [False]) == 1


def test_curve_ends_at_the_error_rate_with_full_coverage() -> None:
    rng = np.random.default_rng(0)
    confidence, correct = rng.uniform(size=50).round(1), rng.uniform(size=50) < 0.7
    curve = risk_coverage_curve(confidence, correct)
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == curve.generalized_risk[-1] == pytest.approx(1 - correct.mean())
    assert (np.diff(curve.threshold) <= 0).all()
    assert (np.diff(curve.generalized_risk) >= -1e-15).all()


def test_unknown_tie_rule_is_refused() -> None:
    with pytest.raises(MetricError, match="ties"):
        risk_coverage_curve([0.5], [True], ties="first")  # type: ignore[arg-type]
