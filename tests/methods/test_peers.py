"""Peers that tune, from loss to prediction, against definitions written with NumPy and autograd."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dtpt.clip.prompts import PromptSet
from dtpt.methods import resolve_method
from dtpt.methods.algorithm_1 import text_features
from dtpt.tuning import Tuner

NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "a very long name of a thing"]


@pytest.fixture(scope="module")
def model(make_clip):
    return make_clip(dtype=torch.float64)


@pytest.fixture(scope="module")
def views():
    generator = torch.Generator().manual_seed(5)
    return F.normalize(torch.randn(64, 32, generator=generator, dtype=torch.float64), dim=-1)


def probabilities(model, views, name):
    tuner = Tuner(model, PromptSet.build(model, NAMES))
    (outcome,) = tuner.predict(views, [resolve_method(name)])
    return tuner, outcome.probabilities.numpy()


def softmax(values):
    powers = np.exp(values - values.max())
    return powers / powers.sum()


def most_confident(p):
    entropies = [-sum(x * np.log(x) for x in row) for row in p]
    return sorted(range(len(p)), key=lambda i: entropies[i])[:6]


@pytest.mark.parametrize("protocol", ["fine-grained", "imagenet"])
def test_tps_is_one_signed_step_of_a_shift(model, views, protocol):
    tuner = Tuner(model, PromptSet.build(model, NAMES))
    method = resolve_method("tps", protocol=protocol)
    (outcome,) = tuner.predict(views, [method])
    v, t, scale = views.numpy(), tuner.initial_text_features.numpy(), tuner.logit_scale
    p = np.array([softmax(scale * t @ view) for view in v])
    kept = most_confident(p)
    mean = np.mean(p[kept], axis=0)
    gradient = np.zeros_like(t)
    for i in kept:
        for c in range(len(t)):
            # of the entropy of the mean, by logit c of view i, then along the sphere
            by_logit = p[i, c] * (p[i] @ np.log(mean) - np.log(mean[c])) / len(kept)
            gradient[c] += by_logit * scale * (v[i] - (v[i] @ t[c]) * t[c])
    rate = {"fine-grained": 1e-3, "imagenet": 5e-3}[protocol]
    moved = t - rate * gradient / (abs(gradient) + 1e-8)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    expected = softmax(scale * moved @ v[0])
    np.testing.assert_allclose(outcome.probabilities.numpy(), expected, rtol=0, atol=1e-9)


def tuned_by(model, views, loss_of):
    """Tune a context by one step of torch's AdamW on a loss of logits (6, C) and text (C, D)."""
    prompts = PromptSet.build(model, NAMES)
    context = prompts.context.clone().requires_grad_()
    text = text_features(model, prompts, context=context)
    logits = model.logit_scale * views @ text.T
    kept = most_confident(torch.softmax(logits, -1).detach().numpy())
    optimiser = torch.optim.AdamW([context], lr=5e-3)
    loss_of(logits[kept], text).backward()
    optimiser.step()
    with torch.no_grad():
        return text_features(model, prompts, context=context).numpy()


def entropy_of(p):
    return -(p * p.log()).sum(-1)


def test_r_tpt_from_its_loss_to_its_weights(model, views):
    tuner, found = probabilities(model, views, "r-tpt")
    text = tuned_by(model, views, lambda z, _: entropy_of(torch.softmax(z, -1)).mean())
    v, scores = views.numpy(), []
    for i in range(64):
        cosines = sorted((v[i] @ v[j] for j in range(64) if j != i), reverse=True)
        scores.append(sum(cosines[:20]) / 20)
    weights = softmax(np.array(scores) / 0.01)
    logits = sum(w * tuner.logit_scale * text @ view for w, view in zip(weights, v, strict=True))
    np.testing.assert_allclose(found, softmax(logits), rtol=0, atol=1e-9)


def angle_to_the_nearest(text):
    angles = [
        min(torch.acos(text[i] @ text[j]) for j in range(len(text)) if j != i)
        for i in range(len(text))
    ]
    return sum(angles) / len(angles)


def huber(text):
    """The mean over pairs; at the start δ is the mean |cosine| of these very features."""
    pairs = [(i, j) for i in range(len(text)) for j in range(len(text)) if i != j]
    sizes = [abs(text[i] @ text[j]) for i, j in pairs]
    delta = float(sum(size.detach() for size in sizes)) / len(sizes)
    return sum(
        size**2 / 2 if size <= delta else delta * (size - delta / 2) for size in sizes
    ) / len(sizes)


@pytest.mark.parametrize(
    ("name", "regulariser"),
    [
        ("a-tpt", lambda text: -80 * angle_to_the_nearest(text)),
        ("a-tpt:released", lambda text: 80 * angle_to_the_nearest(text)),
        ("a-tpt@0.01", lambda text: -0.01 * angle_to_the_nearest(text)),
        ("a-tpt:released@0.01", lambda text: 0.01 * angle_to_the_nearest(text)),
        ("soc", lambda text: 300 * huber(text)),
        ("soc@0.1", lambda text: 0.1 * huber(text)),
    ],
)
def test_regularised_peers_from_their_losses(model, views, name, regulariser):
    tuner, found = probabilities(model, views, name)

    def loss(logits, text):
        return entropy_of(torch.softmax(logits, -1).mean(0)) + regulariser(text)

    text = tuned_by(model, views, loss)
    expected = softmax(tuner.logit_scale * text @ views[0].numpy())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)
