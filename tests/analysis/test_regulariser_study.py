"""The regularisers' first steps on several class lists."""

import pytest

from dtpt.analysis.regulariser_study import class_list, study_regularisers
from dtpt.analysis.regularisers_options import RegularisersOptions
from dtpt.cli.output import record_parts
from dtpt.data.catalog import PAPER_SETS, catalog_entry
from dtpt.errors import MethodError, PromptError, UnknownName
from dtpt.tables import Table


@pytest.fixture(scope="module")
def study(tiny_clip):
    options = RegularisersOptions(
        model="tiny", dataset="eurosat,dtd", method="c-tpt,o-tpt,d-tpt", quiet=True
    )
    return study_regularisers(options, model=tiny_clip)


def test_every_class_list_has_every_pair(study):
    assert [(entry.class_list, entry.classes) for entry in study.lists] == [
        ("eurosat", 10),
        ("dtd", 47),
    ]
    for entry in study.lists:
        assert len(entry.pairs) == 3
        assert all(-1 <= p.cosine <= 1 and 0 <= p.same_signs <= 1 for p in entry.pairs)


def test_the_same_step_has_a_cosine_near_one(study):
    (same, *_) = study.lists[0].pairs
    assert (same.first, same.second) == ("c-tpt", "o-tpt")
    assert same.cosine > 0.9


def test_all_class_lists_of_the_paper_are_there_without_pictures():
    for name in PAPER_SETS:
        names = class_list(name)
        assert len(names) == len(catalog_entry(name).classes) > 1
        assert not any("_" in word for word in names)


def test_emoji_groups_have_their_class_lists_too():
    assert "hot beverage" in class_list("openmoji/food-drink")


def test_tables_name_every_list(study):
    tables = [part for part in record_parts(study) if isinstance(part, Table)]
    assert ["eurosat" in tables[0].title, "dtd" in tables[1].title] == [True, True]
    assert [len(table.rows) for table in tables] == [3, 3]


def test_a_list_that_the_model_cannot_take_is_left_out_with_the_reason(make_clip, monkeypatch):
    lists = {"long": ("word " * 90, "cat"), "short": ("cat", "dog")}
    monkeypatch.setattr("dtpt.analysis.regulariser_study.expand_names", tuple)
    monkeypatch.setattr("dtpt.analysis.regulariser_study.class_list", lists.get)
    options = RegularisersOptions(dataset="long,short", method="c-tpt,o-tpt", quiet=True)
    found = study_regularisers(options, model=make_clip())
    assert [entry.class_list for entry in found.lists] == ["short"]
    assert "tokens" in found.left_out["long"]
    assert any("long" in str(part) for part in record_parts(found) if isinstance(part, str))
    alone = options.model_copy(update={"dataset": ("long",)})
    with pytest.raises(PromptError, match="tokens"):
        study_regularisers(alone, model=make_clip())


def test_wrong_names_are_refused(tiny_clip):
    with pytest.raises(UnknownName):
        study_regularisers(RegularisersOptions(dataset="dtt", quiet=True), model=tiny_clip)
    options = RegularisersOptions(dataset="eurosat", method="c-tpt,tpt", quiet=True)
    with pytest.raises(MethodError, match="no regulariser"):
        study_regularisers(options, model=tiny_clip)
