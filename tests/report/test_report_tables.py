"""The report's tables: what is bold, the noise floor, the paper beside them, prompts, records."""

import csv
import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from handmade import dataset, random_says, write_run

from dtpt.data.catalog import FINE_GRAINED, NATURAL_SHIFTS
from dtpt.report import load_runs
from dtpt.report.derived import with_derived_rows
from dtpt.report.facts import (
    MEAN,
    PAPER,
    Resampling,
    compare_conditions,
    mean_facts,
    with_decisions,
)
from dtpt.report.paper.numbers import PaperDifference, PaperNumber, paper_images
from dtpt.report.tables import (
    difference_tables,
    headline_table,
    mean_table,
    pooled_table,
    prompt_table,
    set_table,
)
from dtpt.tables import csv_text, latex, markdown, records

FEW = Resampling(resamples=200)


def means_of(condition, family="fine-grained"):
    return mean_facts(condition, family, resampling=FEW)


@pytest.fixture(scope="module")
def families(five_methods):
    return compare_conditions(five_methods.conditions, FEW)[0]


def bold(table) -> list[tuple[str, str]]:
    return [
        (row.record["method"], column.record["metric"])
        for row in table.rows
        for cell, column in zip(row.cells, table.columns, strict=True)
        if cell.bold
    ]


def test_what_is_significantly_better_is_bold_in_every_format(tmp_path: Path) -> None:
    accuracy = {"zero-shot": 0.5, "tpt": 0.7, "c-tpt": 0.95, "o-tpt": 0.7, "d-tpt": 0.3}
    run = write_run(
        tmp_path,
        [dataset(samples=200)],
        lambda c, i: ((i * 7) % 200 < 200 * accuracy[c.method], 1.0),
    )
    (condition,) = load_runs([run]).conditions
    ((facts,),) = compare_conditions([condition], FEW)
    table = headline_table(facts, key="t")
    assert {("c-tpt", "accuracy"), ("c-tpt", "absolute_gap")} <= set(bold(table))
    assert {method for method, _ in bold(table)} == {"c-tpt"}
    assert "| **95.00**" in markdown(table)
    assert r"\textbf{95.00}" in latex(table)
    assert any(note.startswith("Bold:") for note in table.notes)
    means = means_of(condition)
    assert bold(mean_table(means, key="t")) == []
    table = mean_table(with_decisions(means, [facts]), key="t")
    assert bold(table) == [("c-tpt", "accuracy"), ("c-tpt", "aurc")]
    assert r"\textbf{95.00}" in latex(table)
    assert any(note.startswith("Bold:") for note in table.notes)
    pooled = dataclasses.replace(facts, average="images")
    assert bold(mean_table(with_decisions(means, [pooled]), key="t")) == []


def test_no_significant_difference_is_a_note(tmp_path: Path) -> None:
    run = write_run(tmp_path, [dataset(samples=6)], random_says())
    (condition,) = load_runs([run]).conditions
    (facts,) = compare_conditions([condition], FEW)[0]
    assert not facts.is_decided
    assert any("significantly" in note for note in headline_table(facts, key="t").notes)


def test_the_headline_names_the_worst_data_set(families) -> None:
    facts = families[0]
    table = headline_table(facts, key="t")
    assert table.columns[-1].record["metric"] == "absolute_gap"
    for variant, row in zip(facts.variants, table.rows, strict=True):
        assert row.cells[-1].record["dataset"] == facts.worst[variant.label]["absolute_gap"][0]


def test_tables_of_differences_have_signs_and_intervals(families) -> None:
    against_zero, against_tpt = difference_tables(families[0], prefix="p")
    assert against_zero.key == "p-against-zero-shot"
    assert against_zero.rows[0].record["method"] == "tpt"
    assert "tpt" not in [row.record["method"] for row in against_tpt.rows]
    for row in against_zero.rows:
        for cell in row.cells:
            assert cell.text[0] in "+−"
            assert cell.interval.startswith("[")


def test_the_noise_floor_is_below_the_ece(five_methods, families) -> None:
    (condition,) = five_methods.conditions
    means = means_of(condition)
    table = mean_table(means, key="means")
    ((_, *texts),) = table.foot
    floors = [means.numbers[v, "ece", MEAN].floor for v in means.variants]
    assert texts == ["", f"{100 * min(floors):.2f}–{100 * max(floors):.2f}", "", "", ""]
    assert texts[1] in markdown(table)
    cells = condition.finished("pets", means.variants[0])
    assert 0.05 < cells[0].metric("floor") < 0.3  # 40 images in 20 bins
    ((_, *pooled),) = pooled_table(families[0], key="t").foot
    assert [bool(text) for text in pooled] == [
        column.record["metric"] == "ece" for column in pooled_table(families[0], key="t").columns
    ]


def test_per_set_tables_have_a_column_per_set_and_the_mean(tmp_path: Path) -> None:
    rights = {"pets": 1, "cars": 2}
    sets = [dataset(name) for name in rights]
    run = write_run(tmp_path, sets, lambda cell, i: (i < rights[cell.dataset], 0.6))
    table = set_table(means_of(load_runs([run]).conditions[0]), "accuracy", key="t")
    assert [column.title for column in table.columns] == ["pets", "cars", "Mean"]
    assert [cell.value for cell in table.rows[0].cells] == [0.25, 0.5, 0.375]


def test_one_method_only_is_noted_and_not_ranked(tmp_path: Path) -> None:
    run = write_run(tmp_path, [dataset(methods=(("d-tpt", 1e5),))], random_says())
    table = mean_table(means_of(load_runs([run]).conditions[0]), key="t")
    assert bold(table) == []
    assert any("one method" in note for note in table.notes)


def with_claimed_size(condition, sizes):
    """The same condition, said to be of the paper's full sets: 50,000 rows take too long."""
    entries = {
        name: entry.model_copy(update={"samples": sizes(name)})
        for name, entry in condition.datasets.items()
    }
    return dataclasses.replace(condition, datasets=entries)


def paper_condition(tmp_path: Path, names, *, model: str, methods, samples=1, **options):
    sets = [dataset(name, samples=samples, methods=methods, **options) for name in names]
    run = write_run(tmp_path, sets, lambda c, i: (2 * i < samples, 0.5), model=model)
    return load_runs([run]).conditions[0]


def papers(condition, metric="accuracy", family="fine-grained", column=MEAN):
    means = means_of(condition, family)
    return [means.numbers[variant, metric, column].paper for variant in means.variants]


def test_numbers_are_beside_the_papers_only_where_all_is_the_papers(tmp_path: Path) -> None:
    methods = (("zero-shot", None), ("d-tpt", 1e5), ("d-tpt", 1e3))
    condition = paper_condition(
        tmp_path, ["dtd"], model="ViT-B-16/openai", methods=methods, samples=4
    )
    assert papers(condition) == [None] * 3  # four images, not 1,692
    whole = with_claimed_size(condition, paper_images)
    zero, own, other = papers(whole)
    assert zero == PaperDifference(PaperNumber(44.33, None, "table4"), pytest.approx(5.67), None)
    assert own is not None
    assert other is None  # another λ than the paper's
    assert "paper 44.33, Δ +5.67" in markdown(mean_table(means_of(whole), key="t"))
    twice = dataclasses.replace(whole, tuning={**whole.tuning, "steps": 2})
    assert papers(twice) == [None] * 3


def test_means_outside_three_standard_deviations_are_marked(tmp_path: Path) -> None:
    condition = paper_condition(
        tmp_path,
        NATURAL_SHIFTS,
        model="RN50/openai",
        methods=(("tpt", None), ("d-tpt", 1e5)),
        family="natural-shifts",
    )
    whole = with_claimed_size(condition, paper_images)
    first, _ = papers(whole, family="natural-shifts")
    assert (first.printed.value, first.outside) == (43.35, True)
    cell = mean_table(means_of(whole, "natural-shifts"), key="t").rows[0].cells[0]
    assert cell.is_outside
    assert cell.deviation == "Δ +56.65‡"


def test_the_copied_block_is_shown_as_an_erratum(tmp_path: Path) -> None:
    condition = paper_condition(
        tmp_path,
        NATURAL_SHIFTS,
        model="ViT-B-16/openai",
        methods=(("tpt", None),),
        family="natural-shifts",
    )
    whole = with_claimed_size(condition, paper_images)
    (single,) = papers(whole, "aurc", "natural-shifts", NATURAL_SHIFTS[0])
    (mean,) = papers(whole, "aurc", "natural-shifts")
    assert single.printed.erratum
    assert single.difference is None
    assert (mean.printed.value, mean.printed.erratum) == (
        211.24,
        "",
    )  # the mean of table 2 is sound
    table = set_table(means_of(whole, "natural-shifts"), "aurc", key="t")
    assert "erratum" in table.rows[0].cells[0].reference
    assert any("rratum" in note for note in table.notes)


def test_a_mean_over_other_sets_is_not_compared(tmp_path: Path) -> None:
    names = FINE_GRAINED[:3]
    condition = paper_condition(tmp_path, names, model="ViT-B-16/openai", methods=(("tpt", None),))
    assert papers(with_claimed_size(condition, paper_images)) == [None]


def test_prompts_are_compared_group_by_group(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / str(n), [dataset()], random_says(n), template=template)
        for n, template in enumerate(("a photo of a {}.", "a picture of a {}."))
    ]
    means = [means_of(condition) for condition in load_runs(runs).conditions]
    table = prompt_table(means, key="prompts")
    groups = [row.group for row in table.rows]
    assert groups == ["“a photo of a {}.”"] * 5 + ["“a picture of a {}.”"] * 5
    assert {row["group"] for row in records([table])} == set(groups)
    assert prompt_table(means[:1], key="prompts") is None


def test_records_have_one_line_per_number_in_printed_units(tmp_path: Path) -> None:
    sets = [dataset(name, samples=12) for name in ("pets", "cars")]
    with load_runs([write_run(tmp_path, sets, random_says())]) as loaded:
        (condition,) = with_derived_rows(loaded).conditions
    means = means_of(condition)
    table = mean_table(means, key="means")
    lines = list(records([table]))
    assert len(lines) == len(table.rows) * len(PAPER) == len(csv_text([table]).splitlines()) - 1
    first = lines[0]
    assert first["value"] == 100 * means.numbers[means.variants[0], "accuracy", MEAN].value
    assert (first["unit"], first["method"], first["table"]) == ("%", "zero-shot", "means")
    assert {line["derived"] for line in lines} == {"", "temperature"}


NEW_METRIC = """
import sys
from dtpt.metrics import METRICS, Metric
roles = ("paper", "headline", "pooled", "compared", "summary")
METRICS["sure"] = Metric(
    "sure", "Sure", "Mean.", roles=roles, per_sample=lambda p, _: (p.confidence > 0.5).astype(float)
)
from dtpt.report import compare, write_report
from dtpt.report.compare import method_choices
run, out = sys.argv[1:]
write_report([run], out)
assert "sure" in {row["metric"] for row in compare(run, resamples=20).rows}
assert "sure" in method_choices(run)[0]["methods"][0]["values"]
"""


def test_a_metric_of_the_metric_table_is_in_every_table_and_file(tmp_path: Path) -> None:
    methods = (("zero-shot", None), ("tpt", None))
    sets = [dataset(name, samples=6, methods=methods) for name in ("pets", "cars")]
    run = write_run(tmp_path / "run", sets, random_says())
    subprocess.run(
        [sys.executable, "-c", NEW_METRIC, run, tmp_path / "out"], check=True, timeout=300
    )
    for name in ("index.html", "card.md", "tables.md", "tables.tex"):
        assert "Sure" in (tmp_path / "out" / name).read_text("utf-8"), name
    lines = csv.DictReader((tmp_path / "out" / "tables.csv").open(encoding="utf-8"))
    tables = {line["table"] for line in lines if line["metric"] == "sure"}
    assert tables == {
        "family-1",
        "family-1-against-zero-shot",
        "family-1-against-tpt",
        "family-1-pooled",
        "fine-grained",
        "fine-grained-sure",
    }


def is_installed(package: str) -> bool:
    return subprocess.run(["kpsewhich", package], capture_output=True, check=False).returncode == 0


def test_tables_of_a_report_compile_on_one_page_each(five_methods, families, tmp_path) -> None:
    means = with_decisions(means_of(five_methods.conditions[0]), families)
    tables = [mean_table(means, key="mean"), set_table(means, "ece", key="ece")]
    for facts in families:
        tables += [headline_table(facts, key=facts.family), pooled_table(facts, key="pooled")]
        tables += difference_tables(facts, prefix=facts.family)
    text = "\n".join(map(latex, tables))
    assert text.isascii() or all(ord(c) < 0x180 for c in text)  # what inputenc knows
    assert text.count(r"\begin{adjustbox}") == text.count(r"\end{adjustbox}") == len(tables)
    if not all(map(shutil.which, ("pdflatex", "kpsewhich"))) or not is_installed("adjustbox.sty"):
        pytest.skip("pdflatex with adjustbox is not installed: the tables were not compiled")
    document = (
        r"\documentclass{article}\usepackage{booktabs,adjustbox,textcomp}"
        rf"\begin{{document}}{text}\end{{document}}"
    )
    (tmp_path / "t.tex").write_text(document)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout
