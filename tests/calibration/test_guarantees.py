"""Guarantees hold as often as stated, on simulated data with a known distribution."""

import math

import numpy as np
import pytest
from simulated import drawn, voted

from dtpt.calibration import LabelledPredictions, Targets, check_splits, fit
from dtpt.calibration.checking import evaluate_fit

DRAWS = 200
LABELLED = 400
POPULATIONS = {
    "calibrated": lambda count, seed: drawn(count, seed=seed),
    "overconfident": lambda count, seed: drawn(count, seed=seed, overconfidence=3.0),
    "votes": lambda count, seed: voted(count, seed=seed),
}


@pytest.fixture(scope="module", params=POPULATIONS)
def many(request):
    """Coverage (LAC, APS) and error of fits on many draws; 2,000 images are the population."""
    targets = Targets(coverage=0.9, error=0.1, confidence=0.9)
    population, rng = POPULATIONS[request.param](2000, 0), np.random.default_rng(1)
    found = []
    for _ in range(DRAWS):
        rows = population.take(rng.integers(len(population), size=LABELLED))  # independent draws
        first = np.arange(LABELLED) < LABELLED // 4
        numbers = fit(rows.take(first), rows.take(~first), targets=targets)
        lac = evaluate_fit(numbers, population)
        error = lac.error if lac.accepted.any() else 0.0
        found.append((lac.coverage, evaluate_fit(numbers, population, sets="aps").coverage, error))
    return request.param, targets, np.array(found)


def test_sets_reach_the_target_coverage(many):
    _, targets, found = many
    noise = 3 * found[:, :2].std(axis=0) / math.sqrt(DRAWS)
    assert (found[:, :2].mean(axis=0) >= targets.coverage - noise).all()


def test_sets_are_not_too_wide_where_nothing_is_tied(many):
    population, targets, found = many
    if population == "votes":
        pytest.skip("ties are admitted together")
    assert found[:, 0].mean() <= targets.coverage + 0.02


def test_errors_exceed_their_target_no_more_often_than_stated(many):
    _, targets, found = many
    broken = (found[:, 2] > targets.error).mean()
    allowed = 1 - targets.confidence
    assert broken <= allowed + 3 * math.sqrt(allowed * (1 - allowed) / DRAWS)


def test_predictions_are_accepted_where_possible(many):
    _, _, found = many
    assert (found[:, 2] > 0).mean() > 0.5


def test_a_threshold_chosen_by_its_own_errors_would_be_invalid():
    """The order of tests matters: without it, the same bound fails far too often."""
    targets = Targets(error=0.1, confidence=0.9)
    truth = drawn(5000, seed=10**6)
    broken = 0
    for seed in range(100):
        rows = drawn(200, seed=seed)
        sure = np.exp(rows.log_probabilities.max(axis=1))
        order = np.argsort(-sure)
        rates = np.cumsum(rows.wrong[order]) / np.arange(1, 201)
        lenient = np.flatnonzero(rates <= targets.error)
        if len(lenient):
            answered = np.exp(truth.log_probabilities.max(axis=1)) >= sure[order[lenient[-1]]]
            broken += truth.wrong[answered].mean() > targets.error
    assert broken / 100 > 0.25


@pytest.mark.parametrize("population", POPULATIONS)
def test_random_splits_reach_the_targets(population):
    rows = POPULATIONS[population](800, 5)
    found = check_splits(rows, splits=100, targets=Targets(error=0.1), seed=1)
    assert found.coverage.mean() >= 0.9 - 0.005
    assert found.coverage_aps.mean() >= 0.9 - 0.005
    assert found.valid >= 0.95


def test_splits_are_the_same_with_the_same_seed():
    rows = drawn(200, seed=2)
    one, two, other = (
        check_splits(rows, splits=3, targets=Targets(), seed=seed) for seed in (0, 0, 1)
    )
    assert one.coverage.tolist() == two.coverage.tolist() != other.coverage.tolist()


def test_equal_confidence_is_accepted_together():
    rows = voted(2000, seed=3)
    first = np.arange(2000) < 500
    numbers = fit(rows.take(first), rows.take(~first), targets=Targets(error=0.2))
    evaluated = evaluate_fit(numbers, rows)
    by_confidence = {}
    for value, accepted in zip(
        evaluated.confidence.tolist(), evaluated.accepted.tolist(), strict=True
    ):
        by_confidence.setdefault(value, set()).add(accepted)
    assert all(len(kinds) == 1 for kinds in by_confidence.values())
    assert evaluated.accepted.any()
    assert not evaluated.accepted.all()


def test_a_row_alone_is_evaluated_like_the_row_among_others():
    rows = voted(300, seed=4)
    first = np.arange(300) < 75
    numbers = fit(rows.take(first), rows.take(~first), targets=Targets(error=0.2))
    whole = evaluate_fit(numbers, rows)
    for k in range(0, 300, 30):
        alone = evaluate_fit(numbers, rows.take(np.array([k])))
        assert alone.confidence[0] == whole.confidence[k]
        assert (alone.size[0], alone.accepted[0]) == (whole.size[k], whole.accepted[k])


def test_labelled_rows_of_one_order_of_classes_are_as_good_as_of_another():
    rows = drawn(400, seed=6)
    turned = LabelledPredictions.of(
        rows.log_probabilities[:, ::-1], 9 - rows.labels, predictions=9 - rows.predictions
    )
    first = np.arange(400) < 100
    one, two = (fit(r.take(first), r.take(~first), targets=Targets()) for r in (rows, turned))
    assert one.lac == pytest.approx(two.lac, abs=1e-8)
    assert one.aps == pytest.approx(two.aps, abs=1e-8)
    assert one.accepted == two.accepted
