"""ECE, AECE, MCE, classwise and smooth ECE against other ways to compute them."""

import importlib.util
import itertools
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.errors import MetricError
from dtpt.metrics import aece, classwise_ece, ece, mce, smooth_ece

cheap = settings(max_examples=500, deadline=None, database=None)
costly = settings(max_examples=60, deadline=None, database=None)
samples = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=20)
# numerators over a common denominator meet the edges of many numbers of bins
rational_samples = st.tuples(
    st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=15),
    st.sampled_from([60, 63, 80, 97]),
)
Pairs = list[tuple[float, bool]]


def split(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    return np.array([c for c, _ in pairs]), np.array([y for _, y in pairs])


def exact_gaps(pairs: list[tuple[Fraction, bool]], bins: int) -> list[tuple[Fraction, int]]:
    """Sum of residuals and size of each occupied bin, in rational arithmetic."""
    found: dict[int, tuple[Fraction, int]] = {}
    for value, hit in pairs:
        k = max(math.ceil(value * bins) - 1, 0)
        gap, size = found.get(k, (Fraction(0), 0))
        found[k] = gap + int(hit) - value, size + 1
    return list(found.values())


@cheap
@given(rational_samples, st.integers(1, 30))
def test_ece_and_mce_equal_exact_rational_arithmetic(
    drawn: tuple[list[tuple[int, bool]], int], bins: int
) -> None:
    pairs = [(Fraction(k, drawn[1]), hit) for k, hit in drawn[0]]
    gaps = exact_gaps(pairs, bins)
    confidence = [float(value) for value, _ in pairs]
    correct = [hit for _, hit in pairs]
    exact_ece = sum(abs(gap) for gap, _ in gaps) / len(pairs)
    exact_mce = max(abs(gap) / size for gap, size in gaps)
    assert ece(confidence, correct, bins=bins) == pytest.approx(float(exact_ece), abs=1e-15 * 30)
    assert mce(confidence, correct, bins=bins) == pytest.approx(float(exact_mce), abs=1e-15 * 30)


ORACLE = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy, torch
if sys.argv[2] == "shim":  # a CUDA build of torchvision does not import on a CPU torch
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from torchmetrics.functional.classification import binary_calibration_error
data = numpy.load(sys.argv[1])
found = []
for start, stop, bins in data["cases"].tolist():
    pair = [torch.from_numpy(data[k][start:stop]) for k in ("confidence", "correct")]
    options = {"n_bins": bins, "validate_args": False}
    found.append([float(binary_calibration_error(*pair, norm=n, **options)) for n in ("l1", "max")])
print(json.dumps(found))
"""


def ask_torchmetrics(path: Path) -> list[list[float]]:
    """Run torchmetrics in its own process: its imports must not touch other tests."""
    if importlib.util.find_spec("torchmetrics") is None:
        pytest.skip("torchmetrics is not installed")
    for mode in ("shim", "plain"):
        command = [sys.executable, "-c", ORACLE, str(path), mode]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return json.loads(done.stdout)
    pytest.skip(f"torchmetrics does not import here: {done.stderr[-200:]}")


@pytest.mark.oracle
def test_ece_and_mce_agree_with_torchmetrics_away_from_edges(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 300, size=300)
    stops = np.cumsum(sizes)
    cases = np.stack((stops - sizes, stops, rng.choice([10, 15, 20], size=300)), axis=1)
    confidence = rng.beta(2, 1.5, size=stops[-1])
    correct = rng.uniform(size=stops[-1]) < confidence**1.3
    arrays = {"confidence": confidence, "correct": correct.astype(int), "cases": cases}
    np.savez(tmp_path / "sets.npz", **arrays)
    theirs = ask_torchmetrics(tmp_path / "sets.npz")
    for (start, stop, bins), expected in zip(cases.tolist(), theirs, strict=True):
        pair = confidence[start:stop], correct[start:stop]
        assert [ece(*pair, bins=bins), mce(*pair, bins=bins)] == pytest.approx(expected, abs=1e-6)


@cheap
@given(samples)
def test_ece_lies_between_zero_and_mce(pairs: Pairs) -> None:
    confidence, correct = split(pairs)
    assert 0 <= ece(confidence, correct) <= mce(confidence, correct) + 1e-12
    assert mce(confidence, correct) <= 1
    assert 0 <= aece(confidence, correct) <= 1


@cheap
@given(samples, st.randoms(use_true_random=False))
def test_sample_order_does_not_matter(pairs: Pairs, random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    for metric in (ece, aece, mce):
        assert metric(*split(pairs)) == pytest.approx(metric(*split(shuffled)), abs=1e-12)


@cheap
@given(samples, st.integers(2, 4))
def test_duplicating_every_sample_changes_nothing(pairs: Pairs, times: int) -> None:
    for metric in (ece, mce):
        assert metric(*split(pairs * times)) == pytest.approx(metric(*split(pairs)), abs=1e-12)


def test_smooth_ece_ignores_order_and_duplication() -> None:
    rng = np.random.default_rng(0)
    confidence, correct = rng.uniform(size=100), rng.uniform(size=100) < 0.5
    order = rng.permutation(100)
    once = smooth_ece(confidence, correct)
    assert smooth_ece(confidence[order], correct[order]) == pytest.approx(once, abs=1e-9)
    assert smooth_ece(np.tile(confidence, 3), np.tile(correct, 3)) == pytest.approx(once, abs=1e-9)


@pytest.mark.parametrize("metric", [ece, aece, mce, smooth_ece])
def test_perfect_calibration_has_no_error(metric) -> None:
    confidence = np.repeat([0.25, 0.5, 0.75], 4)
    correct = [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0]
    assert metric(confidence, correct) == pytest.approx(0, abs=1e-9)
    assert metric([1.0] * 5, [True] * 5) == 0
    assert metric([0.0] * 5, [False] * 5) == 0


@pytest.mark.parametrize("metric", [ece, aece, mce, smooth_ece])
def test_confident_and_always_wrong_is_the_worst_possible(metric) -> None:
    assert metric([1.0] * 7, [False] * 7) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("metric", [ece, aece, mce, smooth_ece])
def test_one_sample_is_enough(metric) -> None:
    assert metric([0.7], [True]) == pytest.approx(0.3, abs=1e-6)


def test_aece_with_fewer_samples_than_bins_is_the_mean_residual() -> None:
    confidence = np.array([0.31, 0.42, 0.55, 0.68, 0.74, 0.93])
    correct = np.array([1, 0, 1, 0, 1, 1])
    expected = np.abs(correct - confidence).mean()
    assert aece(confidence, correct) == pytest.approx(expected, abs=1e-15)


def test_aece_without_ties_is_the_equal_split_of_sorted_samples() -> None:
    rng = np.random.default_rng(3)
    confidence, correct = rng.uniform(size=400), rng.uniform(size=400) < 0.6
    order = np.argsort(confidence)
    parts = np.split((correct - confidence)[order], 20)
    expected = sum(abs(part.mean()) for part in parts) / 20
    assert aece(confidence, correct) == pytest.approx(expected, abs=1e-14)


def test_drop_smallest_follows_the_membership_rule_of_the_o_tpt_code() -> None:
    rng = np.random.default_rng(4)
    confidence = np.round(rng.uniform(size=97), 2)  # with ties
    correct = rng.uniform(size=97) < confidence
    edges = np.interp(np.linspace(0, 97, 16), np.arange(97), np.sort(confidence))
    expected = 0.0
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            gap = correct[inside].mean() - confidence[inside].mean()
            expected += abs(gap) * inside.mean()
    assert aece(confidence, correct, bins=15, drop_smallest=True) == pytest.approx(expected)


def test_drop_smallest_loses_exactly_the_smallest_confidences() -> None:
    # all samples tie: O-TPT's rule puts none of them into a bin
    assert aece([0.4] * 6, [True] * 6, drop_smallest=True) == 0
    assert aece([0.4] * 6, [True] * 6) == pytest.approx(0.6)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_classwise_ece_is_the_mean_of_one_against_rest_eces(kind) -> None:
    rng = np.random.default_rng(6)
    probabilities = rng.dirichlet(np.full(7, 0.4), size=300).astype(kind)
    probabilities[:3] = np.eye(7)[:3]  # exact zeros and ones
    probabilities[3:5] = [[0.05, 0.95, 0, 0, 0, 0, 0], [0.05, 0.05, 0.9, 0, 0, 0, 0]]  # edges
    labels = rng.integers(7, size=300)
    each = [ece(probabilities[:, k], labels == k) for k in range(7)]
    found = classwise_ece(probabilities, labels)
    assert found == pytest.approx(np.mean(each), abs=1e-12)


def reflected_gaussian(points: np.ndarray, centres: np.ndarray, width: float) -> np.ndarray:
    """The kernel itself: a Gaussian and its mirror images at 0 and 1."""
    total = np.zeros((len(points), len(centres)))
    for shift in range(-4, 5):
        for image in (centres + 2 * shift, -centres + 2 * shift):
            total += np.exp(-0.5 * ((points[:, None] - image) / width) ** 2)
    return total / (width * math.sqrt(2 * math.pi))


def direct_smooth_ece(confidence: np.ndarray, correct: np.ndarray, width: float) -> float:
    points = (np.arange(4000) + 0.5) / 4000
    kernel = reflected_gaussian(points, confidence, width)
    return float(np.abs(kernel @ (correct - confidence)).mean() / len(confidence))


@pytest.mark.parametrize("width", [0.01, 0.03, 0.1, 0.4])
def test_smooth_ece_at_a_bandwidth_equals_direct_integration(width: float) -> None:
    rng = np.random.default_rng(7)
    confidence = np.concatenate((rng.uniform(size=40), [0.0, 1.0]))
    correct = rng.uniform(size=42) < 0.5
    expected = direct_smooth_ece(confidence, correct, width)
    assert smooth_ece(confidence, correct, bandwidth=width) == pytest.approx(expected, rel=2e-4)


@costly
@given(samples)
def test_smooth_ece_equals_its_own_bandwidth(pairs: Pairs) -> None:
    confidence, correct = split(pairs)
    found = smooth_ece(confidence, correct)
    assert 0 <= found <= 1
    if found > 1e-3:
        assert smooth_ece(confidence, correct, bandwidth=found) == pytest.approx(found, abs=1e-6)


def test_smooth_ece_sees_a_constant_shift_as_that_shift() -> None:
    rng = np.random.default_rng(8)
    confidence = rng.uniform(0.3, 0.7, size=40_000)
    correct = rng.uniform(size=40_000) < confidence + 0.2
    assert smooth_ece(confidence, correct) == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("width", [-0.1, math.nan, math.inf])
def test_impossible_bandwidths_are_refused(width: float) -> None:
    with pytest.raises(MetricError, match="bandwidth"):
        smooth_ece([0.5], [True], bandwidth=width)
