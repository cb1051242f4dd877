"""What the paper's tables show: differences over data sets, winners, checks and claims."""

import json
import math
from importlib.resources import files

import numpy as np
import pytest
from scipy import stats

from dtpt.report.paper.checks import check_paper
from dtpt.report.paper.numbers import SET_TABLES, paper_columns
from dtpt.report.paper.reading import PAIRS, difference, read_paper
from dtpt.report.paper.reading_tables import reading_tables

CELLS = json.loads((files("dtpt.report.paper") / "tables.json").read_text())["cells"]
FACTS = read_paper()
FINE, SHIFTS = ("table4", "table5"), ("table6", "table7")


def column(table, method, metric):
    """The numbers of a row, read directly from the file; the printed mean is left out."""
    found = {c[3]: c[6] for c in CELLS if (c[0], c[4], c[5]) == (table, method, metric)}
    return {name: value for name, value in found.items() if not name.startswith("mean of")}


@pytest.mark.parametrize("table", SET_TABLES)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_difference_is_that_of_a_paired_t_test_over_the_sets(table, first, second) -> None:
    found = difference(table, "ece", first=first, second=second)
    values = [column(table, name, "ece") for name in (first, second)]
    ours, theirs = (np.array(list(part.values())) for part in values)
    expected = stats.ttest_rel(ours, theirs)
    assert (found.t, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.mean == pytest.approx((ours - theirs).mean())
    assert found.mean / found.t == pytest.approx(found.error)
    assert found.median == pytest.approx(np.median(ours - theirs))
    assert found.better == (ours < theirs).sum()
    assert found.sets == len(ours)


def test_the_gain_over_o_tpt_rests_on_two_sets() -> None:
    found = difference("table4", "ece", first="d-tpt", second="o-tpt")
    (one, without_one), (two, without_two) = found.without
    assert (one, two) == (("sun397",), ("dtd", "sun397"))
    assert round(without_one, 2) == -0.27
    assert round(without_two, 2) == 0.03
    aurc = difference("table5", "aurc", first="d-tpt", second="c-tpt")
    assert aurc.without[0][0] == ("eurosat",)
    assert round(aurc.without[0][1], 1) == 7.9


def test_sets_left_out_change_the_mean_more_than_any_others() -> None:
    for found in (d for part in FACTS.differences.values() for d in part):
        first, second = (column(found.table, m, found.metric) for m in (found.first, found.second))
        values = {name: first[name] - second[name] for name in first}
        singles = [
            abs(np.mean([v for other, v in values.items() if other != name]) - found.mean)
            for name in values
        ]
        assert abs(found.without[0][1] - found.mean) == pytest.approx(max(singles))
        assert len(found.without) == (2 if found.sets > 4 else 1)


def test_the_misprinted_block_is_compared_nowhere() -> None:
    assert {d.table for d in FACTS.differences["aurc"]} == {*SET_TABLES} - {"table6"}
    assert sum(FACTS.winners["data sets"]["aurc"].values()) == 26
    assert sum(FACTS.winners["data sets"]["ece"].values()) == 30


def test_who_is_best_how_often() -> None:
    assert FACTS.winners["data sets"]["ece"] == {
        "zero-shot": 10,
        "tpt": 0,
        "c-tpt": 8,
        "o-tpt": 3,
        "d-tpt": 9,
    }
    totals = [sum(part[m] for part in FACTS.winners["means"].values()) for m in ("tpt", "d-tpt")]
    assert totals == [4, 6]


def test_images_vary_less_than_data_sets_and_seeds_least() -> None:
    for found in FACTS.sources:
        assert 0 < found.seeds < found.images < found.sets.error
    variance = 0.0
    sizes = {"imagenet_a": 7500, "imagenet_v2": 10000, "imagenet_r": 30000}
    for name, images in {**sizes, "imagenet_sketch": 50889}.items():
        for method in ("d-tpt", "o-tpt"):
            rate = column("table6", method, "accuracy")[name] / 100
            variance += rate * (1 - rate) / images / 4**2
    assert FACTS.sources[2].images == pytest.approx(100 * math.sqrt(variance))
    assert FACTS.sources[2].seeds == pytest.approx(math.hypot(0.04, 0.07) / math.sqrt(3))


def test_bound_for_images_holds_for_simulated_eces() -> None:
    generator, n = np.random.default_rng(0), 400
    confidence = generator.beta(4, 2, n)
    bins = np.minimum((confidence * 20).astype(int), 19)
    rate = confidence**1.5
    right = generator.random((2000, n)) < rate
    gaps = np.stack([((right - confidence) * (bins == b)).sum(1) for b in range(20)])
    eces = np.abs(gaps).sum(0) / n
    assert eces.std() < math.sqrt(rate.mean() * (1 - rate.mean()) / n)


def test_checks_confirm_sizes_and_find_the_copied_block() -> None:
    found = {check.name: check for check in check_paper()}
    counts = [(check.checked, len(check.failed)) for check in found.values()]
    assert counts == [
        *((106, 0), (100, 5), (1200, 5), (150, 20), (150, 0)),  # means, copies, bounds
        *((30, 0), (120, 39), (120, 15), (120, 0)),  # zero-shot; one, two and three runs
    ]
    wrong = {name for check in list(found.values())[:5] for name in check.failed}
    assert {name.split()[0] for name in wrong} == {"table6"}


def test_another_test_size_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from dtpt.data.catalog import catalog_entry
    from dtpt.report.paper import checks

    def with_more_images(name):
        entry = catalog_entry(name)
        return entry.model_copy(update={"images": entry.images + (name == "dtd")})

    monkeypatch.setattr(checks, "catalog_entry", with_more_images)
    zero_shot = next(check for check in check_paper() if check.name.startswith("zero-shot"))
    assert zero_shot.failed
    assert all("dtd" in name for name in zero_shot.failed)


def exceptions(quote: str, index: int = 0) -> set[tuple[str, str, str, str]]:
    claim = [claim for claim in FACTS.claims if claim.quote == quote][index]
    return {
        (found.model[:4], found.column, found.metric, list(found.values)[-1])
        for found in claim.exceptions
    }


def test_claims_name_the_numbers_that_contradict_them() -> None:
    assert exceptions("but worse calibration performance", 1) == {
        ("ViT-", "caltech101", "ece", "tpt"),
        ("RN50", "oxford_pets", "ece", "tpt"),
        ("RN50", "stanford_cars", "ece", "tpt"),
    }
    shifts = "natural-shifts"
    assert exceptions("improved performance across all metrics") == {
        ("RN50", shifts, "accuracy", "tpt"),
        *(("RN50", shifts, metric, "zero-shot") for metric in ("ece", "aece", "mce")),
    }
    between = exceptions("competitive performance between C-TPT and O-TPT")  # rule: any
    assert {metric for _, _, metric, _ in between} == {"accuracy", "aurc"}
    best = exceptions("the best performance on most evaluation metrics")  # rule: all
    assert {metric for _, _, metric, _ in best} == {"accuracy", "ece", "aece", "mce"}
    assert exceptions("improvement across all metrics") == set()


def test_every_exception_has_the_printed_numbers_and_the_wrong_order() -> None:
    printed = {tuple(cell[:6]): cell[6] for cell in CELLS}
    for found in (entry for claim in FACTS.claims for entry in claim.exceptions):
        place = (found.table, found.model, found.prompt, found.column)
        for method, value in found.values.items():
            assert printed[*place, method, found.metric] == value
        own, *others = found.values.values()
        sign = 1 if found.metric == "accuracy" else -1
        assert all(sign * own <= sign * other for other in others)


def test_claims_quote_few_words() -> None:
    assert all(len(claim.quote.split()) <= 8 for claim in FACTS.claims)


def test_marks_correct_for_the_comparisons_of_the_table() -> None:
    rows = reading_tables(FACTS)["ece"].rows
    marks = [row.cells[2].mark for row in rows]
    count = len(rows)
    for mark, found in zip(marks, FACTS.differences["ece"], strict=True):
        assert (mark == "‡") == (found.p * count < 0.05)
        assert (mark != "") == (found.p < 0.05)
    assert {"", "†", "‡"} == set(marks)


def test_columns_are_whole() -> None:
    assert [len(paper_columns([table])) for table in (*FINE, *SHIFTS)] == [11, 11, 4, 4]
    assert len(paper_columns(["table3"], prompt="picture")) == 1
    assert len(paper_columns(SET_TABLES, means=True)) == 4
