"""What labelled pictures can carry a promise, and what is said of those that cannot."""

import math

import numpy as np
import pytest
from worlds import drawn, voted

from dtpt.calibration import Labelled, Levels, cross_fit, fit, judge, state, temperature_part
from dtpt.calibration.abstention import least_answers, most_lenient, threshold_sequence
from dtpt.calibration.conformal import least_pictures, score_limit
from dtpt.calibration.fitting import temperature_of
from dtpt.calibration.scores import aps_scores, calibrated, lac_scores
from dtpt.calibration.words import promised, remarks
from dtpt.errors import PromiseError
from dtpt.metrics import binomial_upper_bound, fit_temperature


def halves(rows):
    first = np.arange(len(rows)) < len(rows) // 4
    return rows.take(first), rows.take(~first)


def with_answers(rows, *, right):
    """The same probabilities, with labels that make all answers right or all wrong."""
    classes = rows.log_probabilities.shape[1]
    labels = rows.predictions if right else (rows.predictions + 1) % classes
    return Labelled(rows.log_probabilities, labels, rows.predictions)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_a_level_of_coverage_needs_so_many_pictures_and_no_more(coverage):
    least = least_pictures(coverage)
    assert least >= coverage / (1 - coverage) - 1e-9
    assert score_limit(np.arange(least) / least, coverage) == (least - 1) / least
    with pytest.raises(PromiseError, match=f"needs at least {least} "):
        score_limit(np.arange(least - 1) / least, coverage)


def test_five_pictures_promise_nothing():
    with pytest.raises(PromiseError, match="cannot promise a coverage of 90 %"):
        fit(*halves(drawn(5, seed=0)), levels=Levels())


def test_pictures_of_one_class_are_refused():
    rows = drawn(400, seed=0)
    same = rows.take(rows.labels == 3)
    with pytest.raises(PromiseError, match="are of class 3"):
        fit(*halves(same), levels=Levels())


def test_answers_that_are_all_wrong_are_refused():
    rows = with_answers(drawn(400, seed=0), right=False)
    with pytest.raises(PromiseError, match="None of the 400 answers is right"):
        fit(*halves(rows), levels=Levels())


def test_answers_that_are_all_right_leave_the_temperature_at_one_and_say_so():
    rows = with_answers(drawn(400, seed=0), right=True)
    found = fit(*halves(rows), levels=Levels())
    assert found.temperature == 1.0
    assert found.threshold == 0.0
    assert found.wrong == 0
    assert any("all 100 answers for it are right" in text for text in remarks(*halves(rows)))


def test_no_pictures_at_all_are_too_few():
    rows = drawn(20, seed=0)
    none = rows.take(np.zeros(20, bool))
    with pytest.raises(PromiseError, match="too few"):
        fit(none, rows, levels=Levels())


def test_a_model_that_is_too_often_wrong_gives_no_answer_and_says_so():
    rows, levels = drawn(400, seed=0, sharpness=0.5), Levels(error=0.02)
    found = fit(*halves(rows), levels=levels)
    assert found.threshold is None
    assert not judge(found, rows).answered.any()
    assert math.isnan(judge(found, rows).error)
    assert "No answer is ever given" in promised(found, levels, sets="lac", pictures=300)[1]


@pytest.mark.parametrize("name", ["coverage", "error", "confidence"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, 90.0, float("nan")])
def test_levels_that_make_no_sense_are_refused_by_name(name, value):
    levels = {"coverage": 0.9, "error": 0.05, "confidence": 0.95} | {name: value}
    with pytest.raises(PromiseError, match=name):
        Levels.checked(**levels)


def test_the_temperature_is_that_of_the_metrics_and_undoes_overconfidence():
    rows = drawn(4000, seed=1, overconfidence=3.0)
    found = temperature_of(rows)
    assert found == fit_temperature(rows.log_probabilities, rows.labels)
    assert found == pytest.approx(3.0, rel=0.1)


def test_temperature_and_threshold_come_from_different_pictures():
    """Labels of the second part change nothing that was decided on the first."""
    first, second = halves(drawn(800, seed=2))
    other = with_answers(second, right=True)
    one, two = (fit(first, part, levels=Levels()) for part in (second, other))
    assert one.temperature == two.temperature
    assert one.lac > two.lac


def test_sets_agree_with_their_definitions():
    p = np.array([[0.5, 0.3, 0.15, 0.05]])
    assert lac_scores(p).tolist() == [[0.5, 0.7, 0.85, 0.95]]
    assert aps_scores(p).tolist() == [[0.0, 0.5, 0.8, 0.95]]


def test_equal_classes_enter_a_set_together_and_no_set_is_empty():
    with np.errstate(divide="ignore"):
        tied = np.log(np.array([[0.4, 0.2, 0.2, 0.2], [0.25] * 4, [1.0, 0.0, 0.0, 0.0]]))
    found = fit(*halves(drawn(400, seed=0)), levels=Levels())
    for limit in (0.0, 0.3, 0.5, 0.8, 1.0):
        numbers = found.model_copy(update={"temperature": 1.0, "lac": limit, "aps": limit})
        for kind in ("lac", "aps"):
            members = state(numbers, tied, predictions=[0, 0, 0], sets=kind).members
            assert len(set(members[0, 1:].tolist())) == 1
            assert members.sum(axis=1).min() >= 1


def test_thresholds_go_from_strict_to_lenient_and_end_with_everything():
    sure = np.random.default_rng(0).random(100)
    order = threshold_sequence(sure, 300, error=0.05, level=0.95)
    assert (np.diff(order) < 0).all()
    assert order[-1] == 0.0


def test_what_passes_at_one_level_of_error_passes_at_a_larger_one():
    for seed in range(20):
        first, second = halves(drawn(800, seed=seed, sharpness=4.0))
        levels = [Levels(error=error) for error in (0.05, 0.1, 0.2, 0.3)]
        found = [fit(first, second, levels=level).threshold for level in levels]
        values = [1.1 if value is None else value for value in found]
        assert values == sorted(values, reverse=True), found


def test_the_search_ends_at_the_first_failure():
    """A lenient threshold that would pass is not reached behind one that fails."""
    sure = np.repeat([0.9, 0.5, 0.1], [100, 100, 2000])
    slips = np.zeros(2200, bool)
    slips[100:140] = True
    found = most_lenient(sure, slips, thresholds=np.array([0.8, 0.4, 0.0]), error=0.05, level=0.95)
    assert found.value == 0.8
    assert binomial_upper_bound(40, 2200) < 0.05


def test_a_threshold_that_nobody_reaches_proves_nothing():
    found = most_lenient(
        np.full(50, 0.2), np.zeros(50, bool), thresholds=np.array([0.9]), error=0.1, level=0.95
    )
    assert found.value is None


@pytest.mark.parametrize(("error", "level"), [(0.05, 0.95), (0.1, 0.9), (0.01, 0.99)])
def test_the_least_number_of_answers_is_that_of_the_exact_bound(error, level):
    least = least_answers(error, level)
    assert binomial_upper_bound(0, least, level=level) <= error + 1e-12
    assert binomial_upper_bound(0, least - 1, level=level) > error


def test_the_parts_are_the_same_on_every_machine():
    ids = [f"picture/{k:04d}.png" for k in range(2000)]
    part = temperature_part(ids)
    assert part[:12].tolist() == temperature_part(ids[:12]).tolist()
    assert 0.21 < part.mean() < 0.29


def test_cross_fitting_judges_every_picture_once_and_none_by_itself():
    rows = drawn(800, seed=3)
    ids = [str(k) for k in range(800)]
    judged = cross_fit(rows, ids, levels=Levels(error=0.1))
    assert len(judged.hit) == 800
    assert judged.wrong.sum() == rows.wrong.sum()
    assert judged.coverage == pytest.approx(0.9, abs=0.05)
    assert judged.error <= 0.12


def test_votes_keep_their_ties_through_the_temperature():
    rows = voted(200, seed=0)
    p = calibrated(rows.log_probabilities, 1.7)
    assert len(np.unique(p)) < 60


@pytest.mark.parametrize(
    ("log_p", "labels", "predictions", "reason"),
    [
        (np.log([[0.5, 0.5]]), [0, 1], [0], "do not belong together"),
        (np.log([[0.5, 0.5]]), [2], [0], "A label is 2; expected 0 to 1"),
        (np.log([[0.5, 0.5]]), [0], [-1], "A prediction is -1"),
        ([[np.nan, 0.0]], [0], [0], "without NaN"),
        ([0.0, 1.0], [0], [0], "pictures, classes"),
    ],
)
def test_answers_that_make_no_sense_are_named(log_p, labels, predictions, reason):
    with pytest.raises(PromiseError, match=reason):
        Labelled.of(log_p, labels, predictions=predictions)
