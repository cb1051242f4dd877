"""The towers: shapes, norms, the cut behind the end token, shared and differing prefixes."""

import pytest
import torch
import torch.nn.functional as F

from dtpt.clip.config import ClipConfig, ResNetConfig, SmallResNetConfig, TextConfig
from dtpt.clip.model import Clip, initialise
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.clip.transformer import Attention


def clip_with(vision):
    config = ClipConfig(
        embed_dim=24,
        activation="gelu",
        vision=vision,
        text=TextConfig(
            context_length=77, vocab_size=49408, width=16, layers=2, heads=2, mlp_width=32
        ),
    )
    model = Clip(config, tokenizer=Tokenizer.clip_default(), preprocessing=Preprocess.openai(64))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def resnet_clip():
    return clip_with(ResNetConfig(image_size=64, width=8, layers=(1, 2, 1, 1), heads=4))


@pytest.fixture(scope="module")
def small_resnet_clip():
    return clip_with(
        SmallResNetConfig(image_size=64, stem_width=4, widths=(8, 12, 16), layers=(1, 2, 1))
    )


@pytest.mark.parametrize("kind", ["tiny_clip", "resnet_clip", "small_resnet_clip"])
def test_features_are_unit_vectors_of_the_joint_dimension(kind, request):
    model = request.getfixturevalue(kind)
    size = model.config.vision.image_size
    images = model.encode_image(torch.randn(3, 3, size, size))
    texts = model.encode_text(["a photo of a cat.", "dog"])
    for features in (images, texts):
        assert features.shape[1] == model.config.embed_dim
        torch.testing.assert_close(features.norm(dim=-1), torch.ones(len(features)))
    assert model.logit_scale == pytest.approx(100.0, rel=1e-5)


def test_positions_behind_the_end_token_have_no_influence(tiny_clip):
    tokens = torch.tensor(tiny_clip.tokenize(["a photo of a cat."]))
    end = torch.tensor([tokens.shape[1] - 1])
    longer = F.pad(tokens, (0, 20), value=123)
    cut = tiny_clip.text(tiny_clip.text.embed(tokens), end)
    padded = tiny_clip.text(tiny_clip.text.embed(longer), end)
    torch.testing.assert_close(cut, padded, rtol=0, atol=1e-6)
    implied = tiny_clip.text(tiny_clip.text.embed(tokens), None)
    torch.testing.assert_close(cut, implied, rtol=0, atol=1e-6)


def test_a_batch_of_different_contexts_gives_what_each_gives_alone(make_clip):
    model = make_clip(dtype=torch.float64)
    contexts = torch.randn(4, 6, 48, dtype=torch.float64)  # four prefixes of six positions
    suffix = torch.randn(4, 3, 48, dtype=torch.float64)
    together = model.text(suffix, None, prefix=model.text.prefix(contexts))
    for i in range(4):
        whole = torch.cat([contexts[i], suffix[i]])[None]
        alone = model.text(whole, None)
        torch.testing.assert_close(together[i], alone[0], rtol=0, atol=1e-12)


def test_one_prefix_serves_many_continuations_of_different_length(make_clip):
    model = make_clip(dtype=torch.float64)
    tokens = model.tokenize(["a photo of a cat.", "a photo of a very big dog."])
    prefix = model.text.prefix(model.text.embed(torch.tensor([tokens[0][:5]])))
    rows = [torch.tensor(ids[5:]) for ids in tokens]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    end = torch.tensor([len(row) - 1 for row in rows])
    shared = F.normalize(model.text(model.text.embed(padded), end, prefix=prefix), dim=-1)
    whole = model.encode_text(["a photo of a cat.", "a photo of a very big dog."])
    torch.testing.assert_close(shared, whole, rtol=0, atol=1e-12)


def test_state_dict_has_openai_names_and_round_trips(tiny_clip, make_clip):
    state = tiny_clip.state_dict()
    assert {"token_embedding.weight", "text_projection", "logit_scale", "visual.proj"} <= set(state)
    assert not any(name.startswith("text.") for name in state)
    other = make_clip(seed=1)
    other.load_state_dict(state)
    texts = ["a photo of a cat."]
    assert torch.equal(other.encode_text(texts), tiny_clip.encode_text(texts))


def test_the_activation_changes_the_features(make_clip):
    quick, exact = make_clip(activation="quick_gelu"), make_clip(activation="gelu")
    difference = quick.encode_text(["cat"]) - exact.encode_text(["cat"])
    assert float(difference.abs().max()) > 1e-4


def test_text_batches_do_not_change_features(tiny_clip, monkeypatch):
    texts = [f"a photo of thing number {i}." for i in range(7)]
    whole = tiny_clip.encode_text(texts)
    monkeypatch.setattr("dtpt.clip.model.TEXTS_PER_BATCH", 3)
    torch.testing.assert_close(tiny_clip.encode_text(texts), whole, rtol=0, atol=1e-6)
    assert tiny_clip.encode_text([]).shape == (0, 32)


def test_random_weights_repeat_with_their_generator(make_clip):
    first, second = make_clip(seed=5), make_clip(seed=5)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


def test_attention_from_one_token_equals_that_row_of_attention():
    generator = torch.Generator().manual_seed(7)
    attention = Attention(width=24, heads=3).double().requires_grad_(False)
    for parameter in attention.parameters():
        parameter.normal_(0.0, 0.3, generator=generator)
    x = torch.randn(5, 11, 24, dtype=torch.float64, generator=generator)
    q, kv = attention.project(x)
    all_tokens = attention.attend(q, kv)
    torch.testing.assert_close(
        attention.attend_from(x[:, 4:5], x), all_tokens[:, 4:5], rtol=0, atol=1e-12
    )
