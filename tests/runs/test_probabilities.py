"""All probabilities of a row: three digits in few bytes."""

import numpy as np
import pytest
from dtpt.runs.answers import log_softmax
from hypothesis import given
from hypothesis import strategies as st

from dtpt.runs.rows import pack, unpack


@given(st.lists(st.floats(-300, 300), min_size=1, max_size=50))
def test_log_probabilities_come_back_to_three_digits(logits):
    exact = log_softmax(np.array(logits))
    found = unpack(pack(exact))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-7)


def test_probabilities_too_small_for_a_float_stay_apart():
    exact = log_softmax(np.array([0.0, -800.0, -900.0, -1e9]))
    found = unpack(pack(exact))
    assert np.isfinite(found).all()
    assert found[1] > found[2] > found[3]


@pytest.mark.parametrize(("classes", "most"), [(10, 40), (100, 230), (1000, 1750)])
def test_row_of_usual_numbers_takes_few_bytes(classes, most):
    logits = 2.5 * np.random.default_rng(0).standard_normal((100, classes))
    sizes = [len(pack(log_softmax(row))) for row in logits]
    assert np.mean(sizes) < most
