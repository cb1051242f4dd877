"""The facts of a report: which pairs are compared, on which images, what is best, means by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from handmade import FIVE, dataset, random_says, write_run

from dtpt.errors import ReportError
from dtpt.metrics import metrics_with
from dtpt.report import Variant, load_runs
from dtpt.report.compare import method_rows, seconds_per_image
from dtpt.report.facts import (
    COMPARED,
    MEAN,
    Resampling,
    compare_conditions,
    family_methods,
    mean_and_spreads,
    mean_facts,
)
from dtpt.report.words import verdict_paragraphs

FEW = Resampling(resamples=200)
TPT, ZERO = Variant("tpt"), Variant("zero-shot")


def compare_families(condition, resampling=FEW):
    return compare_conditions([condition], resampling)[0]


@pytest.fixture(scope="module")
def families(five_methods):
    return compare_families(five_methods.conditions[0])


def test_every_method_is_compared_with_zero_shot_and_with_tpt_once(families) -> None:
    first, second = families
    pairs = list(dict.fromkeys((c.first, c.second) for c in first.comparisons))
    others = ["c-tpt@50", "o-tpt@18", "d-tpt@1e5"]
    assert pairs == [
        ("tpt", "zero-shot"),
        *((name, "zero-shot") for name in others),
        *((name, "tpt") for name in others),
    ]
    assert {c.metric for c in first.comparisons} == set(COMPARED)
    assert (first.images, len(first.sets)) == (80, 2)
    assert second.title == "Natural distribution shifts"


def test_intervals_are_corrected_for_rows_metrics_and_families(families) -> None:
    found = families[0].comparisons
    assert len(found) == 7 * len(COMPARED)
    assert found[0].comparisons == len(found) + 1  # whether the untuned model is overconfident
    assert found[0].level == pytest.approx(1 - 0.05 / 2 / (len(found) + 1))
    assert all(c.low <= c.estimate <= c.high for c in found)


def test_differences_are_those_of_the_values(families) -> None:
    facts = families[0]
    found = facts.difference(TPT, ZERO, metric="signed_gap")
    expected = facts.value(TPT, "signed_gap") - facts.value(ZERO, "signed_gap")
    assert found.estimate == pytest.approx(expected)
    assert facts.difference(ZERO, TPT, metric="signed_gap") is None


def test_a_method_that_lacks_images_is_not_compared(tmp_path) -> None:
    sets = [dataset("pets", samples=9), dataset("cars", samples=9, methods=FIVE[:3])]
    (condition,) = load_runs([write_run(tmp_path, sets, random_says())]).conditions
    methods = [variant.method for variant in family_methods(condition, "fine-grained")]
    assert methods == ["zero-shot", "tpt", "c-tpt"]


def test_a_lonely_method_is_compared_with_nothing(tmp_path) -> None:
    run = write_run(tmp_path, [dataset(methods=FIVE[:1])], random_says())
    assert compare_families(load_runs([run]).conditions[0]) == ()


def test_best_is_what_is_significantly_better_than_all_it_is_compared_with(tmp_path) -> None:
    rights = {"zero-shot": 3, "tpt": 6, "c-tpt": 9, "o-tpt": 9, "d-tpt": 3}
    run = write_run(
        tmp_path,
        [dataset(samples=200)],
        lambda cell, i: (i % 10 < rights[cell.method], 0.6),
    )
    (facts,) = compare_families(load_runs([run]).conditions[0])
    assert [v.method for v in facts.best("accuracy")] == ["c-tpt", "o-tpt"]
    assert facts.best("absolute_gap") == ()  # TPT has the smallest, and is no rival of itself
    assert facts.best("signed_gap") == ()  # no sign is better
    assert facts.direction == "over"


def opposite_sets(tmp_path, **options):
    """Two sets with opposite gaps of TPT; six images of each of 30 clusters."""
    signs = {"pets": 1, "cars": -1}
    entries = [dataset(name, samples=180, methods=FIVE[:2]) for name in signs]
    run = write_run(
        tmp_path,
        entries,
        lambda cell, i: (i % 2 == 0, 0.6 + 0.2 * signs[cell.dataset] * (cell.method == "tpt")),
        cluster=6,
    )
    (condition,) = load_runs([run]).conditions
    ((facts,),) = compare_conditions([condition], replace(FEW, **options))
    return facts


def test_the_headline_is_the_mean_over_data_sets_with_the_worst_beside_it(tmp_path) -> None:
    facts = opposite_sets(tmp_path)
    assert facts.value(TPT, "absolute_gap") == pytest.approx(0.2)  # +30 and -10 points
    assert facts.pooled["tpt"]["absolute_gap"].value == pytest.approx(0.1)
    assert facts.worst["tpt"]["absolute_gap"] == ("pets", pytest.approx(0.3))
    assert facts.difference(TPT, ZERO, metric="absolute_gap").estimate == pytest.approx(0.1)
    assert (facts.images, facts.clusters) == (360, 60)
    assert facts.size == "360 images of 60 clusters"


def test_the_average_over_images_is_pooled(tmp_path) -> None:
    facts = opposite_sets(tmp_path, average="images")
    assert facts.value(TPT, "absolute_gap") == pytest.approx(0.1)
    assert facts.pooled == {}


def test_an_unknown_method_to_compare_with_is_refused(five_methods) -> None:
    with pytest.raises(ReportError, match="'tpts'"):
        compare_conditions(five_methods.conditions, replace(FEW, against=("zero-shot", "tpts")))


def test_the_level_is_that_of_all_conditions_together(five_methods) -> None:
    (condition,) = five_methods.conditions
    twice = compare_conditions([condition, condition], replace(FEW, resamples=20))
    assert [f.level for families in twice for f in families] == pytest.approx([0.9875] * 4)


@pytest.mark.parametrize("methods", [FIVE, FIVE[:1]])
def test_the_verdict_counts_the_images_that_could_be_read(tmp_path, methods) -> None:
    def done(cell, index):
        return "failed" if index < 3 else "ok"

    run = write_run(tmp_path, [dataset(samples=40, methods=methods)], random_says(), done=done)
    (condition,) = load_runs([run]).conditions
    (paragraph,) = verdict_paragraphs(condition, compare_families(condition))
    assert "37 of 40 images" in paragraph.where


def test_a_handful_of_right_answers_has_no_interval_and_none_is_impossible(tmp_path) -> None:
    def says(cell, index):
        return index > 0 or cell.method == "tpt", 0.6 + 0.1 * index

    entry = dataset(samples=3, methods=(("zero-shot", None), ("tpt", None)))
    (condition,) = load_runs([write_run(tmp_path, [entry], says)]).conditions
    (facts,) = compare_families(condition)
    sure, spread = facts.values["tpt"]["accuracy"], facts.values["zero-shot"]["accuracy"]
    assert (sure.value, sure.low, sure.high) == (1.0, None, None)
    assert (spread.low, spread.high) == (0.0, 1.0)


def four_rights(rights: dict[tuple[str, int], int]):
    """Of four images the first n are right, n by (set, seed); always 60 % sure."""
    return lambda cell, index: (index < rights[cell.dataset, cell.seed], 0.6)


def means_of(run: Path, *, intervals: bool = False, resamples: int = 100):
    (condition,) = load_runs([run]).conditions
    resampling = Resampling(resamples=resamples)
    return mean_facts(condition, "fine-grained", resampling=resampling, intervals=intervals)


def test_mean_and_both_spreads_are_those_computed_by_hand(tmp_path: Path) -> None:
    rights = {("pets", 0): 1, ("pets", 1): 3, ("cars", 0): 4, ("cars", 1): 2}
    sets = [dataset(name, methods=(("tpt", None),)) for name in ("pets", "cars")]
    means = means_of(write_run(tmp_path, sets, four_rights(rights), seeds=(0, 1)))
    number = means.numbers[TPT, "accuracy", MEAN]
    assert number.value == pytest.approx((0.25 + 0.75 + 1.0 + 0.5) / 4)
    # means over sets are 0.625 under both seeds; each set's two accuracies are 0.5 apart
    assert number.spread == pytest.approx(0.0)
    assert number.spread_within == pytest.approx(0.5 / math.sqrt(2))
    assert means.numbers[TPT, "accuracy", "pets"].value == 0.5


def test_spread_needs_two_seeds() -> None:
    assert mean_and_spreads(np.array([[0.2], [0.4]])) == (pytest.approx(0.3), None, None)


def test_a_method_that_lacks_a_set_has_no_mean(tmp_path: Path) -> None:
    sets = [dataset("pets"), dataset("cars", methods=FIVE[:2])]
    means = means_of(write_run(tmp_path, sets, random_says()))
    absent = means.numbers[Variant("d-tpt", 1e5), "accuracy", MEAN]
    assert means.numbers[TPT, "accuracy", MEAN].value is not None
    assert absent.value is None
    assert "cars seed 0" in absent.missing


def test_intervals_contain_the_mean_and_shrink_with_more_images(tmp_path: Path) -> None:
    widths = []
    for count in (20, 200):
        entry = dataset(samples=count, methods=(("tpt", None),))
        run = write_run(tmp_path / str(count), [entry], random_says(), seeds=(0, 1))
        means = means_of(run, intervals=True, resamples=300)
        for number in means.numbers.values():
            assert number.low <= number.value <= number.high
        number = means.numbers[TPT, "accuracy", MEAN]
        widths.append(number.high - number.low)
    assert widths[1] < widths[0] / 2


def test_every_method_of_a_family_has_its_values_and_its_passes(five_methods, families) -> None:
    (condition,) = five_methods.conditions
    rows = {row["label"]: row for row in method_rows(condition, families[0])}
    assert {row["family"] for row in rows.values()} == {families[0].title}
    passes = {label: (row["image_passes"], row["text_passes"]) for label, row in rows.items()}
    assert (passes["zero-shot"], passes["d-tpt@1e5"]) == ((1, 0), (64, 2))
    assert list(rows["tpt"]["values"]) == [metric.key for metric in metrics_with("summary")]
    assert rows["tpt"]["values"]["brier"] == families[0].value(TPT, "brier")


def test_passes_count_every_step(five_methods, families) -> None:
    (condition,) = five_methods.conditions
    twice = replace(condition, tuning={**condition.tuning, "steps": 2})
    passes = {row["label"]: row["text_passes"] for row in method_rows(twice, families[0])}
    assert (passes["zero-shot"], passes["tpt"]) == (0, 4)


def test_seconds_are_those_of_the_sessions_per_image(five_methods) -> None:
    (source,) = five_methods.sources
    seconds = sum(session["seconds"] for session in source.sessions)
    # four sets of 40 images under two seeds
    assert seconds_per_image([source]) == pytest.approx(seconds / 160, rel=0.01)
