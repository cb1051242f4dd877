"""What the towers leave out or join changes rounding only: against plain formulas in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtpt.clip.config import TextConfig
from dtpt.clip.resnet import FoldedNorms, add_relu
from dtpt.clip.transformer import Block

LIMIT = {"rtol": 0, "atol": 1e-12}


def shaken(module, seed=0):
    """Make every weight and statistic matter."""
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
    return shaken(made).requires_grad_(False), request.param


def plain_block(block, x, activation):
    """The block as papers write it."""
    q, kv = block.attn.project(block.ln_1(x))
    x = x + block.attn.attend(q, kv)
    hidden = block.mlp.c_fc(block.ln_2(x))
    hidden = F.gelu(hidden) if activation == "gelu" else hidden * torch.sigmoid(1.702 * hidden)
    return x + block.mlp.c_proj(hidden)


def test_block_is_the_plain_formula_and_so_is_its_gradient(block):
    module, activation = block
    x = torch.randn(3, 5, 16, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, 5, 16, dtype=torch.float64)
    results = [module(x), plain_block(module, x, activation)]
    gradients = [torch.autograd.grad(y, x, direction)[0] for y in results]
    torch.testing.assert_close(results[0], results[1], **LIMIT)
    torch.testing.assert_close(gradients[0], gradients[1], **LIMIT)
    with torch.no_grad():
        torch.testing.assert_close(module(x), results[1].detach(), **LIMIT)


def test_weights_can_still_be_trained(block):
    module, activation = block
    module.requires_grad_(True)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    sums = [module(x).square().sum(), plain_block(module, x, activation).square().sum()]
    grads = [torch.autograd.grad(total, list(module.parameters())) for total in sums]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_queries_keys_and_values_alone_are_those_of_the_whole_projection(block):
    attention = block[0].attn
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    q, (k, v) = attention.project(x)
    alone = attention.keys_values(x)
    torch.testing.assert_close(attention.queries(x), q, **LIMIT)
    torch.testing.assert_close(alone[0], k, **LIMIT)
    torch.testing.assert_close(alone[1], v, **LIMIT)


@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
def test_class_token_alone_is_what_the_whole_last_block_gives(make_clip, activation):
    tower = shaken(make_clip(dtype=torch.float64, activation=activation).visual)
    pixels = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        x = tower.conv1(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([tower.class_embedding.expand(2, 1, -1), x], 1) + tower.positional_embedding
        x = tower.transformer(tower.ln_pre(x))
        whole = tower.ln_post(x[:, 0]) @ tower.proj
        torch.testing.assert_close(tower(pixels), whole, **LIMIT)


@pytest.mark.parametrize("stride", [1, 2])
def test_folded_norm_is_the_norm_behind_the_convolution(stride):
    conv = shaken(nn.Conv2d(4, 6, 3, stride=stride, padding=1, bias=False).double())
    norm = shaken(nn.BatchNorm2d(6).double()).eval()
    x = torch.randn(2, 4, 8, 8, dtype=torch.float64)
    folds = FoldedNorms()
    for _ in range(2):  # made, then kept
        torch.testing.assert_close(folds.conv_norm(x, conv, norm=norm), norm(conv(x)), **LIMIT)
    down = nn.Sequential(nn.AvgPool2d(2), conv, norm)
    torch.testing.assert_close(FoldedNorms().shortcut(x, down), down(x), **LIMIT)
    assert folds.shortcut(x, None) is x
    norm.train()
    before = norm.running_mean.clone()
    folds.conv_norm(x, conv, norm=norm)
    assert not torch.equal(norm.running_mean, before)  # training still gathers statistics


def test_overwriting_stops_where_a_gradient_is_wanted():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    shortcut = torch.tensor([0.5, 0.5])
    fresh = x * 1
    assert add_relu(fresh, shortcut).tolist() == [0.0, 2.5]
    assert fresh.tolist() == [-1.0, 2.0]
    with torch.no_grad():
        mine = torch.tensor([-1.0, 2.0])
        assert add_relu(mine, shortcut).data_ptr() == mine.data_ptr()
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
