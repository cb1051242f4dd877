"""Which labelled images allow a calibration, and which are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError
from simulated import drawn, voted

from dtpt.calibration import LabelledPredictions, Targets, apply, cross_fit, fit
from dtpt.calibration.checking import evaluate_fit
from dtpt.calibration.conformal import (
    aps_scores,
    calibrated_probabilities,
    lac_scores,
    least_clusters,
    score_limit,
)
from dtpt.calibration.fitting import Scored, temperature_of, temperature_part
from dtpt.calibration.selective import (
    least_accepted,
    lowest_valid_threshold,
    needed_images,
    passing_error,
    threshold_sequence,
)
from dtpt.calibration.statements import notes
from dtpt.errors import CalibrationError
from dtpt.metrics import binomial_upper_bound, fit_temperature


def halves(rows):
    first = np.arange(len(rows)) < len(rows) // 4
    return rows.take(first), rows.take(~first)


def noted(rows, fitted, **targets):
    return notes(*halves(rows), fitted=fitted, targets=Targets(**targets), noun="images")


def relabelled(rows, *, right):
    """The same probabilities, with labels that make all predictions right or all wrong."""
    classes = rows.log_probabilities.shape[1]
    labels = rows.predictions if right else (rows.predictions + 1) % classes
    return replace(rows, labels=labels)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_a_coverage_needs_so_many_images_and_no_more(coverage):
    least = least_clusters(coverage)
    assert least >= coverage / (1 - coverage) - 1e-9
    scores, weights = np.arange(least) / least, np.ones(least)
    assert score_limit(scores, weights, coverage=coverage) == (least - 1) / least
    with pytest.raises(CalibrationError, match=f" {least} "):
        score_limit(scores[1:], weights[1:], coverage=coverage)


def test_five_images_are_too_few():
    with pytest.raises(CalibrationError, match="too few"):
        fit(*halves(drawn(5, seed=0)), targets=Targets())


def test_images_of_one_class_are_refused():
    rows = drawn(400, seed=0)
    same = rows.take(rows.labels == 3)
    with pytest.raises(CalibrationError, match="class 3"):
        fit(*halves(same), targets=Targets())


def test_predictions_that_are_all_wrong_are_refused():
    rows = relabelled(drawn(400, seed=0), right=False)
    with pytest.raises(CalibrationError, match="400"):
        fit(*halves(rows), targets=Targets())


def test_predictions_that_are_all_right_leave_the_temperature_at_one():
    rows = relabelled(drawn(400, seed=0), right=True)
    found = fit(*halves(rows), targets=Targets())
    assert found.temperature == 1.0
    assert found.threshold == 0.0
    assert found.wrong == 0
    assert len(noted(rows, found)) == 1
    accepting = fit(*halves(drawn(400, seed=0)), targets=Targets(error=0.1))
    assert noted(drawn(400, seed=0), accepting) == ()


def test_an_empty_part_is_refused():
    rows = drawn(20, seed=0)
    none = rows.take(np.zeros(20, bool))
    with pytest.raises(CalibrationError, match="too few"):
        fit(none, rows, targets=Targets())


def test_a_model_that_is_too_often_wrong_always_abstains():
    rows, targets = drawn(400, seed=0, sharpness=0.5), Targets(error=0.02)
    found = fit(*halves(rows), targets=targets)
    assert found.threshold is None
    assert not evaluate_fit(found, rows).accepted.any()
    assert math.isnan(evaluate_fit(found, rows).error)


@pytest.mark.parametrize("name", ["coverage", "error", "confidence"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 90.0, float("nan")])
def test_targets_outside_zero_to_one_are_refused_by_name(name, value):
    with pytest.raises(ValidationError, match=name):
        Targets(**{name: value})


def test_the_temperature_is_that_of_the_metrics_and_undoes_overconfidence():
    rows = drawn(4000, seed=1, overconfidence=3.0)
    found = temperature_of(rows)
    assert found == fit_temperature(rows.log_probabilities, rows.labels)
    assert found == pytest.approx(3.0, rel=0.1)


def test_temperature_and_threshold_come_from_different_images():
    """Labels of the second part change nothing that was decided on the first."""
    first, second = halves(drawn(800, seed=2))
    other = relabelled(second, right=True)
    one, two = (fit(first, part, targets=Targets()) for part in (second, other))
    assert one.temperature == two.temperature
    assert one.lac > two.lac


def test_sets_agree_with_their_definitions():
    p = np.array([[0.5, 0.3, 0.15, 0.05]])
    assert lac_scores(p).tolist() == [[0.5, 0.7, 0.85, 0.95]]
    assert aps_scores(p).tolist() == [[0.0, 0.5, 0.8, 0.95]]


def test_equal_classes_enter_a_set_together_and_no_set_is_empty():
    with np.errstate(divide="ignore"):
        tied = np.log(np.array([[0.4, 0.2, 0.2, 0.2], [0.25] * 4, [1.0, 0.0, 0.0, 0.0]]))
    found = fit(*halves(drawn(400, seed=0)), targets=Targets())
    for limit in (0.0, 0.3, 0.5, 0.8, 1.0):
        numbers = found.model_copy(update={"temperature": 1.0, "lac": limit, "aps": limit})
        for kind in ("lac", "aps"):
            members = apply(numbers, tied, predictions=[0, 0, 0], sets=kind).members
            assert len(set(members[0, 1:].tolist())) == 1
            assert members.sum(axis=1).min() >= 1


def test_thresholds_go_from_strict_to_lenient_and_end_with_everything():
    sure = np.random.default_rng(0).random(100)
    order = threshold_sequence(sure, 300, error=0.05, level=0.95)
    assert (np.diff(order) < 0).all()
    assert order[-1] == 0.0


def test_a_larger_target_error_never_raises_the_threshold():
    for seed in range(20):
        first, second = halves(drawn(800, seed=seed, sharpness=4.0))
        targets = [Targets(error=error) for error in (0.05, 0.1, 0.2, 0.3)]
        found = [fit(first, second, targets=one).threshold for one in targets]
        values = [1.1 if value is None else value for value in found]
        assert values == sorted(values, reverse=True), found


def test_the_search_ends_at_the_first_failure():
    """A lenient threshold that would pass is not reached behind one that fails."""
    sure = np.repeat([0.9, 0.5, 0.1], [100, 100, 2000])
    wrong = np.zeros(2200, bool)
    wrong[100:140] = True
    thresholds = np.array([0.8, 0.4, 0.0])
    found = lowest_valid_threshold(sure, wrong, thresholds=thresholds, error=0.05, level=0.95)
    assert found == (0.8, 100, 0, pytest.approx(1 - 0.05**0.01))
    assert binomial_upper_bound(40, 2200) < 0.05


def test_a_threshold_that_no_image_reaches_is_invalid():
    found = lowest_valid_threshold(
        np.full(50, 0.2), np.zeros(50, bool), thresholds=np.array([0.9]), error=0.1, level=0.95
    )
    assert found == (None, 0, 0, 1.0)


@pytest.mark.parametrize(("error", "level"), [(0.05, 0.95), (0.1, 0.9), (0.01, 0.99)])
def test_the_least_number_of_accepted_images_is_that_of_the_exact_bound(error, level):
    least = least_accepted(error, level)
    assert binomial_upper_bound(0, least, level=level) <= error + 1e-12
    assert binomial_upper_bound(0, least - 1, level=level) > error


def test_the_parts_are_the_same_on_every_machine():
    ids = [f"image/{k:04d}.png" for k in range(2000)]
    part = temperature_part(ids)
    assert part[:12].tolist() == temperature_part(ids[:12]).tolist()
    assert 0.21 < part.mean() < 0.29


def test_cross_fitting_evaluates_every_image_once():
    rows = drawn(800, seed=3)
    ids = [str(k) for k in range(800)]
    for found in cross_fit(rows, ids, targets=Targets(error=0.1)):
        assert len(found.covered) == 800
        assert found.wrong.sum() == rows.wrong.sum()
        assert found.coverage == pytest.approx(0.9, abs=0.05)
        assert found.error <= 0.12


def test_predictions_that_are_all_right_can_be_cross_fitted():
    """Every true class is then the first of its row, and not the only class."""
    rows = relabelled(drawn(400, seed=0), right=True)
    lac, _ = cross_fit(rows, [str(k) for k in range(400)], targets=Targets())
    assert lac.coverage == 1.0


def test_votes_keep_their_ties_through_the_temperature():
    rows = voted(200, seed=0)
    p = calibrated_probabilities(rows.log_probabilities, 1.7)
    assert len(np.unique(p)) < 60


@pytest.mark.parametrize(
    ("log_p", "labels", "predictions", "reason"),
    [
        (np.log([[0.5, 0.5]]), [0, 1], [0], "2 labels"),
        (np.log([[0.5, 0.5]]), [2], [0], "label is 2"),
        (np.log([[0.5, 0.5]]), [0], [-1], "prediction is -1"),
        ([[np.nan, 0.0]], [0], [0], "NaN"),
        ([0.0, 1.0], [0], [0], "shape"),
    ],
)
def test_inconsistent_predictions_are_refused(log_p, labels, predictions, reason):
    with pytest.raises(CalibrationError, match=reason):
        LabelledPredictions.of(log_p, labels, predictions=predictions)


def test_the_smallest_passing_error_passes_and_the_one_below_does_not():
    first, second = halves(drawn(300, seed=4, sharpness=4.0))
    early, late = (Scored.of(part, 1.0).confidence for part in (first, second))
    found = passing_error(early, late, wrong=second.wrong, level=0.95)
    for error, passes in ((found, True), (found - 0.01, False)):
        order = threshold_sequence(early, len(late), error=error, level=0.95)
        threshold, *_ = lowest_valid_threshold(
            late, second.wrong, thresholds=order, error=error, level=0.95
        )
        assert (threshold is not None) == passes
    all_wrong = np.ones(len(late), bool)
    assert passing_error(early, late, wrong=all_wrong, level=0.95) is None


def test_the_images_that_a_target_needs_follow_from_the_exact_bound():
    confidence, weights = np.linspace(1, 0, 1000), np.ones(1000)
    wrong = np.arange(1000) % 50 == 25  # 2 % at any threshold
    numbers = {"weights": weights, "level": 0.95}
    found = needed_images(confidence, wrong, error=0.05, **numbers)
    rate = 20.5 / 1001
    exact = next(n for n in range(1, 5000) if binomial_upper_bound(math.ceil(rate * n), n) <= 0.05)
    assert exact <= found <= 1.3 * exact
    assert needed_images(confidence, wrong, error=0.02, **numbers) is None
    doubled = needed_images(
        confidence, wrong, error=0.05, weights=np.full(1000, 0.5), level=0.95
    )  # as many images in half as many clusters
    assert doubled == pytest.approx(found, rel=0.1)


def test_with_as_many_images_as_estimated_a_threshold_is_found_about_half_the_time():
    estimates, targets = [], Targets(error=0.08)
    for seed in range(10):
        first, second = halves(drawn(150, seed=seed, sharpness=3.0))
        confidence = Scored.of(second, temperature_of(first)).confidence
        estimates.append(
            needed_images(confidence, second.wrong, weights=second.weights, error=0.08, level=0.95)
        )
    typical = sorted(10**9 if value is None else value for value in estimates)[5]
    found = [
        fit(*halves(drawn(round(typical / 0.75), seed=seed, sharpness=3.0)), targets=targets)
        for seed in range(100, 140)
    ]
    assert 0.2 < np.mean([one.threshold is not None for one in found]) < 0.95
