"""The report agrees with the single metrics and refuses bad numbers by name."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from dtpt import metrics
from dtpt.errors import MetricError
from dtpt.metrics import (
    Bootstrap,
    CalibrationReport,
    Conventions,
    Predictions,
    calibration_report,
)


@pytest.fixture
def predictions() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    return rng.dirichlet(np.full(5, 0.5), size=200), rng.integers(5, size=200)


def test_report_holds_what_the_single_metrics_give(predictions) -> None:
    probabilities, labels = predictions
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    report = calibration_report(
        probabilities, labels, conventions=Conventions(bins=10, aece_bins=15)
    )
    assert report.n == 200
    assert report.accuracy == correct.mean()
    assert report.ece == metrics.ece(confidence, correct, bins=10)
    assert report.mce == metrics.mce(confidence, correct, bins=10)
    assert report.aece == metrics.aece(confidence, correct, bins=15)
    assert report.aurc == metrics.aurc(confidence, correct)
    assert report.augrc == metrics.augrc(confidence, correct)
    assert report.smooth_ece == metrics.smooth_ece(confidence, correct)
    assert report.classwise_ece == metrics.classwise_ece(probabilities, labels, bins=10)
    assert report.brier == metrics.brier(probabilities, labels)
    assert report.nll == metrics.nll(probabilities, labels)
    assert report.floor == metrics.calibrated_ece(confidence, bins=10).mean
    assert report.ece_above_floor == report.ece - report.floor
    assert report.mean_confidence == confidence.mean()
    assert report.signed_gap == confidence.mean() - correct.mean()
    assert report.absolute_gap == abs(report.signed_gap)
    parts = metrics.top_brier_parts(confidence, correct)
    assert report.top_brier == parts.score == pytest.approx(((confidence - correct) ** 2).mean())
    assert report.top_brier_calibration == parts.calibration
    assert report.top_brier_refinement == parts.refinement


def test_confidence_only_report_leaves_out_what_needs_all_probabilities(predictions) -> None:
    full = calibration_report(*predictions)
    probabilities, labels = predictions
    pair = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    part = CalibrationReport.of(Predictions.from_confidence(*pair))
    assert full.metrics.keys() - part.metrics.keys() == {"brier", "nll", "classwise_ece"}
    assert not hasattr(part, "nll")
    assert part.metrics.items() <= full.metrics.items()


def test_intervals_are_seeded_and_surround_every_metric(predictions) -> None:
    first, again, other = (
        calibration_report(*predictions, bootstrap=Bootstrap(resamples=200, seed=seed))
        for seed in (4, 4, 5)
    )
    assert first == again
    assert first.intervals != other.intervals
    for name, interval in first.intervals.items():
        assert interval.low < first.metrics[name] < interval.high


def test_level_sets_the_width_of_the_intervals(predictions) -> None:
    wide, narrow = (
        calibration_report(*predictions, bootstrap=Bootstrap(resamples=200, level=level))
        for level in (0.95, 0.5)
    )
    assert wide.intervals["nll"].low < narrow.intervals["nll"].low


def test_no_interval_is_given_for_conventions_the_resampling_does_not_know(predictions) -> None:
    few, unknown = Bootstrap(resamples=20), Conventions(drop_smallest=True, aurc_ties="stable")
    report = calibration_report(*predictions, conventions=unknown, bootstrap=few)
    default = calibration_report(*predictions, bootstrap=few)
    assert default.intervals.keys() - report.intervals.keys() == {"aece", "aurc", "augrc"}


def test_report_is_frozen_and_survives_json(predictions) -> None:
    report = calibration_report(*predictions, bootstrap=Bootstrap(resamples=20))
    with pytest.raises(ValueError, match="frozen"):
        report.ece = 0.0
    assert metrics.CalibrationReport.model_validate_json(report.model_dump_json()) == report
    flat = json.loads(report.model_dump_json())
    assert flat["conventions"]["bins"] == 20
    assert flat["ece"] == report.ece
    assert list(flat)[:2] == ["n", "accuracy"]


def test_half_precision_softmax_of_a_thousand_classes_is_accepted() -> None:
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 3, size=(50, 1000))
    exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = rng.integers(1000, size=50)
    half = calibration_report(exact.astype(np.float16), labels)
    assert half.brier == pytest.approx(calibration_report(exact, labels).brier, abs=1e-3)


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[0.5, 0.5], [0.5, math.nan]], [0, 1], r"probabilities\[1, 1\] is nan"),
        ([[0.5, 0.5], [math.inf, 0.5]], [0, 1], r"probabilities\[1, 0\] is inf"),
        ([[0.5, 0.5], [1.5, -0.5]], [0, 1], r"probabilities\[1, 1\] is -0.5"),
        ([[0.5, 0.5], [0.4, 0.5]], [0, 1], r"probabilities\[1\] sums to 0.9"),
        ([[3.0, -1.0]], [0], r"probabilities\[0, 1\] is -1"),
        ([[3.0, 2.0]], [0], "not logits"),
        ([0.5, 0.5], [0, 1], r"probabilities has shape \(2,\)"),
        ([[0.5, 0.5], [1.0]], [0, 1], "cannot be read as an array"),
        ([["a", "b"]], [0], "expected numbers"),
        (np.empty((0, 3)), [], "probabilities is empty"),
        (np.empty((3, 0)), [0, 0, 0], "probabilities is empty"),
        ([[0.5, 0.5]], [2], r"labels\[0\] is 2; expected 0 to 1"),
        ([[0.5, 0.5]], [-1], r"labels\[0\] is -1"),
        ([[0.5, 0.5]], [0.0], "labels have dtype float64"),
        ([[0.5, 0.5]], [[0]], r"labels has shape \(1, 1\)"),
        ([[0.5, 0.5]], [0, 1], "1 samples but labels has 2"),
    ],
)
def test_bad_predictions_are_named(probabilities, labels, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        calibration_report(probabilities, labels)


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, math.nan], [True, True], r"confidence\[1\] is nan"),
        ([0.5, 1.1], [True, True], r"confidence\[1\] is 1.1"),
        ([0.5, -0.1], [True, True], r"confidence\[1\] is -0.1"),
        ([], [], "confidence is empty"),
        ([0.5], [True, False], "1 samples but correct has 2"),
        ([0.5, 0.5], [1, 2], r"correct\[1\] is 2"),
        ([0.5, 0.5], [1, 0.5], r"correct\[1\] is 0.5"),
        ([0.5, 0.5], [1, math.nan], r"correct\[1\] is nan"),
        ([0.5], ["yes"], "correct has dtype"),
        (0.5, True, r"confidence has shape \(\)"),
    ],
)
def test_bad_confidences_are_named(confidence, correct, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        Predictions.from_confidence(confidence, correct)


def test_rounding_beyond_one_is_clipped_into_the_last_bin() -> None:
    assert metrics.ece([1 + 1e-7, 1.0], [True, True]) == 0


@pytest.mark.parametrize("bins", [0, -1, 10_001, 1_000_000_000, 2.5])
def test_impossible_numbers_of_bins_are_refused(bins: int) -> None:
    with pytest.raises(MetricError, match="bins"):
        Conventions(bins=bins)
    with pytest.raises(MetricError, match="bins"):
        Conventions(aece_bins=bins)


def test_negative_resamples_are_refused() -> None:
    with pytest.raises(MetricError, match="resamples"):
        calibration_report([[0.5, 0.5]], [0], bootstrap=Bootstrap(resamples=-1))


def test_importing_metrics_loads_neither_torch_nor_scipy() -> None:
    code = "import sys, dtpt.metrics; print({'torch', 'scipy', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
