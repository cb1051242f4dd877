"""The regularisers' first steps on several class lists."""

import pytest

from dtpt.analysis.regularisers import (
    RegularisersOptions,
    class_list,
    regulariser_tables,
    study_regularisers,
)
from dtpt.data.catalog import PAPER_SETS, catalog_entry
from dtpt.errors import MethodError, PromptError, UnknownName


@pytest.fixture(scope="module")
def study(tiny_clip):
    options = RegularisersOptions(
        model="tiny", dataset="eurosat,dtd", method="c-tpt,o-tpt,d-tpt", quiet=True
    )
    return study_regularisers(options, model=tiny_clip)


def test_every_class_list_has_every_pair(study):
    pairs = study.facts["pairs"]
    lists = [(pair["class_list"], pair["classes"]) for pair in pairs]
    assert lists == 3 * [("eurosat", 10)] + 3 * [("dtd", 47)]
    assert all(-1 <= p["cosine"] <= 1 and 0 <= p["same_signs"] <= 1 for p in pairs)


def test_the_same_step_has_a_cosine_near_one(study):
    (same, *_) = study.facts["pairs"]
    assert (same["first"], same["second"]) == ("c-tpt", "o-tpt")
    assert same["cosine"] > 0.9


def test_all_class_lists_of_the_paper_are_there_without_images():
    for name in PAPER_SETS:
        names = class_list(name)
        assert len(names) == len(catalog_entry(name).classes) > 1
        assert not any("_" in word for word in names)


def test_emoji_groups_have_their_class_lists_too():
    assert "hot beverage" in class_list("openmoji/food-drink")


def test_tables_name_every_list(study):
    title, table, *_ = regulariser_tables(study)
    assert "tiny" in title
    assert [row.title for row in table.rows] == ["eurosat", "dtd"]
    assert len(table.columns) == 4


def test_a_list_that_the_model_cannot_take_is_left_out_with_the_reason(make_clip, monkeypatch):
    lists = {"long": ("word " * 90, "cat"), "short": ("cat", "dog")}
    monkeypatch.setattr("dtpt.data.loading.expand_names", tuple)
    monkeypatch.setattr("dtpt.analysis.regularisers.class_list", lists.get)
    options = RegularisersOptions(dataset="long,short", method="c-tpt,o-tpt", quiet=True)
    found = study_regularisers(options, model=make_clip())
    assert {pair["class_list"] for pair in found.facts["pairs"]} == {"short"}
    assert [fact["class_list"] for fact in found.facts["left_out"]] == ["long"]
    assert any("Without long" in str(part) for part in regulariser_tables(found))
    alone = options.model_copy(update={"dataset": ("long",)})
    with pytest.raises(PromptError, match="tokens"):
        study_regularisers(alone, model=make_clip())


def test_wrong_names_are_refused(tiny_clip):
    with pytest.raises(UnknownName):
        study_regularisers(RegularisersOptions(dataset="dtt", quiet=True), model=tiny_clip)
    options = RegularisersOptions(dataset="eurosat", method="c-tpt,tpt", quiet=True)
    with pytest.raises(MethodError, match="tpt"):
        study_regularisers(options, model=tiny_clip)
