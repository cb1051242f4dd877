"""The paper's numbers as data: complete, consistent, and the erratum marked."""

import json
from pathlib import Path

import pytest

from dtpt.data.catalog import FINE_GRAINED, NATURAL_SHIFTS
from dtpt.report.paper.numbers import (
    backbone_of,
    init_of,
    is_paper_lambda,
    paper_data,
    paper_floors,
    paper_mean,
    paper_number,
    paper_sets,
)

METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt")
METRICS = ("accuracy", "ece", "aece", "mce", "aurc")
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "paper_tables.json"


def test_known_cells_are_found() -> None:
    found = paper_mean("ViT-B-16/openai", "fine-grained", method="d-tpt", metric="ece")
    assert (found.value, found.std, found.table) == (4.18, 0.16, "table1")
    assert paper_number("ViT-B/16", "dtd", method="zero-shot", metric="accuracy").value == 44.33
    coop = paper_mean("ViT-B-16/openai", "fine-grained", method="tpt", metric="ece", init="coop")
    assert (coop.value, coop.table) == (18.58, "table3")


@pytest.mark.parametrize("backbone", ["ViT-B-16/openai", "RN50/openai"])
@pytest.mark.parametrize("family", ["fine-grained", "natural-shifts"])
def test_means_of_the_per_set_tables_are_those_of_the_main_tables(backbone, family) -> None:
    names = paper_sets(family)
    assert len(names) == {"fine-grained": 11, "natural-shifts": 4}[family]
    for method in METHODS:
        for metric in METRICS:
            cells = [paper_number(backbone, n, method=method, metric=metric) for n in names]
            if any(cell.erratum for cell in cells):
                continue
            main = paper_mean(backbone, family, method=method, metric=metric)
            assert sum(c.value for c in cells) / len(cells) == pytest.approx(main.value, abs=0.02)


def test_exactly_the_copied_block_is_an_erratum() -> None:
    marked = set()
    for backbone in ("ViT-B-16/openai", "RN50/openai"):
        for family in ("fine-grained", "natural-shifts"):
            for name in paper_sets(family):
                for metric in METRICS:
                    cell = paper_number(backbone, name, method="tpt", metric=metric)
                    if cell.erratum:
                        marked.add((backbone, family, metric))
                        twin = paper_number(backbone, name, method="tpt", metric="aece")
                        assert cell.value == twin.value
    assert marked == {("ViT-B-16/openai", "natural-shifts", "aurc")}


def test_what_is_not_the_papers_is_not_compared() -> None:
    assert backbone_of("pocket") is None
    assert init_of("an emoji of a {}.", None) is None
    assert init_of("a photo of a {}.", "abc") == "coop"
    assert not is_paper_lambda("d-tpt", 1e4, family="fine-grained")
    assert is_paper_lambda("c-tpt", 20.0, family="natural-shifts")
    assert not is_paper_lambda("c-tpt", 20.0, family="fine-grained")


@pytest.mark.skipif(not SHARED.exists(), reason="the reference tables are not on this machine")
def test_every_number_of_the_reference_is_here() -> None:
    def numbers(node) -> list[float]:
        if isinstance(node, dict):
            kept = {k: v for k, v in node.items() if not k.startswith("_") and k != "std"}
            return [x for value in kept.values() for x in numbers(value)]
        return [node] if isinstance(node, int | float) and not isinstance(node, bool) else []

    reference = json.loads(SHARED.read_text())["tables"]
    ours = [value for *_, value, _ in paper_data()["cells"]]
    theirs = [numbers(table["backbones"]) for table in reference.values()]
    assert sorted(ours) == sorted(x for part in theirs for x in part)


@pytest.mark.parametrize("model", ["ViT-B-16/openai", "RN50/openai"])
def test_every_set_of_the_paper_has_a_floor_that_falls_with_its_size(model) -> None:
    names = [*FINE_GRAINED, *NATURAL_SHIFTS]
    found = {floor.dataset: floor for floor in paper_floors(model, names)}
    assert set(found) == set(names)
    assert all(0 < floor.low <= floor.high < 0.06 for floor in found.values())
    assert found["imagenet"].high < found["sun397"].low < found["dtd"].low


def test_the_printed_values_are_beside_the_floor() -> None:
    (found,) = paper_floors("ViT-B-16/openai", ["dtd"])
    assert found.printed["d-tpt"] == pytest.approx(0.052)
    assert set(found.printed) == {"zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt"}


def test_sets_that_the_paper_does_not_have_are_left_out() -> None:
    assert paper_floors("ViT-B-16/openai", ["openmoji", "pets"]) == []
