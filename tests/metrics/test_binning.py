"""Every sample falls in exactly one bin, and in the right one."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.errors import MetricError
from dtpt.metrics import reliability_bins
from dtpt.metrics.calibration_errors import equal_mass_bins, equal_width_bins, width_edges

cheap = settings(max_examples=500, deadline=None, database=None)


def exact_bin(value: Fraction, bins: int) -> int:
    """(lo, hi] in rational arithmetic; 0 belongs to the first bin."""
    return max(math.ceil(value * bins) - 1, 0)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 20, 49, 100])
def test_values_on_edges_fall_where_exact_arithmetic_puts_them(bins: int) -> None:
    edges = [Fraction(k, bins) for k in range(bins + 1)]
    found = equal_width_bins([float(edge) for edge in edges], bins)
    assert found.tolist() == [exact_bin(edge, bins) for edge in edges]


@pytest.mark.parametrize("bins", [2, 3, 10, 15, 20, 49])
def test_one_ulp_beside_an_edge_changes_the_bin_only_upwards(bins: int) -> None:
    inner = np.array([k / bins for k in range(1, bins)])
    below = equal_width_bins(np.nextafter(inner, 0), bins)
    above = equal_width_bins(np.nextafter(inner, 1), bins)
    assert below.tolist() == list(range(bins - 1))
    assert above.tolist() == list(range(1, bins))


@cheap
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=20),
    st.sampled_from([60, 63, 80, 97]),
    st.integers(1, 40),
)
def test_rational_confidences_are_binned_exactly(
    numerators: list[int], denominator: int, bins: int
) -> None:
    values = [Fraction(k, denominator) for k in numerators]
    found = equal_width_bins([float(value) for value in values], bins)
    assert found.tolist() == [exact_bin(value, bins) for value in values]


@cheap
@given(
    st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.05, 0.15]), min_size=1, max_size=20),
    st.integers(1, 40),
)
def test_every_sample_is_in_exactly_one_bin(values: list[float], bins: int) -> None:
    member = equal_width_bins(values, bins)
    edges = width_edges(bins)
    for value, k in zip(values, member, strict=True):
        assert edges[k] <= value <= edges[k + 1]
    count = reliability_bins(values, [True] * len(values), bins=bins).count
    assert count.sum() == len(values)


@cheap
@given(st.lists(st.floats(0, 1), min_size=1, max_size=25), st.integers(1, 30))
def test_equal_mass_bins_keep_every_sample_and_do_not_split_ties(
    values: list[float], bins: int
) -> None:
    member = equal_mass_bins(values, bins)
    assert member.min() >= 0
    assert member.max() < bins
    by_value = {}
    for value, k in zip(values, member, strict=True):
        assert by_value.setdefault(value, k) == k
    ordered = [by_value[value] for value in sorted(by_value)]
    assert ordered == sorted(ordered)


@cheap
@given(st.integers(1, 200), st.integers(1, 30))
def test_equal_mass_bins_without_ties_differ_by_at_most_one(count: int, bins: int) -> None:
    sizes = np.bincount(equal_mass_bins(np.arange(count) / count, bins), minlength=bins)
    assert sizes.max() - sizes.min() <= 1


def test_empty_bins_have_no_mean() -> None:
    data = reliability_bins([0.9], [True], bins=4)
    assert data.count.tolist() == [0, 0, 0, 1]
    assert np.isnan(data.accuracy[:3]).all()
    assert np.isnan(data.mean_confidence[:3]).all()
    assert data.mean_confidence[3] == 0.9


def test_lower_precision_gives_the_same_bins_as_its_float64_copy() -> None:
    for kind in (np.float16, np.float32):
        narrow = width_edges(20).astype(kind)
        assert (equal_width_bins(narrow) == equal_width_bins(narrow.astype(np.float64))).all()


@pytest.mark.parametrize("bins", [0, -3])
def test_fewer_than_one_bin_is_refused(bins: int) -> None:
    with pytest.raises(MetricError, match="bins"):
        equal_width_bins([0.5], bins)
    with pytest.raises(MetricError, match="bins"):
        equal_mass_bins([0.5], bins)
