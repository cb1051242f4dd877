"""Which pairs are compared, on which pictures, and what counts as the best."""

import pytest
from handmade import FIVE, dataset, random_says, write_run

from dtpt.errors import ReportError
from dtpt.report import Contender, gather
from dtpt.report.comparison import (
    COMPARED,
    Resampling,
    check_against,
    compare_conditions,
    compare_families,
    pooled_methods,
)
from dtpt.report.tables.pooled import difference_tables, pooled_table
from dtpt.report.verdict import verdicts

FEW = Resampling(resamples=200)


@pytest.fixture(scope="module")
def families(five_methods):
    return compare_families(five_methods.conditions[0], FEW)


def test_every_method_is_compared_with_zero_shot_and_with_tpt_once(families) -> None:
    first, second = families
    pairs = list(dict.fromkeys((c.first, c.second) for c in first.comparisons))
    others = ["c-tpt@50", "o-tpt@18", "d-tpt@100000"]
    assert pairs == [
        ("tpt", "zero-shot"),
        *((name, "zero-shot") for name in others),
        *((name, "tpt") for name in others),
    ]
    assert {c.metric for c in first.comparisons} == set(COMPARED)
    assert (first.pictures, len(first.sets)) == (80, 2)
    assert second.title == "Natural distribution shifts"


def test_intervals_are_corrected_for_rows_metrics_and_families(families) -> None:
    found = families[0].comparisons
    assert found[0].comparisons == len(found) == 7 * len(COMPARED)
    assert found[0].level == pytest.approx(1 - 0.05 / 2 / len(found))
    assert all(c.low <= c.estimate <= c.high for c in found)


def test_differences_are_those_of_the_pooled_values(families) -> None:
    tpt, zero = Contender("tpt"), Contender("zero-shot")
    found = families[0].difference(tpt, zero, metric="signed_gap")
    expected = families[0].value(tpt, "signed_gap") - families[0].value(zero, "signed_gap")
    assert found.estimate == pytest.approx(expected)
    assert families[0].difference(zero, tpt, metric="signed_gap") is None


def test_a_method_that_lacks_pictures_is_not_compared(tmp_path) -> None:
    sets = [dataset("pets", samples=9), dataset("cars", samples=9, methods=FIVE[:3])]
    (condition,) = gather([write_run(tmp_path, sets, random_says())]).conditions
    assert [c.method for c in pooled_methods(condition, "fine-grained")] == [
        "zero-shot",
        "tpt",
        "c-tpt",
    ]


def test_a_lonely_method_is_compared_with_nothing(tmp_path) -> None:
    run = write_run(tmp_path, [dataset(methods=FIVE[:1])], random_says())
    assert compare_families(gather([run]).conditions[0], FEW) == ()


def test_the_best_is_named_only_where_it_is_told_from_all(tmp_path) -> None:
    rights = {"zero-shot": 3, "tpt": 9, "c-tpt": 3}
    run = write_run(
        tmp_path,
        [dataset(samples=100, methods=FIVE[:3])],
        lambda cell, i: (i % 10 < rights[cell.method], 0.6),
    )
    (one,) = compare_families(gather([run]).conditions[0], FEW)
    assert one.best("accuracy") == Contender("tpt")
    assert one.best("absolute_gap") is None  # 0.3 from 0.6 in all three
    assert one.best("signed_gap") is None  # no sign is better
    table = pooled_table(one, key="t")
    assert [row.entries[0].separated for row in table.rows] == [False, True, False]


def test_tables_of_differences_have_signs_and_intervals(families) -> None:
    from dtpt.report.tables import markdown

    against_zero, against_tpt = difference_tables(families[0], prefix="p")
    assert against_zero.rows[0].contender.label == "tpt"
    assert "tpt" not in [row.contender.label for row in against_tpt.rows]
    text = markdown(against_zero)
    assert "+" in text
    assert "−" in text
    assert " [" in text
    assert against_zero.key == "p-against-zero-shot"


def test_the_floor_stands_under_the_pooled_ece(families) -> None:
    table = pooled_table(families[0], key="t")
    heads = [column.metric.key for column in table.columns]
    ((_, *texts),) = table.foot
    assert [bool(text) for text in texts] == [head == "ece" for head in heads]


def test_an_unknown_method_to_compare_with_is_refused(families) -> None:
    with pytest.raises(ReportError, match="'tpts': no run holds all pictures of it; there are"):
        check_against(families, ["zero-shot", "tpts"])


def test_the_level_is_that_of_all_conditions_together(five_methods) -> None:
    (condition,) = five_methods.conditions
    alone = compare_families(condition, FEW)
    twice = compare_conditions([condition, condition], FEW)
    assert [one.level for one in alone] == pytest.approx([0.975, 0.975])
    assert [one.level for several in twice for one in several] == pytest.approx([0.9875] * 4)


@pytest.mark.parametrize("methods", [FIVE, FIVE[:1]])
def test_the_verdict_counts_the_pictures_that_could_be_read(tmp_path, methods) -> None:
    def done(cell, index):
        return "failed" if index < 3 else "ok"

    run = write_run(tmp_path, [dataset(samples=40, methods=methods)], random_says(), done=done)
    (condition,) = gather([run]).conditions
    (verdict,) = verdicts(condition, compare_families(condition, FEW))
    assert "37 of 40 pictures" in verdict.where


def test_a_handful_of_right_answers_has_no_interval_and_none_is_impossible(tmp_path) -> None:
    def says(cell, index):
        return index > 0 or cell.method == "tpt", 0.6 + 0.1 * index

    entry = dataset(samples=3, methods=(("zero-shot", None), ("tpt", None)))
    (condition,) = gather([write_run(tmp_path, [entry], says)]).conditions
    (one,) = compare_families(condition, FEW)
    assert one.value(Contender("tpt"), "accuracy") == 1.0
    assert one.interval(Contender("tpt"), "accuracy") is None
    found = one.interval(Contender("zero-shot"), "accuracy")
    assert (found.low, found.high) == (0.0, 1.0)
    intervals = [row.entries[0].interval for row in pooled_table(one, key="p").rows]
    assert [interval is None for interval in intervals] == [False, True]
