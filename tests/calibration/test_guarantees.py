"""Promises are kept as often as they say, in worlds whose truth is known."""

import math

import numpy as np
import pytest
from worlds import drawn, voted

from dtpt.calibration import Labelled, Levels, fit, judge, random_splits

DRAWS = 200
LABELLED = 400
WORLDS = {
    "calibrated": lambda count, seed: drawn(count, seed=seed),
    "overconfident": lambda count, seed: drawn(count, seed=seed, overconfidence=3.0),
    "votes": lambda count, seed: voted(count, seed=seed),
}


@pytest.fixture(scope="module", params=WORLDS)
def many(request):
    """Coverage (LAC, APS) and error of promises from many draws; 2,000 pictures are the world."""
    levels = Levels(coverage=0.9, error=0.1, confidence=0.9)
    world, rng = WORLDS[request.param](2000, 0), np.random.default_rng(1)
    found = []
    for _ in range(DRAWS):
        rows = world.take(rng.integers(len(world), size=LABELLED))  # independent draws
        first = np.arange(LABELLED) < LABELLED // 4
        numbers = fit(rows.take(first), rows.take(~first), levels=levels)
        lac = judge(numbers, world)
        error = lac.error if lac.answered.any() else 0.0
        found.append((lac.coverage, judge(numbers, world, sets="aps").coverage, error))
    return request.param, levels, np.array(found)


def test_sets_hold_the_true_class_as_often_as_promised(many):
    _, levels, found = many
    noise = 3 * found[:, :2].std(axis=0) / math.sqrt(DRAWS)
    assert (found[:, :2].mean(axis=0) >= levels.coverage - noise).all()


def test_sets_are_not_wider_than_promised_where_nothing_is_tied(many):
    world, levels, found = many
    if world == "votes":
        pytest.skip("ties can only be let in together")
    assert found[:, 0].mean() <= levels.coverage + 0.02


def test_errors_exceed_their_level_no_more_often_than_promised(many):
    _, levels, found = many
    broken = (found[:, 2] > levels.error).mean()
    allowed = 1 - levels.confidence
    assert broken <= allowed + 3 * math.sqrt(allowed * (1 - allowed) / DRAWS)


def test_answers_are_given_where_the_world_allows_it(many):
    _, _, found = many
    assert (found[:, 2] > 0).mean() > 0.5


def test_a_threshold_chosen_by_its_own_errors_would_break_the_promise():
    """The order of tests matters: without it, the same bound fails far too often."""
    levels = Levels(error=0.1, confidence=0.9)
    truth = drawn(5000, seed=10**6)
    broken = 0
    for seed in range(100):
        rows = drawn(200, seed=seed)
        sure = np.exp(rows.log_probabilities.max(axis=1))
        order = np.argsort(-sure)
        rates = np.cumsum(rows.wrong[order]) / np.arange(1, 201)
        lenient = np.flatnonzero(rates <= levels.error)
        if len(lenient):
            answered = np.exp(truth.log_probabilities.max(axis=1)) >= sure[order[lenient[-1]]]
            broken += truth.wrong[answered].mean() > levels.error
    assert broken / 100 > 0.25


@pytest.mark.parametrize("world", WORLDS)
def test_random_splits_keep_what_is_promised(world):
    rows = WORLDS[world](800, 5)
    found = random_splits(rows, splits=100, levels=Levels(error=0.1), seed=1)
    assert found.coverage.mean() >= 0.9 - 0.005
    assert found.coverage_aps.mean() >= 0.9 - 0.005
    assert found.kept >= 0.95


def test_splits_are_the_same_with_the_same_seed():
    rows = drawn(200, seed=2)
    one, two, other = (
        random_splits(rows, splits=3, levels=Levels(), seed=seed) for seed in (0, 0, 1)
    )
    assert one.coverage.tolist() == two.coverage.tolist() != other.coverage.tolist()


def test_equal_confidence_is_answered_together():
    rows = voted(2000, seed=3)
    first = np.arange(2000) < 500
    numbers = fit(rows.take(first), rows.take(~first), levels=Levels(error=0.2))
    judged = judge(numbers, rows)
    by_confidence = {}
    for value, answered in zip(judged.confidence.tolist(), judged.answered.tolist(), strict=True):
        by_confidence.setdefault(value, set()).add(answered)
    assert all(len(kinds) == 1 for kinds in by_confidence.values())
    assert judged.answered.any()
    assert not judged.answered.all()


def test_a_row_alone_is_judged_like_the_row_among_others():
    rows = voted(300, seed=4)
    first = np.arange(300) < 75
    numbers = fit(rows.take(first), rows.take(~first), levels=Levels(error=0.2))
    whole = judge(numbers, rows)
    for k in range(0, 300, 30):
        alone = judge(numbers, rows.take(np.array([k])))
        assert alone.confidence[0] == whole.confidence[k]
        assert (alone.size[0], alone.answered[0]) == (whole.size[k], whole.answered[k])


def test_labelled_rows_of_one_order_of_classes_are_as_good_as_of_another():
    rows = drawn(400, seed=6)
    turned = Labelled.of(
        rows.log_probabilities[:, ::-1], 9 - rows.labels, predictions=9 - rows.predictions
    )
    first = np.arange(400) < 100
    one, two = (fit(r.take(first), r.take(~first), levels=Levels()) for r in (rows, turned))
    assert one.lac == pytest.approx(two.lac, abs=1e-8)
    assert one.aps == pytest.approx(two.aps, abs=1e-8)
    assert one.given == two.given
