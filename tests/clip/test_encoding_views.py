"""Features of views: the same bits whatever follows, in fixed batches, with progress."""

import pytest
import torch
from test_towers import clip_with

from dtpt.clip.config import ResNetConfig
from dtpt.clip.loading import load_model
from dtpt.clip.loading.names import architecture
from dtpt.clip.model import Clip, view_batches, views_per_batch
from dtpt.clip.preprocess import Preprocess


def resnet():
    return clip_with(ResNetConfig(image_size=64, width=8, layers=(1, 2, 1, 1), heads=4))


@pytest.mark.parametrize("kind", ["vit", "resnet", "pocket"])
def test_first_views_have_the_same_bits_however_many_follow(kind, tiny_clip):
    models = {"vit": lambda: tiny_clip, "resnet": resnet, "pocket": lambda: load_model("pocket")}
    model = models[kind]()
    size = model.config.vision.image_size
    pixels = torch.randn(64, 3, size, size, generator=torch.Generator().manual_seed(3))
    whole = model.encode_views(pixels)
    assert whole.shape == (64, model.config.embed_dim)
    for count in (1, 8, 16, 32, 48):
        assert torch.equal(model.encode_views(pixels[:count]), whole[:count]), count
        assert torch.equal(model.encode_views(pixels[:count].clone()), whole[:count]), count
    torch.testing.assert_close(whole, model.encode_image(pixels), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "size"),
    [("ViT-B-16", 8), ("ViT-B-32", 16), ("ViT-L-14", 4), ("ViT-L-14-336", 2), ("RN50", 16)],
)
def test_fewer_views_run_together_where_a_view_has_many_tokens(name, size):
    with torch.device("meta"):
        visual = Clip(architecture(name), tokenizer=None, preprocessing=Preprocess.openai()).visual
    assert views_per_batch(visual) == size


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [0, 1, 2, 8, 9, 16, 17, 64, 100])
def test_batches_cover_every_view_once_and_end_at_the_borders(count, size):
    batches = view_batches(count, size=size)
    assert [i for batch in batches for i in range(batch.start, batch.stop)] == list(range(count))
    ends = {batch.stop for batch in batches}
    assert {border for border in (1, 8, 16, 32, 48, 64) if border <= count} <= ends
    assert all(batch.stop - batch.start <= max(size, 8) for batch in batches)


def test_progress_is_reported_after_each_batch(tiny_clip):
    calls = []
    pixels = torch.randn(20, 3, 32, 32)
    tiny_clip.encode_views(pixels, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 20), (8, 20), (16, 20), (20, 20)]


def test_no_views_give_no_features(tiny_clip):
    assert tiny_clip.encode_views(torch.empty(0, 3, 32, 32)).shape == (0, 32)
