"""The most confident mistakes belong to the method and the λ that are named."""

from pathlib import Path

import numpy as np
import pytest
from handmade import TUNING, dataset, write_run
from PIL import Image

from dtpt.data import load_dataset
from dtpt.report import Variant, WrittenReport, load_runs, write_report
from dtpt.report.mistakes import mistaken_variants, worst_mistakes

TWO_LAMBDAS = (("tpt", None), ("d-tpt", 1e5), ("d-tpt", 1e6))


def wrong_by_lambda(cell, index):
    """Always wrong; how sure tells which λ predicted."""
    return False, {None: 0.5, 1e5: 0.6, 1e6: 0.9}[cell.lambda_] + 0.001 * index


@pytest.fixture
def two_lambdas(tmp_path: Path) -> WrittenReport:
    run = write_run(tmp_path / "run", [dataset(methods=TWO_LAMBDAS)], wrong_by_lambda)
    return write_report([run], tmp_path / "out")


def test_mistakes_have_the_confidence_of_the_lambda_that_is_named(two_lambdas) -> None:
    (part,) = two_lambdas.report.parts
    assert part.mistakes_of == "D-TPT (λ = 10⁵)"  # the paper's: there is no other set to choose on
    assert [mistake.confidence for mistake in part.mistakes] == [0.603, 0.602, 0.601, 0.6]
    text = two_lambdas.page.read_text("utf-8")
    assert "90.3 %" not in text


def test_each_set_shows_the_lambda_that_the_others_choose(tmp_path: Path) -> None:
    good = {("pets", 1e6), ("cars", 1e5), ("cows", 1e5)}  # what each set itself would choose

    def says(cell, index):
        return index > 0 and (
            cell.dataset,
            cell.lambda_,
        ) in good, 0.9 if cell.lambda_ == 1e6 else 0.8

    sets = [dataset(name, methods=TWO_LAMBDAS) for name in ("pets", "cars", "cows")]
    with load_runs([write_run(tmp_path, sets, says)]) as loaded:
        (condition,) = loaded.conditions
        chosen = mistaken_variants(condition)
        assert chosen["pets"] == Variant("d-tpt", 1e5)
        worst = worst_mistakes(condition)
    assert {m.confidence for m in worst if m.dataset == "pets"} == {0.8}


def test_the_most_confident_mistakes_come_first(five_methods) -> None:
    (condition,) = five_methods.conditions
    found = worst_mistakes(condition)
    confidences = [mistake.confidence for mistake in found]
    assert confidences == sorted(confidences, reverse=True)
    assert len(found) == 12
    wrong = [
        cell.column("confidence")[~cell.column("correct")]
        for (_, variant, (seed, _)), cell in condition.cells.items()
        if variant.method == "d-tpt" and seed == 0
    ]
    assert confidences[0] == np.concatenate(wrong).max()
    assert all(mistake.truth != mistake.predicted for mistake in found)
    assert not any(mistake.image for mistake in found)


def test_images_of_mistakes_are_embedded_where_the_data_are(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for index in range(2):
            path = tmp_path / "data" / name / f"image-{index:05d}.png"
            Image.new("RGB", (300, 200), "navy").save(path)
    name = f"folder:{tmp_path / 'data'}"
    ids = [sample.id for sample in load_dataset(name).samples]
    entry = dataset(name, samples=4, methods=TWO_LAMBDAS[:1])
    run = write_run(tmp_path / "run", [entry], wrong_by_lambda, names=[*ids[:3], "no-such-image"])
    with load_runs([run]) as loaded:
        found = {m.sample: m.image for m in worst_mistakes(loaded.conditions[0])}
    assert all(found[name].startswith("data:image/jpeg;base64,") for name in ids[:3])
    assert found["no-such-image"] == ""


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
    with load_runs(runs) as loaded:
        found = [{m.confidence for m in worst_mistakes(c)} for c in loaded.conditions]
    assert found == [{0.6}, {0.9}]
