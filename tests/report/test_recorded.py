"""A run kept as aggregates: made, read, shown, and compared with a new run."""

import pytest
from handmade import FIVE, dataset, random_says, write_run

from dtpt.errors import ReportError
from dtpt.report import Contender, write_report
from dtpt.report.comparison import Resampling
from dtpt.report.derived_rows import fit_elsewhere
from dtpt.report.recorded import (
    Record,
    check_record,
    load_record,
    make_record,
    read_record,
    recorded_tables,
)

FEW = Resampling(resamples=100)


@pytest.fixture(scope="module")
def record(five_method_run) -> Record:
    return make_record([five_method_run], resampling=FEW)


def test_a_record_holds_values_intervals_differences_and_words(record, five_methods) -> None:
    (condition,) = five_methods.conditions
    tpt = Contender("tpt")
    cells = condition.finished("pets", tpt)
    expected = sum(cell.metric("ece") for cell in cells) / len(cells)
    assert record.sets["pets"].values["tpt"]["ece"] == expected
    family = record.families[0]
    assert (family.title, family.pictures) == ("Fine-grained classification", 80)
    row = next(row for row in family.rows if row.contender == tpt)
    assert row.values["ece"].low <= row.values["ece"].value <= row.values["ece"].high
    assert row.values["ece"].floor > 0.05
    assert len(family.differences) == family_pairs(family) * 7
    assert family.verdict[0].startswith("Without tuning")
    assert record.command.startswith("dtpt eval --model tiny --dataset pets,cars,sketches")


def family_pairs(family) -> int:
    others = len(family.rows) - 1
    return others + others - 1


def test_it_survives_its_file_exactly(record, tmp_path) -> None:
    path = tmp_path / "record.json"
    path.write_text(record.model_dump_json(indent=1, by_alias=True))
    assert read_record(path) == record
    assert '"lambda": 100000.0' in path.read_text()


def test_what_it_fitted_is_what_the_run_fits(record, five_methods) -> None:
    found = fit_elsewhere(five_methods.conditions[0])
    assert record.fitted.temperatures == dict(found.temperatures)
    assert set(found.temperatures) == {"pets", "cars", "sketches", "renditions"}


def test_the_same_run_again_agrees_bit_by_bit(record) -> None:
    found = check_record(record, record)
    assert found.is_same
    assert found.same_kind
    assert found.text.endswith("all agree.")
    assert "bit by bit" in found.text


def changed(record: Record, amount: float, **environment) -> Record:
    """The record with all pooled and set values of TPT's accuracy moved."""
    content = record.model_dump(by_alias=True)
    content["environment"] |= environment
    for entry in content["sets"].values():
        entry["values"]["tpt"]["accuracy"] += amount
    for family in content["families"]:
        for row in family["rows"]:
            if row["method"] == "tpt":
                row["values"]["accuracy"]["value"] += amount
    return Record.model_validate(content)


def test_the_last_bit_counts_on_the_same_kind_of_machine(record) -> None:
    found = check_record(changed(record, 1e-12), record)
    assert not found.is_same
    assert "differ, first pets, tpt, accuracy" in found.text


def test_another_machine_may_differ_within_a_stated_tolerance(record) -> None:
    near = check_record(changed(record, 0.0015, torch="other"), record)
    assert near.is_same
    assert "0.20 (Acc.)" in near.text
    assert near.largest["accuracy"] == pytest.approx(0.0015)
    far = check_record(changed(record, 0.01, torch="other"), record)
    assert not far.is_same
    assert far.deviations


def test_other_pictures_are_not_compared(record, tmp_path) -> None:
    sets = [dataset(name, samples=9, methods=FIVE) for name in ("dogs", "cows")]
    other = make_record([write_run(tmp_path, sets, random_says())], resampling=FEW)
    assert "nothing was compared" in check_record(other, record).text


def test_an_unfinished_run_is_not_recorded(tmp_path) -> None:
    run = write_run(
        tmp_path,
        [dataset(samples=6)],
        random_says(),
        done=lambda cell, i: "ok" if i < 3 else "",
    )
    with pytest.raises(ReportError, match="3 of 6 pictures are evaluated; a record needs all"):
        make_record([run])


def test_a_damaged_record_is_refused_in_one_sentence(tmp_path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"format": 1}')
    with pytest.raises(ReportError, match="is no record of a run"):
        read_record(path)


def test_tables_and_page_show_the_recorded_run(record, five_method_run, tmp_path) -> None:
    tables = recorded_tables(record)
    assert tables[0].title == "Fine-grained classification, recorded"
    assert tables[0].foot[0][0] == "Floor at this size"
    made = write_report([five_method_run], tmp_path, recorded=record, note="Not about CLIP.")
    page, card = made.page.read_text("utf-8"), made.card.read_text("utf-8")
    for text in (page, card):
        assert "Fine-grained classification, recorded" in text
        assert "Not about CLIP." in text


def test_the_package_may_come_without_a_record() -> None:
    found = load_record()
    assert found is None or isinstance(found, Record)


def test_the_packaged_record_is_the_full_demo() -> None:
    from dtpt.cli.demo import GRID, METHODS, DemoOptions, decided_options

    found = load_record()
    if found is None:
        pytest.skip("the package brings no record")
    full = decided_options(DemoOptions(full=True))
    assert (found.model, found.seeds, set(found.sets)) == ("pocket", (0,), set(full.dataset))
    assert found.pictures == 10_224
    labels = {row.contender.label for family in found.families for row in family.rows}
    for name in (*METHODS, *GRID):
        stem, _, weight = name.partition("@")
        assert any(label.startswith(stem) for label in labels)
        assert not weight or f"{stem}@{float(weight):.10g}" in labels
    assert found.fitted.temperatures.keys() == found.sets.keys()
