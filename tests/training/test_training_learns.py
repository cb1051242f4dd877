"""The training code, on tiny drawings made here: no artwork, no network."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from training import augment, batches, captions, export
from training.artwork import Artwork, Concept, load, slug
from training.model import EMBEDDING_STD, contrastive_loss, normalised
from training.train import Settings, Trainer, rate_factor, run

SIDE = 32
NAMES = ("red disc", "blue square", "green bar", "yellow ring", "black cross", "purple corner")


def _shape(name: str) -> np.ndarray:
    """Whether a pixel belongs to the shape: (SIDE, SIDE) booleans."""
    rows, columns = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    distance = np.hypot(rows, columns)
    return {
        "red disc": distance < 0.8,
        "blue square": np.maximum(abs(rows), abs(columns)) < 0.7,
        "green bar": (abs(rows) < 0.25) & (abs(columns) < 0.9),
        "yellow ring": (distance < 0.9) & (distance > 0.55),
        "black cross": np.minimum(abs(rows), abs(columns)) < 0.2,
        "purple corner": (rows > 0) | (columns < -0.4),
    }[name]


_COLOURS = {
    "red": (220, 30, 30),
    "blue": (30, 60, 220),
    "green": (20, 160, 60),
    "yellow": (230, 200, 20),
    "black": (10, 10, 10),
    "purple": (150, 40, 170),
}


@pytest.fixture(scope="module")
def artwork() -> Artwork:
    """Six shapes in four "styles" that differ in brightness."""
    drawings, concept, style = [], [], []
    for number, name in enumerate(NAMES):
        for shade in range(4):
            pixels = np.zeros((SIDE, SIDE, 4), np.uint8)
            colour = np.array(_COLOURS[name.split()[0]]) * (0.7 + 0.1 * shade)
            pixels[_shape(name)] = (*colour.astype(np.uint8), 255)
            drawings.append(pixels)
            concept.append(number)
            style.append(shade)
    concepts = tuple(Concept(str(k), name, (), "") for k, name in enumerate(NAMES))
    return Artwork(
        np.stack(drawings), np.array(concept), np.array(style), concepts, ("a", "b", "c", "d")
    )


@pytest.fixture(scope="module")
def tokenizer_json(artwork: Artwork) -> bytes:
    return captions.train_tokenizer(artwork.concepts, merges=60)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


SHORT = Settings(
    steps=36,
    decay_from=30,
    warmup=3,
    pull_from=12,
    joint_from=24,
    ramp=200,
    concepts=6,
    per_concept=3,
    average=0.8,
)


def test_a_short_run_learns_and_its_export_keeps_what_was_learnt(
    artwork, tokenizer_json, tmp_path, one_thread
):
    trainer = Trainer(artwork, tokenizer_json, settings=SHORT)
    log: list[dict[str, float]] = []
    run(trainer, workers=0, report_every=6, report=log.append)
    assert [entry["step"] for entry in log] == [6, 12, 18, 24, 30, 36]
    for earlier, later in (log[0:2], log[2:4]):  # each pair of entries has one and the same loss
        assert later["loss"] < earlier["loss"]
    assert log[0]["accuracy"] < log[3]["accuracy"]
    assert min(entry["accuracy"] for entry in log[4:]) > 2.5 / len(NAMES)

    trainer.save(tmp_path / "checkpoint.pt")
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json)
    assert export.export(tmp_path, tmp_path / "model") == 36
    from dtpt.clip.loading.build import load_model

    model = load_model(f"local-dir:{tmp_path / 'model'}")
    batch = trainer.batches().batch(1000)
    texts = model.encode_text([f"a photo of a {name}." for name in NAMES])
    pixels = np.stack(
        [model.preprocessing.normalise(p.permute(1, 2, 0).numpy()) for p in batch.images]
    )
    predicted = (model.encode_image(torch.from_numpy(pixels)) @ texts.T).argmax(1)
    assert (predicted == batch.labels).float().mean() > 2 / len(NAMES)
    assert abs(float(model.text.token_embedding.weight.std()) / EMBEDDING_STD - 1) < 0.1


def test_a_stopped_run_continues_as_if_it_had_not_stopped(
    artwork, tokenizer_json, tmp_path, one_thread
):
    settings = Settings(steps=4, decay_from=3, warmup=2, joint_from=3, concepts=3, per_concept=2)
    whole = Trainer(artwork, tokenizer_json, settings=settings)
    run(whole, workers=0, report_every=4, report=lambda _: None)
    first = Trainer(artwork, tokenizer_json, settings=settings)
    for step in range(2):
        first.advance(first.batches().batch(step))
    first.save(tmp_path / "half.pt")
    second = Trainer(artwork, tokenizer_json, settings=settings)
    second.load(tmp_path / "half.pt")
    run(second, workers=0, report_every=4, report=lambda _: None)
    for name, weights in whole.average.model.state_dict().items():
        assert torch.equal(weights, second.average.model.state_dict()[name]), name


def test_batches_depend_on_seed_and_step_only(artwork, tokenizer_json):
    trainer = Trainer(artwork, tokenizer_json, settings=SHORT)
    stream = trainer.batches()
    again = stream.batch(7)
    assert torch.equal(stream.batch(7).images, again.images)
    assert torch.equal(stream.batch(7).tokens, again.tokens)
    assert not torch.equal(stream.batch(8).images, again.images)


def test_every_image_of_a_batch_shows_the_concept_of_its_label(artwork, tokenizer_json):
    stream = batches.Batches(
        artwork,
        Trainer(artwork, tokenizer_json, settings=SHORT).model.clip.tokenizer,
        seed=3,
        concepts=4,
        per_concept=3,
        ramp=1,
        first=0,
    )
    fresh = np.array([5, 0, 2])
    first, second = stream._drawings(fresh, np.random.default_rng(0))
    assert artwork.concept[first].tolist() == [5, 5, 5, 0, 0, 0, 2, 2, 2]
    assert (artwork.concept[second] == artwork.concept[first]).all()
    assert len(set(first[:3])) == 3  # three different styles


def test_augmentation_keeps_shape_and_range_and_varies(artwork):
    drawings = torch.from_numpy(artwork.pixels[:8])
    made = [
        augment.augment(
            drawings,
            drawings,
            flippable=torch.ones(8),
            still=0.0,
            hard=1.0,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in (0, 1)
    ]
    assert made[0].shape == (8, 3, 64, 64)
    assert made[0].dtype == torch.uint8
    assert (made[0].float() - made[1].float()).abs().mean() > 5


def test_line_art_inks_the_border_and_spares_the_inside():
    rgba = torch.zeros(1, 4, 64, 64)
    rgba[:, :, 16:48, 16:48] = torch.tensor([0.1, 0.1, 0.9, 1.0]).view(1, 4, 1, 1)
    pen = augment.lines(rgba[:, :3], rgba[:, 3:], generator=torch.Generator().manual_seed(0))
    assert pen[0, 0, 32, 16] > 0.5
    assert pen[0, 0, 32, 32] == 0
    assert pen[0, 0, 2, 2] == 0


def test_loss_is_small_when_images_and_captions_agree_and_sees_the_whole_bank():
    texts = torch.eye(4)[:2]
    labels, fresh = torch.tensor([0, 1, 1]), torch.tensor([0, 1])
    images = torch.eye(4)[labels]
    scale = torch.tensor(50.0)

    def loss_with(bank: torch.Tensor) -> float:
        value, _ = contrastive_loss(
            images, texts, labels=labels, fresh=fresh, bank=bank, scale=scale
        )
        return float(value)

    apart = loss_with(torch.eye(4))
    # Two positives share the probability of a caption: log 2 is the least for that caption.
    assert apart == pytest.approx(0.3 * np.log(2) / 2, abs=1e-4)
    rival = torch.eye(4)
    rival[3] = images[0]  # a concept outside the batch that looks the same
    assert loss_with(rival) > apart + 0.1


def test_learning_rate_rises_stays_and_falls_to_zero():
    settings = Settings(steps=100, decay_from=60, warmup=10)
    factors = [rate_factor(step, settings) for step in range(101)]
    assert factors[0] == pytest.approx(0.1)
    assert set(factors[10:60]) == {1.0}
    assert factors[60:] == sorted(factors[60:], reverse=True)
    assert factors[100] == pytest.approx(0.0)


def test_the_vocabulary_writes_any_text(tokenizer_json):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer_json.decode())
    for text in ("a photo of a red disc.", "Zürich 漢字 №7!", "~"):
        tokens = tokenizer.encode(text).tokens
        assert tokens
        assert "".join(tokens).count("</w>") >= len(text.split())
    assert json.loads(tokenizer_json)["model"]["end_of_word_suffix"] == "</w>"


def test_aliases_that_name_two_concepts_are_not_used():
    camel = Concept("a", "camel", ("dromedary",), "")
    two_humps = Concept("b", "two-hump camel", ("camel", "bactrian camel"), "")
    assert captions.names_of([camel, two_humps]) == [
        ("camel", "dromedary"),
        ("two-hump camel", "bactrian camel"),
    ]


def test_spellings_of_one_name_are_recognised():
    assert slug("Piñata") == slug("pinata")
    assert slug("woman’s sandal") == slug("womans-sandal")


def test_a_style_can_be_left_out(artwork, tmp_path: Path):
    np.save(tmp_path / "drawings.npy", artwork.pixels)
    listing = {
        "styles": artwork.styles,
        "concepts": [
            {"char": c.char, "name": c.name, "aliases": [], "group": ""} for c in artwork.concepts
        ],
        "concept": artwork.concept.tolist(),
        "style": artwork.style.tolist(),
    }
    (tmp_path / "drawings.json").write_text(json.dumps(listing))
    rest = load(tmp_path, without="b")
    assert len(rest.pixels) == 18
    assert 1 not in rest.style


def test_the_record_of_a_continued_run_holds_every_step_once():
    lines = [{"step": s, "loss": s / 10} for s in (100, 200, 300)]
    again = [{"step": s, "loss": 1.0} for s in (200, 225, 300)]
    log = "\n".join(json.dumps(entry) for entry in lines + again)
    assert export.thinned(log) == [
        {"step": 100, "loss": 10.0},
        {"step": 200, "loss": 1.0},
        {"step": 300, "loss": 1.0},
    ]


def test_folding_the_extra_norm_does_not_change_image_features(artwork, tokenizer_json):
    trainer = Trainer(artwork, tokenizer_json, settings=SHORT)
    for step in range(2):
        trainer.advance(trainer.batches().batch(step))
    images = trainer.batches().batch(9).images
    model = trainer.model.eval()
    folded = model.folded()
    expected = model.image_features(images)
    actual = folded.encode_image(normalised(images, folded.preprocessing))
    torch.testing.assert_close(actual, expected.detach(), rtol=0, atol=1e-5)
