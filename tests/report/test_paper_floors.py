"""How much of the paper's printed ECE is chance at its sizes."""

import pytest

from dtpt.data.catalog import FINE_GRAINED, NATURAL_SHIFTS
from dtpt.report.paper.floors import paper_floors


@pytest.mark.parametrize("model", ["ViT-B-16/openai", "RN50/openai"])
def test_every_set_of_the_paper_has_a_floor_that_falls_with_its_size(model) -> None:
    names = [*FINE_GRAINED, *NATURAL_SHIFTS]
    found = {floor.dataset: floor for floor in paper_floors(model, names)}
    assert set(found) == set(names)
    assert all(0 < floor.low <= floor.high < 0.06 for floor in found.values())
    assert found["imagenet"].high < found["sun397"].low < found["dtd"].low


def test_the_printed_values_stand_beside_it() -> None:
    (found,) = paper_floors("ViT-B-16/openai", ["dtd"])
    assert found.printed["d-tpt"] == pytest.approx(0.052)
    assert set(found.printed) == {"zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt"}


def test_sets_that_the_paper_does_not_have_are_left_out() -> None:
    assert paper_floors("ViT-B-16/openai", ["openmoji", "pets"]) == []
