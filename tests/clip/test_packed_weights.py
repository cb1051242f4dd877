"""Packed weights: equal products to float32 rounding, only for large layers, never out of date."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

from benchmarks.reference_towers import ReferenceClip
from dtpt.clip import packed
from dtpt.clip.loading import load_model
from dtpt.clip.loading.names import architecture
from dtpt.clip.model import random_clip
from dtpt.clip.packed import MIN_WEIGHTS, PackedWeights, packed_bytes
from dtpt.clip.prompts import PromptSet
from dtpt.methods import resolve_method
from dtpt.methods.algorithm_1 import algorithm_1
from dtpt.tuning import Tuner

needs_onednn = pytest.mark.skipif(not packed.HAS_ONEDNN, reason="no oneDNN on x86 here")
LIMIT = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def layer(outputs=512, inputs=256, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, inputs, generator=generator, dtype=dtype) / inputs**0.5
    return weight, torch.randn(outputs, generator=generator, dtype=dtype)


def count_products(monkeypatch):
    counted = []
    real = packed._product

    def product(*args, **named):
        counted.append(args[0].shape)
        return real(*args, **named)

    monkeypatch.setattr(packed, "_product", product)
    return counted


@needs_onednn
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("shape", [(1, 256), (7, 256), (3, 5, 256), (2, 3, 4, 256)])
def test_product_and_gradient_equal_a_linear_layer(shape, silu, monkeypatch):
    counted = count_products(monkeypatch)
    weight, bias = layer()
    x = torch.randn(shape, requires_grad=True)
    direction = torch.randn(*shape[:-1], 512)
    product = PackedWeights().linear(x, weight, bias=bias, name="w", silu=silu)
    expected = F.linear(x, weight, bias)
    expected = F.silu(expected) if silu else expected
    torch.testing.assert_close(product, expected, **LIMIT)
    for _ in range(2):  # kept graphs are differentiated many times
        gradients = [
            torch.autograd.grad(y, x, direction, retain_graph=True)[0] for y in (product, expected)
        ]
        torch.testing.assert_close(*gradients, **LIMIT)
    with torch.no_grad():
        again = PackedWeights().linear(x, weight, bias=bias, name="w", silu=silu)
    torch.testing.assert_close(again, expected, **LIMIT)
    assert len(counted) == 4  # forward, backward twice, forward: all packed


@needs_onednn
def test_memory_order_does_not_matter():
    weight, bias = layer()
    x = torch.randn(256, 6).t()  # not contiguous
    wide = (torch.randn(512, 512) / 16)[:, ::2]
    for part in (weight, wide):
        product = PackedWeights().linear(x, part, bias=bias, name="w")
        torch.testing.assert_close(product, F.linear(x, part, bias), **LIMIT)


@needs_onednn
def test_result_does_not_depend_on_earlier_calls():
    weight, bias = layer()
    few, many = torch.randn(3, 256), torch.randn(3000, 256)
    first, second = PackedWeights(), PackedWeights()
    first.linear(many, weight, bias=bias, name="w")
    second.linear(few, weight, bias=bias, name="w")
    for x in (few, many):
        results = [kept.linear(x, weight, bias=bias, name="w") for kept in (first, second)]
        assert torch.equal(*results)


@needs_onednn
def test_changed_weights_are_packed_again():
    weight, bias = layer()
    x, copies = torch.randn(4, 256), PackedWeights()
    copies.linear(x, weight, bias=bias, name="w")
    with torch.no_grad():
        weight.mul_(2)
    changed = copies.linear(x, weight, bias=bias, name="w")
    torch.testing.assert_close(changed, F.linear(x, weight, bias), **LIMIT)
    other = weight * 3
    replaced = copies.linear(x, other, bias=bias, name="w")
    torch.testing.assert_close(replaced, F.linear(x, other, bias), **LIMIT)


@needs_onednn
def test_weights_are_packed_once():
    weight, bias = layer()
    x, copies = torch.randn(4, 256), PackedWeights()
    copies.linear(x, weight, bias=bias, name="w")
    made = copies._packed["w"]
    copies.linear(x, weight, bias=bias, name="w")
    assert copies._packed["w"] is made


@pytest.mark.parametrize(
    ("weight", "x"),
    [
        pytest.param(layer(16, 16)[0], torch.randn(2, 16), id="small"),
        pytest.param(layer(dtype=torch.float64)[0], torch.randn(2, 256).double(), id="float64"),
        pytest.param(layer()[0].bfloat16(), torch.randn(2, 256).bfloat16(), id="bfloat16"),
        pytest.param(layer()[0].requires_grad_(), torch.randn(2, 256), id="trained"),
        pytest.param(layer()[0], torch.randn(0, 256), id="empty"),
        pytest.param(layer()[0].to("meta"), torch.randn(2, 256, device="meta"), id="elsewhere"),
    ],
)
def test_everything_else_takes_torchs_linear_layer(weight, x, monkeypatch):
    counted = count_products(monkeypatch)
    bias = torch.zeros(len(weight), dtype=weight.dtype, device=weight.device)
    y = PackedWeights().linear(x, weight, bias=bias, name="w", silu=True)
    assert y.shape == (len(x), len(weight))
    assert y.requires_grad == weight.requires_grad
    if x.device.type == "cpu":
        assert torch.equal(y, F.silu(F.linear(x, weight, bias)))
    assert counted == []


@needs_onednn
def test_copies_and_pickles_of_a_model_exclude_packed_weights(make_clip):
    model = make_clip()
    copies = model.text.transformer.blocks[0].attn.packed
    weight, bias = layer()
    copies.linear(torch.randn(1, 256), weight, bias=bias, name="w")
    assert copies._packed
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.text.transformer.blocks[0].attn.packed._packed == {}
        assert other.state_dict().keys() == model.state_dict().keys()


def test_weights_of_inference_mode_are_not_packed():
    with torch.inference_mode():
        weight, bias = layer()
        x = torch.randn(2, 256)
        product = PackedWeights().linear(x, weight, bias=bias, name="w")
        assert torch.equal(product, F.linear(x, weight, bias))


def test_pocket_is_too_small_to_be_packed():
    blocks = load_model("pocket", device="cpu").text.transformer.blocks
    sizes = [weight.numel() for block in blocks for weight in block.parameters()]
    assert max(sizes) < MIN_WEIGHTS


@pytest.fixture(scope="module")
def medium_clip():
    """A CLIP whose layers are just large enough to be packed."""
    config = architecture("ViT-B-32")
    narrow = {"width": 256, "layers": 2, "heads": 4, "mlp_width": 1024}
    return random_clip(
        config.model_copy(
            update={
                "vision": config.vision.model_copy(update=narrow | {"image_size": 96}),
                "text": config.text.model_copy(update=narrow),
            }
        )
    )


@needs_onednn
def test_memory_estimate_equals_the_packed_copies(medium_clip):
    for tower, backward in ((medium_clip.visual, False), (medium_clip.text, True)):
        tower = copy.deepcopy(tower)
        if backward:
            tower.transformer(torch.randn(1, 3, 256, requires_grad=True))
        else:
            tower.transformer(torch.randn(1, 3, 256))
        made = [
            c for block in tower.transformer.blocks for c in (block.attn.packed, block.mlp.packed)
        ]
        kept = [entry for copies in made for entry in copies._packed.values()]
        weights = sum(4 * entry.source.numel() for entry in kept)
        assert packed_bytes(tower, backward=backward) == weights * (1 + backward)


@needs_onednn
@pytest.mark.parametrize("name", ["tpt", "c-tpt", "o-tpt", "d-tpt"])
def test_engine_on_packed_weights_equals_algorithm_1(medium_clip, name, monkeypatch):
    counted = count_products(monkeypatch)
    prompts = PromptSet.build(medium_clip, ["cat", "dog", "red apple", "a very large car"])
    views = F.normalize(torch.randn(16, 512, generator=torch.Generator().manual_seed(1)), dim=-1)
    method = resolve_method(name)
    (product,) = Tuner(medium_clip, prompts).predict(views, [method])
    assert counted
    expected = algorithm_1(ReferenceClip(medium_clip), prompts, views=views, method=method)
    torch.testing.assert_close(product.probabilities, expected, rtol=0, atol=1e-5)
