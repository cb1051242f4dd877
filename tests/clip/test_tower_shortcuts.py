"""Skipped and fused operations change rounding only: compared with the formulas in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtpt.clip.config import TextConfig
from dtpt.clip.resnet import FoldedNorms, add_relu
from dtpt.clip.transformer import Block

LIMIT = {"rtol": 0, "atol": 1e-12}


def randomised(module, seed=0):
    """Give every weight and statistic a random value, so that each one matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
                tensor.copy_(noise.abs() + 0.5 if name.endswith("running_var") else 0.3 * noise)
    return module


@pytest.fixture(params=["quick_gelu", "gelu"])
def block(request):
    config = TextConfig(width=16, heads=2, mlp_width=32, layers=1, context_length=8, vocab_size=8)
    made = Block(config, activation=request.param).double()
    return randomised(made).requires_grad_(False), request.param


def reference_block(block, x, activation):
    """The block as the paper writes it."""
    q, kv = block.attn.project(block.ln_1(x))
    x = x + block.attn.attend(q, kv)
    hidden = block.mlp.c_fc(block.ln_2(x))
    hidden = F.gelu(hidden) if activation == "gelu" else hidden * torch.sigmoid(1.702 * hidden)
    return x + block.mlp.c_proj(hidden)


def test_block_and_gradient_equal_the_formula(block):
    module, activation = block
    x = torch.randn(3, 5, 16, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, 5, 16, dtype=torch.float64)
    results = [module(x), reference_block(module, x, activation)]
    gradients = [torch.autograd.grad(y, x, direction)[0] for y in results]
    torch.testing.assert_close(results[0], results[1], **LIMIT)
    torch.testing.assert_close(gradients[0], gradients[1], **LIMIT)
    with torch.no_grad():
        torch.testing.assert_close(module(x), results[1].detach(), **LIMIT)


def test_gradients_of_weights_equal_the_formula(block):
    module, activation = block
    module.requires_grad_(True)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    sums = [module(x).square().sum(), reference_block(module, x, activation).square().sum()]
    grads = [torch.autograd.grad(total, list(module.parameters())) for total in sums]
    for gradient, expected in zip(*grads, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


def test_partial_projections_equal_the_whole_one(block):
    attention = block[0].attn
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    q, (k, v) = attention.project(x)
    alone = attention.keys_values(x)
    torch.testing.assert_close(attention.queries(x), q, **LIMIT)
    torch.testing.assert_close(alone[0], k, **LIMIT)
    torch.testing.assert_close(alone[1], v, **LIMIT)


@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
def test_last_block_at_the_class_token_equals_the_whole_block(make_clip, activation):
    tower = randomised(make_clip(dtype=torch.float64, activation=activation).visual)
    pixels = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        x = tower.conv1(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([tower.class_embedding.expand(2, 1, -1), x], 1) + tower.positional_embedding
        x = tower.transformer(tower.ln_pre(x))
        whole = tower.ln_post(x[:, 0]) @ tower.proj
        torch.testing.assert_close(tower(pixels), whole, **LIMIT)


@pytest.mark.parametrize("stride", [1, 2])
def test_folded_norm_equals_the_norm_after_the_convolution(stride):
    conv = randomised(nn.Conv2d(4, 6, 3, stride=stride, padding=1, bias=False).double())
    norm = randomised(nn.BatchNorm2d(6).double()).eval()
    x = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    folds = FoldedNorms()
    for _ in range(2):  # folded, then reused
        torch.testing.assert_close(folds.conv_norm(x, conv, norm=norm), norm(conv(x)), **LIMIT)
    down = nn.Sequential(nn.AvgPool2d(2), conv, norm)
    torch.testing.assert_close(FoldedNorms().shortcut(x, down), down(x), **LIMIT)
    assert folds.shortcut(x, None) is x
    norm.train()
    before = norm.running_mean.clone()
    folds.conv_norm(x, conv, norm=norm)
    assert not torch.equal(norm.running_mean, before)  # training still gathers statistics


def test_nothing_is_overwritten_when_a_gradient_is_needed():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    shortcut = torch.tensor([0.5, 0.5])
    fresh = x * 1
    assert add_relu(fresh, shortcut).tolist() == [0.0, 2.5]
    assert fresh.tolist() == [-1.0, 2.0]
    with torch.no_grad():
        fresh = torch.tensor([-1.0, 2.0])
        assert add_relu(fresh, shortcut).data_ptr() == fresh.data_ptr()
    assert shortcut.tolist() == [0.5, 0.5]


@torch.no_grad()
@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
def test_towers_change_neither_their_input_nor_their_weights(make_clip, activation):
    model = make_clip(activation=activation)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pixels = torch.randn(2, 3, 32, 32)
    embeddings, prefix = torch.randn(2, 4, 48), torch.randn(1, 3, 48)
    given = [tensor.clone() for tensor in (pixels, embeddings, prefix)]
    model.visual(pixels)
    model.text(embeddings, None, prefix=model.text.prefix(prefix))
    model.text.transformer(embeddings)
    for now, before in zip((pixels, embeddings, prefix), given, strict=True):
        assert torch.equal(now, before)
    assert all(torch.equal(model.state_dict()[name], state[name]) for name in state)
