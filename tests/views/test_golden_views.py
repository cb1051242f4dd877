"""Views are the same bit for bit as in every run before."""

import json
from pathlib import Path

import golden_views
import pytest

GOLDEN = json.loads((Path(__file__).parent / "golden_views.json").read_text())


def test_the_file_holds_every_case():
    assert set(GOLDEN) == set(golden_views.CASES)
    assert sum(len(views) for views in GOLDEN.values()) > 500


@pytest.mark.parametrize("name", golden_views.CASES)
def test_views_have_the_digests_they_always_had(name):
    different = [
        view
        for view, pair in enumerate(zip(golden_views.digests(name), GOLDEN[name], strict=True))
        if pair[0] != pair[1]
    ]
    assert not different, f"views {different} of {name} changed"
