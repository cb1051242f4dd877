"""Models whose towers are not ours: opaque image encoders, bidirectional text towers, no text."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtpt.clip.config import ModelConfig, TextConfig
from dtpt.clip.model import Clip, initialise, views_per_batch
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.prompts import PromptSet
from dtpt.clip.text import TextTower
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import ModelError

TEXT = TextConfig(context_length=20, vocab_size=49408, width=16, layers=2, heads=2, mlp_width=32)
NAMES = ["cat", "a very large car", "red apple"]
LIMIT = {"rtol": 0, "atol": 1e-12}


def mean_colour(pixels):
    """An image encoder that is a plain function: mean and spread of each channel."""
    assert not torch.is_grad_enabled()
    return torch.cat([pixels.mean(dim=(2, 3)), pixels.std(dim=(2, 3)) + 1], dim=1)  # (N, 6)


class MeanText(nn.Module):
    """The smallest bidirectional tower: the feature is a map of the mean over all positions."""

    is_causal = False
    width, context_length, activations_per_token = 8, 20, 8

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(49408, self.width)
        self.out = nn.Linear(self.width, 6)

    def embed(self, tokens):
        return self.table(tokens)

    def forward(self, embeddings, end):
        assert embeddings.shape[1] == self.context_length  # padding counts: never cut
        state = embeddings.mean(dim=1) + embeddings[torch.arange(len(end)), end]
        return self.out(state)


def clip(*, text=None, text_config=None, visual=mean_colour):
    model = Clip(
        ModelConfig(embed_dim=6, activation="gelu", vision=None, text=text_config),
        tokenizer=Tokenizer.clip_default(context_length=20) if text or text_config else None,
        preprocessing=Preprocess.openai(8),
        visual=visual,
        text=text,
    )
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval().requires_grad_(False)


def bidirectional_tower():
    config = TEXT.model_copy(update={"is_causal": False})
    tower = TextTower(config, 6, activation="gelu")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in tower.parameters():
            weight.normal_(0.0, 0.3, generator=generator)
    return tower.double().requires_grad_(False)


# ---- image encoders


@pytest.mark.parametrize("visual", [mean_colour, nn.Sequential(nn.Flatten(), nn.Linear(192, 6))])
def test_any_callable_encodes_images(visual):
    model = clip(text_config=TEXT, visual=visual)
    pixels = torch.randn(20, 3, 8, 8)
    features = model.encode_views(pixels)
    torch.testing.assert_close(features, model.encode_image(pixels), rtol=0, atol=1e-6)
    torch.testing.assert_close(features.norm(dim=-1), torch.ones(20))
    assert views_per_batch(model.visual) == 16
    assert model.packed_bytes == 0
    assert (model.precision, model.in_precision("bfloat16").precision) == ("float32", "bfloat16")
    assert model.encode_image(pixels).dtype == torch.float32
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.encode_image(pixels), model.encode_image(pixels))


@pytest.mark.parametrize(
    "visual", [lambda pixels: pixels.mean(dim=(2, 3)), lambda _: torch.ones(6)]
)
def test_features_of_another_shape_are_refused(visual):
    with pytest.raises(ModelError, match="6"):
        clip(text_config=TEXT, visual=visual).encode_image(torch.randn(2, 3, 8, 8))


def test_config_without_image_tower_needs_one():
    with pytest.raises(ModelError, match="visual"):
        clip(text_config=TEXT, visual=None)


# ---- text towers that are not causal


def test_bidirectional_tower_attends_to_every_position():
    tower, embeddings = bidirectional_tower(), torch.randn(3, 20, 16, dtype=torch.float64)
    end = torch.tensor([4, 7, 19])
    features = tower(embeddings, end)
    states = tower.transformer(embeddings + tower.positional_embedding)  # every block, no mask
    whole = tower.ln_final(states)[torch.arange(3), end] @ tower.text_projection
    torch.testing.assert_close(features, whole, **LIMIT)
    torch.testing.assert_close(tower(embeddings, None)[2], features[2], **LIMIT)
    changed = embeddings.clone()
    changed[:, 12] *= -1
    assert float((tower(changed, end) - features).norm(dim=1).min()) > 1e-3
    with pytest.raises(ModelError, match="causal"):
        tower.prefix(embeddings[:, :3])


def padded_features(model, prompts, context):
    """What a prompt encoder does for any tower: whole sequences with the context put in."""
    tower = model.require_text()
    layout = prompts.padded(tower.context_length, pad_id=model.tokenizer.pad_id)
    embeddings = tower.embed(layout.tokens)  # (C, L, W)
    rows = torch.arange(len(layout.tokens))[:, None]
    embeddings = embeddings.index_put(
        (rows, layout.context), context.expand(len(rows), -1, -1).to(embeddings)
    )
    return F.normalize(tower(embeddings, layout.end), dim=-1)


@pytest.mark.parametrize("template", ["a photo of a {}.", "a {}, a type of pet."])
@pytest.mark.parametrize("make", [bidirectional_tower, MeanText, None])
def test_padded_prompts_give_the_features_of_the_texts(make, template):
    model = (clip(text_config=TEXT) if make is None else clip(text=make())).double()
    prompts = PromptSet.build(model, NAMES, template=template)
    texts = model.encode_text([template.replace("{}", name) for name in NAMES])
    features = padded_features(model, prompts, prompts.context)
    torch.testing.assert_close(features, texts, **LIMIT)
    other = padded_features(model, prompts, prompts.context * 2)
    assert float((other - features).abs().max()) > 1e-4


def test_padded_prompts_are_the_tokens_of_the_texts_and_padding():
    model = clip(text_config=TEXT)
    prompts = PromptSet.build(model, NAMES, template="a {}, a type of pet.")
    layout = prompts.padded(20, pad_id=7)
    for row, name in enumerate(NAMES):
        (ids,) = model.tokenize([f"a {name}, a type of pet."])
        assert layout.tokens[row].tolist() == ids + [7] * (20 - len(ids))
        assert int(layout.end[row]) == len(ids) - 1
        words = [model.tokenizer.spell(int(layout.tokens[row, i])) for i in layout.context[row]]
        assert words == ["a", "a", "type", "of", "pet"]


def test_prompts_of_a_bidirectional_tower_pass_gradients_to_the_context():
    model = clip(text=bidirectional_tower()).double()
    prompts = PromptSet.build(model, NAMES)
    context = prompts.context.clone().requires_grad_()
    padded_features(model, prompts, context).sum().backward()
    assert context.grad.shape == (4, 16)
    assert float(context.grad.abs().min()) > 0


# ---- no text tower


def test_model_without_text_tower_encodes_images_only():
    model = clip()
    assert model.text is None
    assert model.encode_views(torch.randn(9, 3, 8, 8)).shape == (9, 6)
    assert model.in_precision("float16").precision == "float16"
    with pytest.raises(ModelError, match="text tower"):
        model.encode_text(["a cat"])
    with pytest.raises(ModelError, match="text tower"):
        PromptSet.build(model, ["cat", "dog"])
    with pytest.raises(ModelError):
        model.tokenize(["a cat"])
