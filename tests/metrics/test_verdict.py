"""The verdict follows from its two tests, whose false alarms are rare."""

import numpy as np
import pytest

from dtpt.errors import MetricError
from dtpt.metrics import Conventions, Predictions, calibration_verdict, gap_interval, signed_gap

FLOOR = "not significantly"


def simulate(rng: np.random.Generator, count: int, *, power: float) -> Predictions:
    confidence = rng.beta(4, 2, size=count)
    return Predictions.from_confidence(confidence, rng.uniform(size=count) < confidence**power)


def test_overconfidence_is_named_with_its_size_in_points() -> None:
    made = Predictions.from_confidence([0.9] * 1000, [True] * 800 + [False] * 200)
    verdict = calibration_verdict(made)
    assert verdict.startswith("Overconfident by 10.0 points [7.5, 12.5]; ECE 10.0 %")
    assert verdict.endswith("noise floor 0.8 %.")
    assert FLOOR not in verdict


def test_underconfidence_is_named_with_positive_points() -> None:
    made = Predictions.from_confidence([0.5] * 400, [True] * 280 + [False] * 120)
    assert calibration_verdict(made).startswith("Underconfident by 20.0 points [15.")


def test_errors_that_cancel_on_average_are_still_found() -> None:
    low, high = [0.3] * 300, [0.9] * 300
    correct = [True] * 180 + [False] * 120 + [True] * 180 + [False] * 120  # 60 % everywhere
    verdict = calibration_verdict(Predictions.from_confidence(low + high, correct))
    assert verdict.startswith("Neither over- nor underconfident on average (+0.0 points")
    assert FLOOR not in verdict


@pytest.mark.parametrize("size", [3, 64, 500])
def test_false_alarms_are_rare(size: int) -> None:
    rng = np.random.default_rng(size)
    verdicts = [calibration_verdict(simulate(rng, size, power=1.0)) for _ in range(300)]
    fair = [v.startswith("Neither") for v in verdicts]
    assert np.mean(fair) > 0.92
    assert np.mean([FLOOR in v for v in verdicts]) > 0.92


def test_a_miscalibrated_model_is_found_once_there_are_enough_samples() -> None:
    rng = np.random.default_rng(0)
    verdicts = [calibration_verdict(simulate(rng, 1_000, power=1.4)) for _ in range(50)]
    assert all(v.startswith("Overconfident") and FLOOR not in v for v in verdicts)


def test_interval_of_the_gap_covers_the_truth() -> None:
    rng = np.random.default_rng(5)
    many = simulate(rng, 1_000_000, power=1.4)
    truth = signed_gap(many.confidence, many.correct)
    covered = 0
    for _ in range(1_000):
        made = simulate(rng, 80, power=1.4)
        interval = gap_interval(made)
        covered += interval.low <= truth <= interval.high
    assert 0.93 <= covered / 1_000 <= 0.97


def test_few_right_predictions_are_not_significant() -> None:
    assert gap_interval(Predictions.from_confidence([0.9] * 4, [True] * 4)).high > 0
    assert gap_interval(Predictions.from_confidence([0.9], [False])).low == -1.0
    assert calibration_verdict(Predictions.from_confidence([0.9], [False])).startswith("Neither")


def test_conventions_and_level_count() -> None:
    made = simulate(np.random.default_rng(0), 200, power=1.0)
    assert calibration_verdict(made) != calibration_verdict(made, Conventions(bins=5))
    with pytest.raises(MetricError, match="level"):
        gap_interval(made, level=95)


def test_copies_of_samples_do_not_make_a_verdict() -> None:
    """Twenty copies of thirty calibrated samples are thirty samples."""
    rng = np.random.default_rng(1)
    fair, found = [], []
    for _ in range(100):
        few = simulate(rng, 30, power=1.0)
        clusters = np.tile(np.arange(30), 20)
        many = Predictions.from_confidence(
            np.tile(few.confidence, 20), np.tile(few.correct, 20), clusters=clusters
        )
        verdict = calibration_verdict(many)
        fair.append(verdict.startswith("Neither"))
        found.append(FLOOR not in verdict)
    assert np.mean(fair) > 0.9
    assert np.mean(found) < 0.12
