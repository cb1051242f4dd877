"""The demo's table: what is recorded beside what was computed now, and whether they agree."""

from dataclasses import replace

import pytest
from handmade import FIVE, dataset, random_says, write_run

from dtpt.report import load_runs
from dtpt.report.clip_record import ClipRecord, load_clip_record
from dtpt.report.demo import SHOWN, agreement, demo_table
from dtpt.report.facts import FamilyFacts, Resampling, compare_conditions
from dtpt.report.lead import lead_of
from dtpt.report.load import Variant
from dtpt.report.record import METHODS, load_record

NAMES = [*(method for method in FIVE), ("mean-views", None)]


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> tuple[FamilyFacts, ...]:
    folder = tmp_path_factory.mktemp("live")
    sets = [dataset(name, samples=60, methods=NAMES) for name in ("pets", "cars")]
    with load_runs([write_run(folder, sets, random_says())]) as loaded:
        (families,) = compare_conditions(loaded.conditions, Resampling(resamples=200))
    return families


def moved(families, *, by: float, metric: str = "accuracy") -> tuple[FamilyFacts, ...]:
    """The same facts with the value of one metric moved for every method."""
    return tuple(
        replace(
            facts,
            values={
                label: {**n, metric: replace(n[metric], value=n[metric].value + by)}
                for label, n in facts.values.items()
            },
        )
        for facts in families
    )


def test_means_weigh_data_sets_alike(live) -> None:
    (facts,) = live
    twice = (facts, *moved([replace(facts, sets=("one",))], by=0.3))
    table = demo_table(twice, live)
    assert [row.record["method"] for row in table.rows] == list(METHODS)
    recorded, now = (table.rows[1].cells[index].value for index in (0, len(SHOWN)))
    assert recorded == pytest.approx(now + 0.3 / 3)  # two sets of the first, one of the second
    assert len(table.columns) == 2 * len(SHOWN)


def test_without_a_record_only_what_was_computed_is_shown(live) -> None:
    table = demo_table((), live)
    assert len(table.columns) == len(SHOWN)
    assert table.rows[0].cells[0].value == live[0].values["zero-shot"]["accuracy"].value


def test_a_sample_agrees_with_its_own_record_and_not_with_another(live) -> None:
    same = agreement(live, live)
    assert (same.compared, same.outside) == (2 * len(METHODS), ())
    other = agreement(moved(live, by=0.5), live)
    assert len(other.outside) == len(METHODS)
    assert agreement((), live).text == ""


def test_the_packaged_record_has_every_number_of_the_table() -> None:
    record = load_record("pocket")
    table = demo_table(record.families, ())
    assert not [cell for row in table.rows for cell in row.cells if cell.is_missing]
    lead = lead_of(record.families, model=record.model)
    assert len(lead.sentences) == 3
    averaged = record.families[0].difference(
        *(
            next(v for v in record.families[0].variants if v.label == n)
            for n in ("mean-views", "tpt")
        ),
        metric="accuracy",
    )
    assert f"{100 * averaged.estimate:+.1f}" in lead.sentences[2]


def test_a_change_names_the_families_in_which_it_is_significant() -> None:
    record = load_record("pocket")
    colour, line = record.families
    found = [
        f.difference(Variant("tpt"), Variant("zero-shot"), metric="accuracy")
        for f in (colour, line)
    ]
    assert [one.low > 0 for one in found] == [False, True]
    lead = lead_of(record.families, model=record.model)
    for text in (lead.title, lead.sentences[0]):
        assert f"accuracy in {line.title.lower()}" in text
    alone = lead_of([line], model=record.model)
    assert line.title.lower() not in alone.title


def test_nothing_significant_is_said_to_be_so(live) -> None:
    lead = lead_of([replace(facts, comparisons=()) for facts in live], model="tiny")
    assert lead.title.startswith("No significant difference")
    assert lead.sentences == ()


def test_numbers_of_clip_make_a_line() -> None:
    method = {"accuracy": 0.684, "gap": -0.0001, "ece": 0.05, "floor": 0.02, "images": 500}
    record = ClipRecord.model_validate(
        {
            "command": "dtpt eval",
            "model": "ViT-B-16/openai",
            "fingerprint": "ab",
            "datasets": {"dtd": 500},
            "seeds": [0],
            "methods": [
                {
                    "method": "tps",
                    "differences": {"zero-shot": {"signed_gap": [0.02, 0.0, 0.03]}},
                    **method,
                },
                {"method": "d-tps@1e5", **method},
            ],
        }
    )
    assert record.difference_text("tps", "zero-shot", metric="signed_gap") == "+2.0 [0.0, 3.0]"
    assert "500 images of dtd)" in record.text
    assert "TPS 68.4 % (gap +0.0)." in record.text
    found = load_clip_record()
    assert found is None or {"zero-shot", "tps"} <= {m.method for m in found.methods}
