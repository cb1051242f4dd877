"""A run kept as results and facts: made, read, shown, and compared with a new run."""

import pytest
from handmade import FIVE, dataset, random_says, write_run

from dtpt.errors import ReportError
from dtpt.methods.base import method_label
from dtpt.report import Variant, write_report
from dtpt.report.facts import Resampling
from dtpt.report.record import (
    GRID,
    METHODS,
    Record,
    check_record,
    demo_plan,
    load_record,
    make_record,
)

FEW = Resampling(resamples=100)


@pytest.fixture(scope="module")
def record(five_method_run) -> Record:
    return make_record(five_method_run, resampling=FEW)


def test_a_record_is_results_and_facts(record, five_methods) -> None:
    (condition,) = five_methods.conditions
    cells = condition.finished("pets", Variant("tpt"))
    expected = sum(cell.metric("ece") for cell in cells) / len(cells)
    assert record.results.results["pets"]["tpt"].mean["ece"] == expected
    facts = record.families[0]
    assert (facts.title, facts.images) == ("Fine-grained classification", 80)
    ece = facts.values["tpt"]["ece"]
    assert ece.low <= ece.value <= ece.high
    assert ece.floor > 0.05
    others = len(facts.variants) - 1
    assert len(facts.comparisons) == (others + others - 1) * 7
    assert record.command.startswith("dtpt eval --model tiny --dataset pets,cars,sketches")
    assert set(record.fitted.temperatures) == {"pets", "cars", "sketches", "renditions"}
    assert (record.model, record.images) == ("tiny", 160)


def test_it_has_the_reliability_diagrams_of_stored_methods(record, five_methods) -> None:
    (condition,) = five_methods.conditions
    (cell, *_) = condition.finished("pets", Variant("tpt"))
    diagram = record.bins["pets"]["tpt"]
    assert sum(diagram["count"]) == cell.effective
    correct = sum(n * a for n, a in zip(diagram["count"], diagram["accuracy"], strict=True))
    assert correct == pytest.approx(cell.column("correct").sum(), abs=0.01)
    assert set(record.bins["pets"]) == set(record.results.results["pets"])


def test_it_survives_its_file_exactly(record, tmp_path) -> None:
    record.save(tmp_path / "record.json")
    again = Record.model_validate_json((tmp_path / "record.json").read_bytes())
    assert again.families == record.families
    assert again.model_dump() == record.model_dump()
    assert '"lambda":100000.0' in (tmp_path / "record.json").read_text()


def test_some_methods_can_be_kept(five_method_run) -> None:
    kept = make_record(five_method_run, methods={"zero-shot", "tpt"}, resampling=FEW)
    labels = [variant.label for variant in kept.families[0].variants]
    assert labels == ["zero-shot", "tpt", "tpt+temperature"]
    assert list(kept.results.results["pets"]) == ["zero-shot", "tpt"]


def test_the_same_run_again_agrees_bit_by_bit(record) -> None:
    found = check_record(record, record)
    assert found.same_kind
    assert found.deviations == ()
    assert found.compared > 400


def changed(record: Record, amount: float, **environment) -> Record:
    """The record with TPT's accuracy moved in all data sets and families."""
    content = record.model_dump(by_alias=True)
    for entry in content["results"]["environment"]:
        entry |= environment
    for methods in content["results"]["results"].values():
        methods["tpt"]["mean"]["accuracy"] += amount
    for family in content["families"]:
        family["values"]["tpt"]["accuracy"]["value"] += amount
    return Record.model_validate(content)


def test_the_last_bit_counts_on_the_same_kind_of_machine(record) -> None:
    found = check_record(changed(record, 1e-12), record)
    assert len(found.deviations) == 6  # two families and four sets
    assert any("pets, tpt, accuracy" in text for text in found.deviations)


def test_another_machine_may_differ_within_the_metrics_tolerance(record) -> None:
    near = check_record(changed(record, 0.0015, torch="other"), record)
    assert not near.same_kind
    assert near.deviations == ()
    far = check_record(changed(record, 0.01, torch="other"), record)
    assert len(far.deviations) == 2


def test_other_images_are_not_compared(record, tmp_path) -> None:
    sets = [dataset(name, samples=9, methods=FIVE) for name in ("dogs", "cows")]
    other = make_record(write_run(tmp_path, sets, random_says()), resampling=FEW)
    assert check_record(other, record).compared == 0


def test_an_unfinished_run_is_not_recorded(tmp_path) -> None:
    run = write_run(
        tmp_path,
        [dataset(samples=6)],
        random_says(),
        done=lambda cell, i: "ok" if i < 3 else "",
    )
    with pytest.raises(ReportError, match="3 of 6"):
        make_record(run)


def test_page_and_card_show_the_recorded_run(record, tmp_path) -> None:
    assert [table.key for table in record.tables] == ["recorded-1", "recorded-2"]
    run = write_run(tmp_path, [dataset(methods=FIVE[:1])], random_says())
    made = write_report([run], tmp_path, record=record, note="Not about CLIP.")
    page, card = made.page.read_text("utf-8"), made.card.read_text("utf-8")
    for text in (page, card):
        assert "Fine-grained classification, recorded" in text
        assert "Not about CLIP." in text


def test_the_packaged_record_is_the_full_demo() -> None:
    found = load_record("pocket")
    assert found is not None
    sets, _ = demo_plan(full=True)
    assert (found.results.config.seeds, set(found.results.results)) == ((0,), set(sets))
    assert found.images == 10_224
    labels = {variant.label for facts in found.families for variant in facts.variants}
    for name in (*METHODS, *GRID):
        stem, _, lambda_ = name.partition("@")
        assert any(label.startswith(stem) for label in labels)
        assert not lambda_ or method_label(stem, float(lambda_)) in labels
    assert {"d-tpt+chosen", "mean-views+fraction"} <= labels
    assert found.fitted.temperatures.keys() == found.results.results.keys()


def test_the_record_of_one_model_is_not_shown_for_another() -> None:
    assert load_record("RN50/openai") is None


def test_the_demo_takes_all_groups_in_both_styles() -> None:
    sets, methods = demo_plan(full=False)
    assert len(sets) == 12
    assert [name.replace("-line", "") for name in sets[6:]] == list(sets[:6])
    everything = demo_plan(full=True)
    assert everything == (sets, (*METHODS, *GRID))
    assert methods == METHODS
