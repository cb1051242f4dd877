"""Binomial tails, exact bounds, McNemar and Student against exact fractions and known values."""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.errors import MetricError
from dtpt.metrics import binomial_cdf, binomial_interval, binomial_upper_bound
from dtpt.metrics.distributions import mcnemar, student_quantile, student_tail

cheap = settings(max_examples=150, deadline=None, database=None)


def exact_cdf(successes: int, trials: int, chance: Fraction) -> Fraction:
    terms = range(successes + 1)
    return sum(
        (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in terms),
        Fraction(0),
    )


@cheap
@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 20))
def test_tail_equals_exact_fractions(trials: int, successes: int, twentieths: int) -> None:
    successes = min(successes, trials)
    expected = float(exact_cdf(successes, trials, Fraction(twentieths, 20)))
    found = binomial_cdf(successes, trials, probability=twentieths / 20)
    assert float(found) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@cheap
@given(st.integers(1, 100), st.integers(0, 100), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_upper_bound_is_where_the_tail_reaches_one_minus_level(
    n: int, errors: int, level: float
) -> None:
    errors = min(errors, n)
    bound = float(binomial_upper_bound(errors, n, level=level))
    if errors == n:
        assert bound == 1.0
        return
    below, above = (Fraction(bound * factor) for factor in (1 - 1e-12, 1 + 1e-12))
    assert exact_cdf(errors, n, below) > 1 - level > exact_cdf(errors, n, min(above, Fraction(1)))


@pytest.mark.parametrize(
    ("successes", "trials", "chance"),
    [(299_500, 1_000_000, 0.3), (10, 1_000_000, 2e-5), (90, 100_000, 0.001), (4_800, 10_000, 0.5)],
)
def test_tail_of_many_trials_equals_forty_digits(successes, trials, chance) -> None:
    mp = pytest.importorskip("mpmath")
    with mp.workdps(40):
        p, k, n = mp.mpf(chance), successes, trials
        ways = mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)
        total = term = mp.exp(ways + k * mp.log(p) + (n - k) * mp.log(1 - p))
        while k and term > total * mp.mpf("1e-20"):  # from the largest term downwards
            term *= k / mp.mpf(n - k + 1) * (1 - p) / p
            total, k = total + term, k - 1
    found = float(binomial_cdf(successes, trials, probability=chance))
    assert found == pytest.approx(float(total), rel=1e-11)


def test_upper_bound_without_errors_has_its_closed_form() -> None:
    for n in (1, 30, 5_000, 1_000_000):
        expected = -math.expm1(math.log(0.05) / n)
        assert binomial_upper_bound(0, n) == pytest.approx(expected, rel=1e-12)


def test_many_bounds_at_once_equal_single_ones() -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(1, 20_000, size=60)
    errors = (n * rng.uniform(size=60) ** 3).astype(int)
    together = binomial_upper_bound(errors, n, level=0.9)
    alone = [float(binomial_upper_bound(e, m, level=0.9)) for e, m in zip(errors, n, strict=True)]
    assert together == pytest.approx(alone, rel=1e-11)
    assert binomial_upper_bound(3, [10, 20]).shape == (2,)


def test_a_true_rate_lies_above_its_bound_at_most_as_often_as_claimed() -> None:
    rng = np.random.default_rng(1)
    for rate in (0.01, 0.1, 0.5):
        errors = rng.binomial(120, rate, size=4_000)
        missed = (binomial_upper_bound(errors, np.full(4_000, 120)) < rate).mean()
        assert missed <= 0.06


def test_two_sided_interval_is_symmetric_and_contains_the_rate() -> None:
    low, high = binomial_interval(3, 40)
    other_low, other_high = binomial_interval(37, 40)
    assert (low, high) == pytest.approx((1 - other_high, 1 - other_low))
    assert low < 3 / 40 < high
    assert binomial_interval(0, 5)[0] == 0.0
    assert binomial_interval(5, 5)[1] == 1.0


@cheap
@given(st.integers(0, 80), st.integers(0, 80))
def test_mcnemar_equals_the_doubled_exact_tail(wins: int, losses: int) -> None:
    total = wins + losses
    expected = min(1.0, float(2 * exact_cdf(min(wins, losses), total, Fraction(1, 2))))
    assert mcnemar(wins, losses) == pytest.approx(expected, rel=1e-12)
    assert mcnemar(wins, losses) == mcnemar(losses, wins)


@pytest.mark.parametrize(
    ("level", "freedom", "expected"),
    [(0.95, 1, 12.7062), (0.95, 10, 2.22814), (0.99, 30, 2.75000), (0.999, 60, 3.46020)],
)
def test_student_quantiles_are_those_of_the_tables(level, freedom, expected) -> None:
    found = student_quantile(level, freedom)
    assert found == pytest.approx(expected, abs=6e-5 * expected)
    assert student_tail(found, freedom) == pytest.approx(1 - level, rel=1e-11)
    assert student_tail(-found, freedom) == pytest.approx(1 - level, rel=1e-11)


def test_student_with_one_and_two_degrees_of_freedom_has_closed_forms() -> None:
    for t in (0.01, 0.7, 3.0, 40.0):
        assert student_tail(t, 1) == pytest.approx(1 - 2 * math.atan(t) / math.pi, rel=1e-12)
        assert student_tail(t, 2) == pytest.approx(1 - t / math.sqrt(t * t + 2), rel=1e-12)
    for level in (0.5, 0.95, 0.9999):
        expected = math.tan(math.pi * level / 2)
        assert student_quantile(level, 1) == pytest.approx(expected, rel=1e-10)
        a = 2 * level**2 / (1 - level**2)
        assert student_quantile(level, 2) == pytest.approx(math.sqrt(a), rel=1e-10)


def test_student_becomes_normal() -> None:
    for level in (0.5, 0.95, 0.99999):
        expected = NormalDist().inv_cdf((1 + level) / 2)
        assert student_quantile(level, 1e9) == pytest.approx(expected, rel=1e-6)


def test_impossible_counts_are_refused() -> None:
    for errors, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(MetricError, match=f"{errors} of {n}"):
            binomial_upper_bound(errors, n)
    with pytest.raises(MetricError, match="whole numbers"):
        binomial_upper_bound([0.5], [2])
    with pytest.raises(MetricError, match="level"):
        binomial_upper_bound(0, 2, level=1.0)
    with pytest.raises(MetricError, match="probability"):
        binomial_cdf(0, 2, probability=1.5)
