"""The towers as published, which are the baseline of the benchmarks, equal ours."""

import pytest
import torch
from test_towers import clip_with

from benchmarks.reference_towers import ReferenceClip
from dtpt.clip.config import ResNetConfig, SmallResNetConfig
from dtpt.clip.prompts import PromptSet
from dtpt.methods.algorithm_1 import text_features

LIMIT = {"rtol": 0, "atol": 1e-12}
TOWERS = {
    "resnet": ResNetConfig(image_size=64, width=8, layers=(1, 2, 1, 1), heads=4),
    "small_resnet": SmallResNetConfig(
        image_size=64, stem_width=4, widths=(8, 12, 16), layers=(1, 2, 1)
    ),
}


@pytest.fixture(params=["quick_gelu", "gelu", *TOWERS])
def model(request, make_clip):
    if request.param in TOWERS:
        return clip_with(TOWERS[request.param]).double()
    return make_clip(dtype=torch.float64, activation=request.param)


def test_image_features_equal_the_reference(model):
    size = model.config.vision.image_size
    pixels = torch.randn(3, 3, size, size, dtype=torch.float64)
    expected = ReferenceClip(model).encode_image(pixels)
    torch.testing.assert_close(model.encode_image(pixels), expected, **LIMIT)


def test_text_features_equal_the_reference(model):
    names = ["cat", "dog", "a very large car"]
    prompts = PromptSet.build(model, names)
    expected = text_features(ReferenceClip(model), prompts, context=prompts.context)
    features = model.encode_text([f"a photo of a {name}." for name in names])
    torch.testing.assert_close(features, expected, **LIMIT)


def test_weights_are_shared_and_unchanged(model):
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    reference = ReferenceClip(model)
    shared = reference.state_dict()
    for name, tensor in model.state_dict().items():
        assert shared[name].data_ptr() == tensor.data_ptr()
        assert torch.equal(tensor, before[name])
    assert not any(weight.requires_grad for weight in reference.parameters())
