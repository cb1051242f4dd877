"""Temperatures and λ come from other data sets than those they are shown on."""

import pytest
from handmade import dataset, write_run

from dtpt.report import Variant, load_runs
from dtpt.report.derived import (
    FRACTION,
    TEMPERED,
    chosen_variant,
    shown_variants,
    with_derived_rows,
)
from dtpt.report.load import LeaveOneOut

METHODS = (("zero-shot", None), ("tpt", None), ("d-tpt", 1e5), ("d-tpt", 1e6))
RIGHT = {"pets": 5, "cars": 8, "cows": 8}  # of ten images; all answers are 80 % sure
CHOSEN = Variant("d-tpt", derived="chosen")


def says(cell, index):
    """Only pets are overconfident; the larger λ is the better one on pets, worse elsewhere."""
    is_right = index % 10 < RIGHT[cell.dataset]
    if cell.method != "d-tpt":
        return is_right, 0.8
    good = (cell.lambda_ == 1e6) == (cell.dataset == "pets")
    return is_right, RIGHT[cell.dataset] / 10 if good else 0.99


def condition_of(folder, sets=tuple(RIGHT), *, fitted=None, keep=True):
    entries = [dataset(name, samples=20, methods=METHODS) for name in sets]
    with load_runs([write_run(folder, entries, says, keep=keep)]) as loaded:
        return with_derived_rows(loaded, fitted).conditions[0]


def test_a_set_has_no_part_in_its_own_temperature(tmp_path) -> None:
    entries = [dataset(name, samples=20, methods=METHODS) for name in RIGHT]
    with load_runs([write_run(tmp_path, entries, says)]) as loaded:
        found = with_derived_rows(loaded).conditions[0].fitted.temperatures
    assert found["pets"] == pytest.approx(1.0, abs=0.01)  # cars and cows are calibrated
    assert found["cars"] == found["cows"] > 1.3  # pets are not


def test_a_temperature_changes_confidence_and_no_answer(tmp_path) -> None:
    condition = condition_of(tmp_path)
    plain, warm = (condition.finished("cars", c)[0] for c in (Variant("tpt"), TEMPERED))
    assert (plain.column("correct") == warm.column("correct")).all()
    assert (warm.column("confidence") < plain.column("confidence")).all()
    assert warm.metric("nll") != plain.metric("nll")


def test_the_chosen_lambda_is_that_of_the_other_sets(tmp_path) -> None:
    condition = condition_of(tmp_path)
    for name, weight in (("pets", 1e5), ("cars", 1e6)):
        (shown,) = condition.finished(name, CHOSEN)
        (stored,) = condition.finished(name, Variant("d-tpt", weight))
        assert shown is stored


FRACTIONS = (("mean-views", None), ("zero-shot+views=0.5", None), ("zero-shot+views=1", None))
BEST_FRACTION = {"pets": "mean-views", "cars": "zero-shot+views=0.5", "cows": "zero-shot+views=0.5"}


def fraction_says(cell, index):
    """Half of the answers are right, and each set is calibrated at one fraction only."""
    return index % 2 == 0, 0.5 if cell.method == BEST_FRACTION[cell.dataset] else 0.95


def test_the_fraction_of_views_is_that_of_the_other_sets(tmp_path) -> None:
    sets = [dataset(name, samples=20, methods=FRACTIONS) for name in BEST_FRACTION]
    with load_runs([write_run(tmp_path, sets, fraction_says)]) as loaded:
        condition = with_derived_rows(loaded).conditions[0]
    selected = {name: chosen[FRACTION.label] for name, chosen in condition.fitted.variants.items()}
    assert selected["pets"] == Variant("zero-shot+views=0.5")
    (shown,) = condition.finished("pets", FRACTION)
    assert shown.metric("nll") > condition.finished("pets", Variant("mean-views"))[0].metric("nll")


def test_rows_that_are_read_from_other_views_of_another_method_are_not_candidates() -> None:
    names = {"mean-views": True, "zero-shot+views=0.1": True, "zero-shot": False}
    names |= {"tpt+views=0.1": False, "zero-shot+views=0.1+sals": False, "mean-logits": False}
    assert {name: Variant(name).is_mean_of_views for name in names} == names


def test_a_set_alone_gets_no_derived_row(tmp_path) -> None:
    condition = condition_of(tmp_path, ("pets",))
    assert condition.variants() == condition.stored_variants()


def test_without_stored_probabilities_there_is_no_temperature(tmp_path) -> None:
    condition = condition_of(tmp_path, keep=False)
    assert TEMPERED not in condition.variants()
    assert CHOSEN in condition.variants()


def test_what_another_run_fitted_is_used_as_it_is(tmp_path) -> None:
    chosen = {"pets": {CHOSEN.label: Variant("d-tpt", 1e6)}}
    fitted = LeaveOneOut({"pets": 1.0, "cars": 100.0}, chosen)
    condition = condition_of(tmp_path, fitted=fitted)
    (same,) = condition.finished("pets", TEMPERED)
    (flat,) = condition.finished("cars", TEMPERED)
    assert same.column("confidence") == pytest.approx(0.8, abs=1e-3)
    assert flat.column("confidence") == pytest.approx(1 / 3, abs=0.01)
    assert not condition.finished("cows", TEMPERED)
    (chosen,) = condition.finished("pets", CHOSEN)
    assert chosen.column("confidence") == pytest.approx(0.5)


GRID = (("tpt", None), ("d-tpt", 1e4), ("d-tpt", 1e5), ("d-tpt", 1e6))
BEST_LAMBDA = {"pets": 1e4, "cars": 1e6, "cows": 1e6}


def grid_says(cell, index):
    """Half of the answers are right; the closer to its best λ, the better a set's loss."""
    is_right = index % 2 == 0
    if cell.lambda_ is None:
        return is_right, 0.5
    return is_right, 0.95 if cell.lambda_ != BEST_LAMBDA[cell.dataset] else 0.5


@pytest.fixture
def sweep(tmp_path):
    sets = [dataset(name, samples=6, methods=GRID) for name in BEST_LAMBDA]
    with load_runs([write_run(tmp_path, sets, grid_says)]) as loaded:
        yield loaded.conditions[0]


def test_a_set_does_not_choose_its_own_lambda(sweep) -> None:
    assert chosen_variant(sweep, "pets", method="d-tpt").lambda_ == 1e6
    shown = shown_variants(sweep, "pets")
    assert shown == (Variant("tpt"), Variant("d-tpt", 1e6))


def test_a_set_alone_shows_the_authors_lambda_or_the_middle_one(tmp_path) -> None:
    for name, grid, expected in (("a", GRID, 1e5), ("b", (GRID[1], GRID[3], ("d-tpt", 1e7)), 1e6)):
        run = write_run(tmp_path / name, [dataset(methods=grid)], lambda cell, i: (i > 0, 0.9))
        with load_runs([run]) as loaded:
            (condition,) = loaded.conditions
            assert chosen_variant(condition, "pets", method="d-tpt").lambda_ == expected
