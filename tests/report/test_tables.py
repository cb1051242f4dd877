"""Tables: means and spreads by hand, what is bold, the paper beside them, three formats."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from handmade import FIVE, dataset, random_says, write_run

from dtpt.data.catalog import FINE_GRAINED, NATURAL_SHIFTS
from dtpt.metrics import METRICS
from dtpt.report import gather
from dtpt.report.paper.comparable import PaperDifference
from dtpt.report.paper.numbers import paper_images
from dtpt.report.tables import (
    COLUMNS,
    Entry,
    csv_text,
    family_table,
    latex,
    markdown,
    prompt_table,
    set_table,
)
from dtpt.report.tables.cell_draws import CellDraws
from dtpt.report.tables.means import mean_and_spreads
from dtpt.report.tables.printed_numbers import paper_text

ACCURACY = METRICS["accuracy"]


def four_rights(rights: dict[tuple[str, int], int]):
    """Of four pictures the first n are right, n by (set, seed); always 60 % sure."""
    return lambda cell, index: (index < rights[cell.dataset, cell.seed], 0.6)


def test_mean_and_both_spreads_are_those_computed_by_hand(tmp_path: Path) -> None:
    rights = {("pets", 0): 1, ("pets", 1): 3, ("cars", 0): 4, ("cars", 1): 2}
    sets = [dataset(name, methods=(("tpt", None),)) for name in ("pets", "cars")]
    run = write_run(tmp_path, sets, four_rights(rights), seeds=(0, 1))
    (condition,) = gather([run]).conditions
    entry = family_table(condition, "fine-grained", key="t").rows[0].entries[0]
    assert entry.value == pytest.approx((0.25 + 0.75 + 1.0 + 0.5) / 4)
    # means over sets are 0.625 under both seeds; each set's two accuracies are 0.5 apart
    assert entry.spread == pytest.approx(0.0)
    assert entry.spread_within == pytest.approx(0.5 / math.sqrt(2))
    assert "±0.00 (35.36)" in markdown(family_table(condition, "fine-grained", key="t"))


def test_spread_needs_two_seeds() -> None:
    import numpy as np

    assert mean_and_spreads(np.array([[0.2], [0.4]])) == (pytest.approx(0.3), None, None)


def test_per_set_tables_have_a_column_per_set_and_the_mean(tmp_path: Path) -> None:
    rights = {("pets", 0): 1, ("cars", 0): 2}
    sets = [dataset(name) for name in ("pets", "cars")]
    (condition,) = gather([write_run(tmp_path, sets, four_rights(rights))]).conditions
    table = set_table(condition, "fine-grained", metric=ACCURACY, key="t")
    assert [column.title for column in table.columns] == ["pets", "cars", "Mean"]
    assert [entry.value for entry in table.rows[0].entries] == [0.25, 0.5, 0.375]


def bold(table) -> list[str]:
    """Label and heading of everything that is marked."""
    return [
        f"{row.contender.label} {column.metric.key}"
        for row in table.rows
        for entry, column in zip(row.entries, table.columns, strict=True)
        if entry.separated
    ]


def told(tmp_path: Path, samples: int, accuracy: dict[str, float]):
    """A table in which methods have these accuracies and are always sure."""
    run = write_run(
        tmp_path,
        [dataset(samples=samples)],
        lambda c, i: ((i * 7) % samples < samples * accuracy[c.method], 1.0),
    )
    return family_table(gather([run]).conditions[0], "fine-grained", key="t", draws=CellDraws(200))


def test_the_best_is_bold_in_the_direction_of_each_metric(tmp_path: Path) -> None:
    accuracy = {"zero-shot": 0.5, "tpt": 0.95, "c-tpt": 0.7, "o-tpt": 0.7, "d-tpt": 0.3}
    table = told(tmp_path, 200, accuracy)
    assert {"tpt accuracy", "tpt ece"} <= set(bold(table))  # always sure: ECE is 1 - accuracy
    assert {name.split()[0] for name in bold(table)} == {"tpt"}
    assert "| TPT | **95.00** | **5.00**" in markdown(table)
    assert r"\textbf{95.00}" in latex(table)
    assert any(line.startswith("- Bold:") for line in markdown(table).splitlines())


def test_nothing_is_bold_where_the_best_cannot_be_told_from_the_second(tmp_path: Path) -> None:
    accuracy = {"zero-shot": 0.3, "tpt": 0.92, "c-tpt": 0.9, "o-tpt": 0.5, "d-tpt": 0.3}
    assert bold(told(tmp_path / "near", 100, accuracy)) == []
    few = {"zero-shot": 0.5, "tpt": 1.0, "c-tpt": 0.5, "o-tpt": 0.5, "d-tpt": 0.25}
    table = told(tmp_path / "few", 4, few)
    assert bold(table) == []
    assert any("No two rows can be told apart in any column" in note for note in table.notes)


def test_the_floor_stands_under_the_ece(five_methods) -> None:
    (condition,) = five_methods.conditions
    table = family_table(condition, "fine-grained", key="means")
    ((title, *texts),) = table.foot
    floors = [row.entries[1].floor for row in table.rows]
    assert title == "Floor at this size"
    assert texts == ["", f"{100 * min(floors):.2f}–{100 * max(floors):.2f}", "", "", ""]
    assert texts[1] in markdown(table)
    assert texts[1].replace("–", "--") in latex(table)
    cells = condition.finished("pets", table.rows[0].contender)
    assert 0.05 < cells[0].metric("floor") < 0.3  # 40 pictures in 20 bins


def test_one_method_only_is_said_and_not_ranked(tmp_path: Path) -> None:
    run = write_run(tmp_path, [dataset(methods=(("d-tpt", 1e5),))], random_says())
    table = family_table(gather([run]).conditions[0], "fine-grained", key="t")
    assert bold(table) == []
    assert any("Only one method" in note for note in table.notes)


def test_a_method_that_lacks_a_set_has_no_mean(tmp_path: Path) -> None:
    sets = [dataset("pets"), dataset("cars", methods=FIVE[:2])]
    table = family_table(
        gather([write_run(tmp_path, sets, random_says())]).conditions[0], "fine-grained", key="t"
    )
    values = {row.contender.method: row.entries[0] for row in table.rows}
    assert values["tpt"].value is not None
    assert values["d-tpt"].value is None
    assert "cars seed 0: not run" in values["d-tpt"].missing
    assert "— (incomplete" in markdown(table)


def with_claimed_size(condition, sizes):
    """The same condition, said to be of the paper's full sets: 50,000 rows take too long."""
    import dataclasses

    entries = {
        name: entry.model_copy(update={"samples": sizes(name)})
        for name, entry in condition.datasets.items()
    }
    return dataclasses.replace(condition, datasets=entries)


def test_numbers_stand_beside_the_papers_only_where_all_is_the_papers(tmp_path: Path) -> None:
    methods = (("zero-shot", None), ("d-tpt", 1e5), ("d-tpt", 1e3))
    run = write_run(
        tmp_path,
        [dataset("dtd", methods=methods)],
        lambda c, i: (i < 2, 0.5),
        model="ViT-B-16/openai",
    )
    (condition,) = gather([run]).conditions
    table = set_table(condition, "fine-grained", metric=ACCURACY, key="t")
    assert all(row.entries[0].paper is None for row in table.rows)  # four pictures, not 1,692
    whole = with_claimed_size(condition, paper_images)
    zero, own, other = set_table(whole, "fine-grained", metric=ACCURACY, key="t").rows
    assert zero.entries[0].paper == PaperDifference(
        44.33, None, pytest.approx(5.67), None, "table4"
    )
    assert own.entries[0].paper is not None
    assert other.entries[0].paper is None  # another λ than the paper's
    twice = replace(whole, tuning={**whole.tuning, "steps": 2})
    table = family_table(twice, "fine-grained", key="t")
    assert all(row.entries[0].paper is None for row in table.rows)
    assert "paper 44.33, Δ +5.67" in markdown(
        set_table(whole, "fine-grained", metric=ACCURACY, key="t")
    )


def test_means_outside_three_standard_deviations_are_marked(tmp_path: Path) -> None:
    methods = (("tpt", None), ("d-tpt", 1e5))
    sets = [
        dataset(name, samples=1, family="natural-shifts", methods=methods)
        for name in NATURAL_SHIFTS
    ]
    run = write_run(tmp_path, sets, lambda c, i: (True, 0.5), model="RN50/openai")
    condition = with_claimed_size(gather([run]).conditions[0], paper_images)
    table = family_table(condition, "natural-shifts", key="t")
    accuracy = table.rows[0].entries[0]
    assert accuracy.value == 1.0
    assert accuracy.paper.value == 43.35
    assert accuracy.paper.outside is True
    assert "Δ +56.65‡" in paper_text(accuracy)
    assert any(note.startswith("- ‡: outside three") for note in markdown(table).splitlines())
    inside = Entry(value=0.4336, paper=PaperDifference(43.35, 0.09, 0.01, False, "table2"))
    assert "‡" not in paper_text(inside)


def test_the_copied_block_is_shown_as_an_erratum(tmp_path: Path) -> None:
    sets = [
        dataset(n, samples=1, family="natural-shifts", methods=(("tpt", None),))
        for n in NATURAL_SHIFTS
    ]
    run = write_run(tmp_path, sets, lambda c, i: (True, 0.5), model="ViT-B-16/openai")
    condition = with_claimed_size(gather([run]).conditions[0], paper_images)
    table = set_table(condition, "natural-shifts", metric=METRICS["aurc"], key="t")
    single, mean = table.rows[0].entries[0], table.rows[0].entries[-1]
    assert single.paper.erratum
    assert single.paper.difference is None
    assert "(erratum)" in paper_text(single)
    assert mean.paper.value == 211.24  # the mean of table 2 is sound
    assert mean.paper.erratum == ""
    assert any("not a target" in note for note in table.notes)


def test_a_mean_over_other_sets_is_not_compared(tmp_path: Path) -> None:
    sets = [dataset(name, samples=1, methods=(("tpt", None),)) for name in FINE_GRAINED[:3]]
    run = write_run(tmp_path, sets, lambda c, i: (True, 0.5), model="ViT-B-16/openai")
    condition = with_claimed_size(gather([run]).conditions[0], paper_images)
    assert family_table(condition, "fine-grained", key="t").rows[0].entries[0].paper is None


def test_prompts_are_compared_group_by_group(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / str(n), [dataset()], random_says(n), template=template)
        for n, template in enumerate(("a photo of a {}.", "a picture of a {}."))
    ]
    conditions = gather(runs).conditions
    table = prompt_table(conditions, "fine-grained", key="prompts")
    groups = [row.group for row in table.rows]
    assert groups == ["“a photo of a {}.”"] * 5 + ["“a picture of a {}.”"] * 5
    assert prompt_table(conditions[:1], "fine-grained", key="prompts") is None


def test_intervals_hold_the_mean_and_shrink_with_more_pictures(tmp_path: Path) -> None:
    widths = []
    for count in (20, 200):
        entry = dataset(samples=count, methods=(("tpt", None),))
        run = write_run(tmp_path / str(count), [entry], random_says(), seeds=(0, 1))
        table = family_table(
            gather([run]).conditions[0],
            "fine-grained",
            key="t",
            draws=CellDraws(300),
            intervals=True,
        )
        for cell in table.rows[0].entries:
            assert cell.interval.low <= cell.value <= cell.interval.high
        cell = table.rows[0].entries[0]
        widths.append(cell.interval.high - cell.interval.low)
    assert widths[1] < widths[0] / 2


def test_csv_has_one_line_per_cell_in_printed_units(five_methods) -> None:
    (condition,) = five_methods.conditions
    table = family_table(condition, "fine-grained", key="means")
    lines = list(csv.DictReader(io.StringIO(csv_text([table]))))
    assert len(lines) == len(table.rows) * len(COLUMNS)
    first = lines[0]
    assert float(first["value"]) == pytest.approx(100 * table.rows[0].entries[0].value)
    assert (first["unit"], first["method"]) == ("%", "zero-shot")


def test_latex_is_balanced_and_escaped(five_methods) -> None:
    (condition,) = five_methods.conditions
    text = latex(family_table(condition, "fine-grained", key="means"))
    assert text.count("{") == text.count("}")
    assert r"\toprule" in text
    assert "%)" not in text.replace(r"\%)", "")
    assert all(line.endswith(r"\\") for line in text.splitlines() if " & " in line)
