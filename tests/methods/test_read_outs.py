"""Predictions from many views, each against a second implementation written from its definition."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dtpt.methods import METHODS, resolve_method
from dtpt.methods.mean_views import mean_of_confident
from dtpt.methods.mta import mode_logits
from dtpt.methods.r_tpt import weighted_logits
from dtpt.methods.vte import mean_feature
from dtpt.methods.zero import sharp_mean, votes

SCALE = 20.0


def unit(rows, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(rows, dim, generator=generator, dtype=torch.float64), dim=-1)


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def entropies(p):
    return -(p * np.log(np.maximum(p, 1e-300))).sum(-1)


def by_confidence(p):
    return sorted(range(len(p)), key=lambda i: (entropies(p)[i], i))


@pytest.fixture(params=range(3))
def case(request):
    views, text = unit(64, 12, request.param), unit(9, 12, 100 + request.param)
    return views, text, softmax(SCALE * views.numpy() @ text.numpy().T)


@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.3, 1.0])
def test_mean_of_confident_views(case, fraction):
    views, text, p = case
    kept = by_confidence(p)[: max(1, int(fraction * 64))]
    expected = np.mean([p[i] for i in kept], axis=0)
    got = mean_of_confident(views, text, logit_scale=SCALE, fraction=fraction).exp()
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-14)


def test_fractions_that_are_whole_numbers_of_views_are_not_cut_by_rounding():
    views, text = unit(100, 6, 1), unit(4, 6, 2)
    p = softmax(SCALE * views.numpy() @ text.numpy().T)
    expected = np.mean([p[i] for i in by_confidence(p)[:29]], axis=0)  # 0.29 · 100 = 28.999...
    got = mean_of_confident(views, text, logit_scale=SCALE, fraction=0.29).exp()
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-14)


def test_mean_feature_of_confident_views_keeps_its_length(case):
    views, text, p = case
    centre = sum(views.numpy()[i] for i in by_confidence(p)[:6]) / 6
    expected = softmax(SCALE * text.numpy() @ centre)
    got = mean_feature(views, text, logit_scale=SCALE).softmax(-1)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-14)
    unit_length = softmax(SCALE * text.numpy() @ (centre / np.linalg.norm(centre)))
    got = resolve_method("vte:unit").read_out(views, text, logit_scale=SCALE).softmax(-1)
    np.testing.assert_allclose(got.numpy(), unit_length, atol=1e-14)
    assert expected.argmax() == unit_length.argmax()
    assert expected.max() < unit_length.max() - 0.01  # what the length is worth


def test_mean_logits_of_confident_views(case):
    views, text, p = case
    rows = [SCALE * text.numpy() @ views.numpy()[i] for i in by_confidence(p)[:19]]
    got = resolve_method("mean-logits").read_out(views, text, logit_scale=SCALE)
    np.testing.assert_allclose(got.numpy(), np.mean(rows, axis=0), atol=1e-13)


def test_votes_of_confident_views(case):
    views, text, p = case
    ballots = [int(p[i].argmax()) for i in by_confidence(p)[:19]]
    expected = np.bincount(ballots, minlength=9) / 19
    got = votes(views, text, logit_scale=SCALE).softmax(-1).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert got.argmax() in np.flatnonzero(expected == expected.max())


def test_released_votes_are_a_softmax_at_the_precision_of_float16(case):
    views, text, _ = case
    text = F.normalize(unit(1, 12, 7) + 0.01 * text, dim=-1)  # close to each other, as CLIP's are
    kept = by_confidence(softmax(SCALE * views.numpy() @ text.numpy().T))[:19]
    shares = [softmax(text.numpy() @ views.numpy()[i] / np.finfo(np.float16).eps) for i in kept]
    got = sharp_mean(views, text, logit_scale=SCALE).softmax(-1).numpy()
    np.testing.assert_allclose(got, np.mean(shares, axis=0), atol=1e-10)
    hard = votes(views, text, logit_scale=SCALE).softmax(-1).numpy()
    assert abs(got - hard).max() > 1e-3  # not yet votes


def test_released_votes_tie_only_when_they_are_equal():
    text = torch.eye(2, dtype=torch.float64)
    twins = torch.tensor([[0.6, 0.6], [0.5, 0.3], [0.5, 0.3]], dtype=torch.float64)
    rows = [*twins.tolist()] * 2
    views = torch.tensor(rows, dtype=torch.float64)
    # by entropy the rows that prefer class 0 come first: one votes, no tie
    assert sharp_mean(views, text, logit_scale=1.0).softmax(-1)[0] > 0.99
    # one view alone that likes both classes the same: its own logits decide, in the first's favour
    alone = sharp_mean(twins[:1], text, logit_scale=1.0)
    assert int(alone.argmax()) == 0
    np.testing.assert_allclose(alone.softmax(-1).numpy(), 0.5, atol=1e-6)


def logits_for(rows):
    """One row of logits per (favourite, certainty): the surer, the lower the entropy."""
    table = torch.zeros(len(rows), 4, dtype=torch.float64)
    for i, (favourite, certainty) in enumerate(rows):
        table[i, favourite] = certainty
    return table


def vote(logits):
    """Run the votes on given logits: features and text whose products are the logits."""
    return votes(logits, torch.eye(4, dtype=torch.float64), logit_scale=1.0).softmax(-1)


def test_a_tie_is_decided_by_the_next_confident_view_among_the_tied():
    # ten views: three vote (0, 1, 2 once each); then a view for 3 (not tied), then one for 1
    rows = [(0, 9.0), (1, 8.9), (2, 8.8), (3, 5.0), (1, 4.0), (0, 3.0)] + [(3, 1.0)] * 4
    answer = vote(logits_for(rows))
    assert int(answer.argmax()) == 1
    np.testing.assert_allclose(answer[:3].numpy(), 1 / 3, atol=1e-6)


def test_a_tie_that_no_view_decides_goes_to_the_largest_logit_of_the_next_view():
    rows = [(0, 9.0), (1, 8.9), (2, 8.8), (3, 7.0)] + [(3, 5.0 - i / 10) for i in range(6)]
    logits = logits_for(rows)
    logits[3, 2] = 0.5  # the most confident of the rest prefers 2 among the tied
    assert int(vote(logits).argmax()) == 2


def test_a_tie_of_two_is_not_decided_by_a_class_with_fewer_votes():
    # twenty views: six vote, 0 and 1 twice, 2 and 3 once
    rows = [(0, 9.0), (1, 8.9), (0, 8.8), (1, 8.7), (2, 8.6), (3, 8.5)]
    rows += [(2, 5.0), (3, 4.9), (1, 4.8)] + [(2, 1.0)] * 11
    assert int(vote(logits_for(rows)).argmax()) == 1


def test_without_a_tie_the_rest_has_no_say():
    rows = [(0, 9.0), (0, 8.9), (2, 8.8)] + [(1, 5.0)] * 7
    assert int(vote(logits_for(rows)).argmax()) == 0


def test_one_view_alone_decides():
    assert int(vote(logits_for([(2, 3.0)])).argmax()) == 2


def mode_by_definition(views, p):
    """MTA from its formulas, one view at a time."""
    f = views.numpy()
    n = len(f)
    squared = np.array([[((a - b) ** 2).sum() for b in f] for a in f])
    nearest = int(0.3 * (n - 1))
    spread = np.array([np.sort(np.delete(squared[i], i))[:nearest].mean() / 2 for i in range(n)])
    affinity = p @ p.T
    y, mode = np.full(n, 1 / n), f[0]

    def near(mode):
        return np.array([math.exp(-((f[i] - mode) ** 2).sum() / (2 * spread[i])) for i in range(n)])

    for _ in range(5):
        d = near(mode)
        for _ in range(5):
            old, y = y, softmax((d + 4 * affinity @ y) / 0.2)
            if np.linalg.norm(y - old) < 1e-6:
                break
        for _ in range(5):
            weights = y * near(mode)
            old, mode = mode, (weights[:, None] * f).sum(0) / weights.sum()
            mode = mode / np.linalg.norm(mode)
            if np.linalg.norm(mode - old) < 1e-6:
                break
    return mode


def test_mode_of_the_views(case):
    views, text, p = case
    expected = softmax(SCALE * text.numpy() @ mode_by_definition(views, p))
    got = mode_logits(views, text, logit_scale=SCALE).softmax(-1)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-10)


def test_views_weighed_by_their_neighbours(case):
    views, text, _ = case
    f = views.numpy()
    scores = []
    for i in range(64):
        cosines = sorted((float(f[i] @ f[j]) for j in range(64) if j != i), reverse=True)
        scores.append(np.mean(cosines[:20]))
    weights = softmax(np.array(scores) / 0.01)
    expected = softmax((weights[:, None] * (SCALE * f @ text.numpy().T)).sum(0))
    got = weighted_logits(views, text, logit_scale=SCALE).softmax(-1)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-12)


READ_OUTS = [name for name, method in METHODS.items() if method.read_out is not None]


@pytest.mark.parametrize("name", READ_OUTS)
@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_few_views_give_a_distribution(name, count):
    read_out = resolve_method(name).read_out
    p = read_out(unit(count, 12, 3), unit(5, 12, 4), logit_scale=SCALE).softmax(-1)
    assert bool(torch.isfinite(p).all())
    assert float(p.sum()) == pytest.approx(1)


@pytest.mark.parametrize("name", [n for n in READ_OUTS if n not in ("r-tpt", "mta")])
def test_one_view_is_read_as_zero_shot_would(name):
    views, text = unit(1, 12, 5), unit(5, 12, 6)
    zero_shot = (SCALE * views @ text.T).softmax(-1)[0]
    answer = resolve_method(name).read_out(views, text, logit_scale=SCALE).softmax(-1)
    assert int(answer.argmax()) == int(zero_shot.argmax())
