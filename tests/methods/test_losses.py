"""The losses: closed forms, gradients, signs, precision."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dtpt.methods import METHODS
from dtpt.methods.a_tpt import nearest_angle, negative_nearest_angle
from dtpt.methods.c_tpt import dispersion
from dtpt.methods.d_tpt import (
    aligned_dimensional_entropy,
    dimensional_entropy,
    dimensional_entropy_mean,
    reverse_dimensional_entropy,
)
from dtpt.methods.o_tpt import gram_row_excess, squared_gram_error
from dtpt.methods.soc import huber_gram
from dtpt.methods.tpt import (
    entropy,
    marginal_entropy,
    mean_entropy,
    select_confident,
)


def unit_rows(rows: int, dim: int, seed: int = 0, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, dim, generator=generator, dtype=dtype), dim=-1)


def before_tuning(text):
    """Fixed features of the same shape, for regularisers that compare with them."""
    return unit_rows(*text.shape, seed=9, dtype=text.dtype)


def bound(method):
    """Return a method's regulariser as a function of the text features alone."""
    return method.regulariser or (lambda text: method.anchored(text, before_tuning(text)))


REGULARISERS = {name: bound(m) for name, m in METHODS.items() if m.is_regularised}


@pytest.mark.parametrize("name", REGULARISERS)
def test_regulariser_gradient_agrees_with_finite_differences(name):
    raw = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    raw.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: REGULARISERS[name](F.normalize(x, dim=-1)), raw, eps=1e-6, atol=1e-5
    )


@pytest.mark.parametrize("loss", [marginal_entropy, mean_entropy])
def test_entropy_gradient_agrees_with_finite_differences(loss):
    logits = torch.randn(6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    assert torch.autograd.gradcheck(loss, logits.requires_grad_(), eps=1e-6, atol=1e-5)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(2, 64))
def test_dem_is_log_d_minus_entropy_of_the_softmax(seed, rows, dim):
    text = unit_rows(rows, dim, seed)
    p = torch.softmax(text, dim=-1)
    closed = (math.log(dim) + (p * p.log()).sum(-1)).mean()
    assert abs(float(dimensional_entropy(text) - closed)) <= 1e-12
    shuffled = text[:, torch.randperm(dim, generator=torch.Generator().manual_seed(seed))]
    assert abs(float(dimensional_entropy(shuffled) - closed)) <= 1e-12
    assert float(dimensional_entropy(text)) >= 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_dem_of_a_constant_vector_is_exactly_zero(dtype):
    text = torch.full((3, 512), 512**-0.5, dtype=dtype)
    assert float(dimensional_entropy(text)) == 0.0
    assert float(reverse_dimensional_entropy(text)) == 0.0


def test_dem_agrees_with_the_kl_of_torch_and_not_with_its_reverse():
    text = unit_rows(4, 16)
    log_p, uniform = torch.log_softmax(text, dim=-1), torch.full((4, 16), 1 / 16).double()
    forward = F.kl_div(uniform.log(), log_p, reduction="batchmean", log_target=True)
    backward = F.kl_div(log_p, uniform, reduction="batchmean")
    torch.testing.assert_close(dimensional_entropy(text), forward)
    torch.testing.assert_close(reverse_dimensional_entropy(text), backward)
    torch.testing.assert_close(dimensional_entropy_mean(text), forward / 16)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["d-tpt", "c-tpt", "o-tpt"])
def test_losses_run_in_float32_for_half_precision_features(dtype, name):
    text = unit_rows(10, 512).to(dtype)
    loss = REGULARISERS[name](text)
    assert loss.dtype == torch.float32
    exact = REGULARISERS[name](text.double())
    assert abs(float(loss) / float(exact) - 1) < 1e-3


def test_dem_of_a_positive_dominant_coordinate_matches_the_protocol_table():
    text = torch.zeros(1, 512, dtype=torch.float64)
    text[0, 0] = 1.0
    assert float(dimensional_entropy(text)) == pytest.approx(1.94e-3, rel=5e-3)
    assert float(dimensional_entropy(-text)) == pytest.approx(5.16e-4, rel=5e-3)


def test_orthogonality_terms_match_explicit_householder_reflections():
    text = unit_rows(10, 24)
    gram = text @ text.T
    norms = []
    for i, row in enumerate(gram):
        axis = torch.zeros(10, dtype=torch.float64)
        axis[i] = 1.0
        v = row - row.norm() * axis
        reflection = torch.eye(10, dtype=torch.float64) - 2 * torch.outer(v, v) / (v @ v)
        norms.append((reflection @ row - axis).norm())
    torch.testing.assert_close(gram_row_excess(text), torch.stack(norms).mean())
    torch.testing.assert_close(
        squared_gram_error(text), (gram - torch.eye(10).double()).square().sum()
    )


def test_orthogonal_features_have_no_excess():
    assert float(gram_row_excess(torch.eye(6, 8).double())) == 0.0
    assert float(squared_gram_error(torch.eye(6, 8).double())) == 0.0


def test_dispersion_is_the_mean_distance_to_the_centroid():
    text = unit_rows(6, 5)
    centre = text.mean(0)
    expected = sum(float((row - centre).norm()) for row in text) / 6
    assert float(dispersion(text)) == pytest.approx(expected, abs=1e-14)


def test_nearest_angle_by_brute_force():
    text = unit_rows(7, 5)
    angles = [
        min(math.acos(float(text[i] @ text[j])) for j in range(7) if j != i) for i in range(7)
    ]
    assert float(negative_nearest_angle(text)) == pytest.approx(-sum(angles) / 7, abs=1e-12)
    assert float(nearest_angle(text)) == pytest.approx(sum(angles) / 7, abs=1e-12)


def test_huber_loss_of_all_pairs_by_brute_force():
    text, initial = unit_rows(7, 5).numpy(), unit_rows(7, 5, seed=1).numpy()
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    delta = sum(abs(initial[i] @ initial[j]) for i, j in pairs) / 42
    losses = []
    for i, j in pairs:
        size = abs(text[i] @ text[j])
        losses.append(size**2 / 2 if size <= delta else delta * (size - delta / 2))
    got = huber_gram(torch.from_numpy(text), torch.from_numpy(initial))
    assert float(got) == pytest.approx(sum(losses) / 42, abs=1e-14)
    assert any(abs(text[i] @ text[j]) > delta for i, j in pairs)  # both branches


@pytest.mark.parametrize("name", REGULARISERS)
@pytest.mark.parametrize("rows", [1, 2])
def test_one_class_and_identical_classes_give_finite_gradients(name, rows):
    text = unit_rows(1, 8).repeat(rows, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(REGULARISERS[name](text), text, allow_unused=True)
    assert gradient is None or bool(torch.isfinite(gradient).all())


def test_marginal_entropy_is_exact_in_float64():
    logits = torch.randn(6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(7)) * 3
    mixture = np.exp(logits.numpy() - logits.numpy().max(1, keepdims=True))
    mixture = (mixture / mixture.sum(1, keepdims=True)).mean(0)
    expected = -(mixture * np.log(mixture)).sum()
    assert float(marginal_entropy(logits)) == pytest.approx(expected, abs=1e-14)


def test_aligned_entropy_is_the_same_in_every_basis_and_the_plain_one_is_not():
    text, initial = unit_rows(6, 24), unit_rows(6, 24, seed=1)
    generator = torch.Generator().manual_seed(2)
    rotation, _ = torch.linalg.qr(torch.randn(24, 24, generator=generator, dtype=torch.float64))
    aligned = aligned_dimensional_entropy(text, initial)
    turned = aligned_dimensional_entropy(text @ rotation, initial @ rotation)
    assert float(aligned) == pytest.approx(float(turned), abs=1e-15)
    assert abs(float(dimensional_entropy(text) - dimensional_entropy(text @ rotation))) > 1e-6


def test_aligned_entropy_by_its_definition():
    text, initial = unit_rows(5, 12), unit_rows(5, 12, seed=1)
    mean = initial.numpy().mean(0)
    mean /= np.linalg.norm(mean)
    terms = []
    for row in text.numpy():
        powers = np.exp(np.array([row @ mean] + [0.0] * 11))
        p = powers / powers.sum()
        terms.append((p * np.log(p * 12)).sum())
    assert float(aligned_dimensional_entropy(text, initial)) == pytest.approx(np.mean(terms))


def test_selection_keeps_the_fraction_rho_with_the_lowest_entropy():
    logits = torch.randn(64, 10, generator=torch.Generator().manual_seed(0)) * 5
    kept = select_confident(logits, 0.1)
    assert len(kept) == 6
    values = entropy(logits)
    assert values[kept].max() <= values[[i for i in range(64) if i not in kept.tolist()]].min()
    assert len(select_confident(logits[:3], 0.1)) == 1


def test_marginal_entropy_exceeds_mean_entropy_by_the_divergence_of_the_views():
    logits = torch.randn(6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(7)) * 3
    p = torch.softmax(logits, -1)
    mixture = p.mean(0)
    divergence = (p * (p / mixture).log()).sum(-1).mean()
    torch.testing.assert_close(marginal_entropy(logits), mean_entropy(logits) + divergence)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_entropy_of_extreme_logits_is_finite(scale):
    logits = torch.tensor([[scale, 0.0, -scale]])
    assert 0 <= float(entropy(logits)[0]) < math.log(3)
