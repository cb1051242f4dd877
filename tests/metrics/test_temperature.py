"""The fitted temperature is the minimum of the loss, inside its bounds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.errors import MetricError
from dtpt.metrics import fit_temperature


def loss(rows: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    scaled = rows / temperature
    norm = np.log(np.exp(scaled - scaled.max(1, keepdims=True)).sum(1)) + scaled.max(1)
    return float((norm - scaled[np.arange(len(labels)), labels]).mean())


@settings(max_examples=60, deadline=None, database=None)
@given(st.integers(0, 10_000), st.floats(0.05, 15.0))
def test_no_nearby_temperature_is_better(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 4)) * 2
    labels = (rows + rng.gumbel(size=rows.shape)).argmax(axis=1)
    found = fit_temperature(scale * rows, labels)
    best = loss(scale * rows, labels, found)
    assert 0.01 <= found <= 100
    for factor in (0.98, 1.02):
        assert loss(scale * rows, labels, found * factor) >= best


def test_the_temperature_scales_with_the_logits_and_ignores_shifts() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 6))
    labels = (rows + rng.gumbel(size=rows.shape)).argmax(axis=1)
    base = fit_temperature(rows, labels)
    assert fit_temperature(7 * rows, labels) == pytest.approx(7 * base, rel=1e-7)
    shifted = rows + rng.normal(size=(300, 1)) * 50
    assert fit_temperature(shifted, labels) == pytest.approx(base, rel=1e-7)


def test_without_a_minimum_the_nearer_bound_is_returned() -> None:
    rows = np.log([[0.7, 0.3], [0.6, 0.4]])
    assert fit_temperature(rows, [0, 0]) == 0.01
    assert fit_temperature(rows, [1, 1]) == 100.0
    assert fit_temperature(np.zeros((3, 4)), [0, 1, 2]) == 1.0
    assert fit_temperature([[0.0], [0.0]], [0, 0]) == 1.0


def test_impossible_labels_do_not_make_the_loss_infinite() -> None:
    rows = np.array([[0.0, -math.inf], [0.0, -math.inf], [-1.0, -0.5], [0.0, -20.0]])
    found = fit_temperature(rows, [0, 1, 1, 0])
    assert 1 < found <= 100


def test_half_precision_gives_nearly_the_same() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 20)) * 3
    labels = (rows / 2 + rng.gumbel(size=rows.shape)).argmax(axis=1)
    half = fit_temperature(rows.astype(np.float16), labels)
    assert half == pytest.approx(fit_temperature(rows, labels), rel=1e-3)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([[0.0, math.nan]], [0], r"log_probabilities\[0\]"),
        ([[0.0, 1.0], [0.0, math.inf]], [0, 0], r"log_probabilities\[1\]"),
        ([[-math.inf, -math.inf]], [0], r"log_probabilities\[0\]"),
        ([[0.0, 1.0]], [2], r"labels\[0\] is 2"),
        ([[0.0, 1.0]], [0, 1], "1 samples but labels has 2"),
        ([0.0, 1.0], [0], "shape"),
    ],
)
def test_bad_numbers_are_named(rows, labels, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        fit_temperature(rows, labels)
