"""Temperatures and weights come from other data sets than those they are shown on."""

import pytest
from handmade import dataset, write_run

from dtpt.report import Contender, gather
from dtpt.report.derived_rows import FittedElsewhere, fit_elsewhere, with_derived_rows
from dtpt.report.tables import family_table, table_records

METHODS = (("zero-shot", None), ("tpt", None), ("d-tpt", 1e5), ("d-tpt", 1e6))
RIGHT = {"pets": 5, "cars": 8, "cows": 8}  # of ten pictures; all answers are 80 % sure
TEMPERED = Contender("tpt", derived="temperature")
CHOSEN = Contender("d-tpt", derived="chosen")


def says(cell, index):
    """Only pets are overconfident; the larger weight is the better one on pets, worse elsewhere."""
    is_right = index % 10 < RIGHT[cell.dataset]
    if cell.method != "d-tpt":
        return is_right, 0.8
    good = (cell.lambda_ == 1e6) == (cell.dataset == "pets")
    return is_right, RIGHT[cell.dataset] / 10 if good else 0.99


def condition_of(folder, sets=tuple(RIGHT), *, fitted=None, keep=True):
    entries = [dataset(name, samples=20, methods=METHODS) for name in sets]
    with gather([write_run(folder, entries, says, keep=keep)]) as gathered:
        return with_derived_rows(gathered, fitted).conditions[0]


def test_a_set_has_no_part_in_its_own_temperature(tmp_path) -> None:
    entries = [dataset(name, samples=20, methods=METHODS) for name in RIGHT]
    with gather([write_run(tmp_path, entries, says)]) as gathered:
        found = fit_elsewhere(gathered.conditions[0]).temperatures
    assert found["pets"] == pytest.approx(1.0, abs=0.01)  # cars and cows are calibrated
    assert found["cars"] == found["cows"] > 1.3  # pets are not


def test_a_temperature_changes_confidence_and_no_answer(tmp_path) -> None:
    condition = condition_of(tmp_path)
    plain, warm = (condition.finished("cars", c)[0] for c in (Contender("tpt"), TEMPERED))
    assert (plain.correct == warm.correct).all()
    assert (warm.confidence < plain.confidence).all()
    assert warm.metric("nll") != plain.metric("nll")


def test_the_chosen_weight_is_that_of_the_other_sets(tmp_path) -> None:
    condition = condition_of(tmp_path)
    for name, weight in (("pets", 1e5), ("cars", 1e6)):
        (shown,) = condition.finished(name, CHOSEN)
        (stored,) = condition.finished(name, Contender("d-tpt", weight))
        assert (shown.confidence == stored.confidence).all()


def test_derived_rows_stand_in_tables_and_say_what_they_are(tmp_path) -> None:
    table = family_table(condition_of(tmp_path), "fine-grained", key="t")
    titles = [row.title for row in table.rows]
    assert titles[-2:] == [
        "D-TPT (λ chosen on the other sets)",
        "TPT + temperature (fitted on the other sets)",
    ]
    assert {record["derived"] for record in table_records([table])} == {
        "",
        "chosen",
        "temperature",
    }


def test_a_set_alone_gets_no_derived_row(tmp_path) -> None:
    condition = condition_of(tmp_path, ("pets",))
    assert condition.contenders() == condition.stored_contenders()


def test_without_stored_probabilities_there_is_no_temperature(tmp_path) -> None:
    condition = condition_of(tmp_path, keep=False)
    assert TEMPERED not in condition.contenders()
    assert CHOSEN in condition.contenders()


def test_what_another_run_fitted_is_used_as_it_is(tmp_path) -> None:
    fitted = FittedElsewhere({"pets": 1.0, "cars": 100.0}, {("d-tpt", "pets"): 1e6})
    condition = condition_of(tmp_path, fitted=fitted)
    (same,) = condition.finished("pets", TEMPERED)
    (flat,) = condition.finished("cars", TEMPERED)
    assert same.confidence == pytest.approx(0.8, abs=1e-3)
    assert flat.confidence == pytest.approx(1 / 3, abs=0.01)
    assert not condition.finished("cows", TEMPERED)
    (chosen,) = condition.finished("pets", CHOSEN)
    assert chosen.confidence == pytest.approx(0.5)
