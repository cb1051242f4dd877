"""The most confident mistakes belong to the method and the weight that are named."""

from pathlib import Path

import numpy as np
import pytest
from handmade import TUNING, dataset, write_run
from PIL import Image

from dtpt.report import Contender, WrittenReport, gather, write_report
from dtpt.report.mistakes import mistaken_contenders, worst_mistakes

TWO_WEIGHTS = (("tpt", None), ("d-tpt", 1e5), ("d-tpt", 1e6))


def wrong_by_weight(cell, index):
    """Always wrong; how sure tells which weight answered."""
    return False, {None: 0.5, 1e5: 0.6, 1e6: 0.9}[cell.lambda_] + 0.001 * index


@pytest.fixture
def two_weights(tmp_path: Path) -> WrittenReport:
    run = write_run(tmp_path / "run", [dataset(methods=TWO_WEIGHTS)], wrong_by_weight)
    return write_report([run], tmp_path / "out")


def test_mistakes_have_the_confidence_of_the_weight_that_is_named(two_weights) -> None:
    (part,) = two_weights.report.parts
    assert part.mistakes_of == "D-TPT (λ = 10⁵)"  # the paper's: there is no other set to choose on
    assert [mistake.confidence for mistake in part.mistakes] == [0.603, 0.602, 0.601, 0.6]
    assert {mistake.lambda_ for mistake in part.mistakes} == {1e5}
    text = two_weights.page.read_text("utf-8")
    assert "The wrong answers that D-TPT (λ = 10⁵) gave" in text
    assert "90.3 %" not in text


def test_each_set_shows_the_weight_that_the_others_choose(tmp_path: Path) -> None:
    good = {("pets", 1e6), ("cars", 1e5), ("cows", 1e5)}  # what each set itself would choose

    def says(cell, index):
        return index > 0 and (cell.dataset, cell.lambda_) in good, 0.8

    sets = [dataset(name, methods=TWO_WEIGHTS) for name in ("pets", "cars", "cows")]
    with gather([write_run(tmp_path, sets, says)]) as gathered:
        (condition,) = gathered.conditions
        chosen = mistaken_contenders(condition)
        assert chosen["pets"] == Contender("d-tpt", 1e5)
        worst = worst_mistakes(condition)
    assert {m.lambda_ for m in worst if m.dataset == "pets"} == {1e5}


def test_the_most_confident_mistakes_come_first(five_methods) -> None:
    (condition,) = five_methods.conditions
    found = worst_mistakes(condition)
    confidences = [mistake.confidence for mistake in found]
    assert confidences == sorted(confidences, reverse=True)
    assert len(found) == 12
    wrong = [
        cell.confidence[~cell.correct]
        for cell in condition.cells.values()
        if cell.contender.method == "d-tpt" and cell.seed == 0
    ]
    assert confidences[0] == np.concatenate(wrong).max()
    assert all(mistake.truth != mistake.answer for mistake in found)
    assert not any(mistake.picture for mistake in found)


def test_pictures_of_mistakes_are_embedded_where_the_data_are(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGB", (300, 200), "navy").save(tmp_path / "data" / name / "picture.png")
    from dtpt.data import load_dataset
    from dtpt.report.mistakes import _picture

    loaded = load_dataset(f"folder:{tmp_path / 'data'}")
    uri = _picture(loaded, loaded.samples[0].id)
    assert uri.startswith("data:image/jpeg;base64,")
    assert _picture(loaded, "no such picture") == ""


def test_mistakes_under_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    entry = dataset(methods=(("tpt", None),))
    runs = [
        write_run(
            tmp_path / str(steps),
            [entry],
            lambda cell, index, sure=sure: (False, sure),
            tuning={**TUNING, "steps": steps},
        )
        for steps, sure in ((1, 0.6), (2, 0.9))
    ]
    with gather(runs) as gathered:
        found = [{m.confidence for m in worst_mistakes(c)} for c in gathered.conditions]
    assert found == [{0.6}, {0.9}]
