"""A tuned shift of the text features, and λ selected from unlabelled images."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods import METHODS, resolve_method, shared_recipe
from dtpt.methods.tpt import marginal_entropy, select_confident
from dtpt.tuning import Episode, Tuner, TuningSettings
from dtpt.tuning.engine import fraction_won, lambda_for_quantile, sign_thresholds
from dtpt.views import ViewRecipe

NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "a very long name of a thing"]
SHIFTED = [name for name, method in METHODS.items() if method.parameter == "shift"]


def views_of(seed, dtype=torch.float64, count=64):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, 32, generator=generator, dtype=dtype), dim=-1)


@pytest.fixture(scope="module")
def tuner(make_clip):
    model = make_clip(dtype=torch.float64)
    return Tuner(model, PromptSet.build(model, NAMES))


def shift_by_definition(tuner, views, method, steps):
    """TPS with autograd and torch's own AdamW, from its definition."""
    start, scale = tuner.initial_text_features, tuner.logit_scale
    shift = torch.zeros_like(start, requires_grad=True)
    optimiser = torch.optim.AdamW([shift], lr=method.learning_rate)
    kept = select_confident(scale * views @ start.T, 0.1)
    for _ in range(steps):
        text = F.normalize(start + shift, dim=-1)
        loss = marginal_entropy(scale * views[kept] @ text.T)
        if method.method.regulariser is not None:
            loss = loss + method.lambda_ * method.method.regulariser(text)
        if method.method.anchored is not None:
            loss = loss + method.lambda_ * method.method.anchored(text, start)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    text = F.normalize(start + shift.detach(), dim=-1)
    return (scale * text @ views[0]).softmax(-1)


@pytest.mark.parametrize("name", SHIFTED)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_shift_equals_its_definition(make_clip, name, steps):
    model = make_clip(dtype=torch.float64)
    settings = TuningSettings(steps=steps)
    tuner = Tuner(model, PromptSet.build(model, NAMES), settings=settings)
    method, views = resolve_method(name), views_of(1)
    (outcome,) = tuner.predict(views, [method])
    expected = shift_by_definition(tuner, views, method, steps)
    torch.testing.assert_close(outcome.probabilities, expected, rtol=0, atol=1e-10)


def test_a_shift_never_touches_the_text_tower(tuner, monkeypatch):
    views = views_of(2)
    expected = tuner.predict(views, [resolve_method("d-tps")])[0].probabilities

    def broken(*_):
        raise AssertionError("the text tower was used")

    monkeypatch.setattr(tuner.encoder, "encode", broken)
    monkeypatch.setattr(tuner.encoder, "linearise", broken)
    methods = [resolve_method(name) for name in (*SHIFTED, "zero-shot", "mean-views", "mta")]
    outcomes = tuner.predict(views, methods)
    torch.testing.assert_close(outcomes[SHIFTED.index("d-tps")].probabilities, expected)


def test_methods_without_a_gradient_make_none(tuner, monkeypatch):
    def broken(*_):
        raise AssertionError("a gradient was computed")

    monkeypatch.setattr("torch.autograd.grad", broken)
    names = ["zero-shot", "mean-views", "vte", "zero", "mta", "zero-shot+no-tdd", "zero-shot+sals"]
    tuner.predict(views_of(3), [resolve_method(name) for name in names])


def test_views_are_needed_only_by_methods_that_look_at_them():
    few = [resolve_method(name) for name in ("zero-shot", "d-tpt-static")]
    assert shared_recipe(few, ViewRecipe()).count == 1
    assert shared_recipe([*few, resolve_method("vte")], ViewRecipe()).count == 64


def test_a_read_out_over_views_follows_the_tuned_features(tuner):
    views = views_of(4)
    plain, read = tuner.predict(views, [resolve_method("tpt"), resolve_method("tpt+views=0.25")])
    assert torch.equal(plain.text_features, read.text_features)
    p = (tuner.logit_scale * views @ plain.text_features.T).softmax(-1)
    order = (-(p * p.log()).sum(-1)).argsort()
    torch.testing.assert_close(read.probabilities, p[order[:16]].mean(0), rtol=0, atol=1e-12)


def test_mean_views_is_zero_shot_read_over_three_tenths(tuner):
    methods = [resolve_method(name) for name in ("mean-views", "zero-shot+views=0.3")]
    short, long = tuner.predict(views_of(5), methods)
    assert torch.equal(short.probabilities, long.probabilities)


def test_a_smaller_learning_rate_moves_less(tuner):
    methods = [resolve_method(name) for name in ("tpt", "tpt+lr=0.001", "tpt+lr=0.005")]
    usual, small, same = tuner.predict(views_of(6), methods)
    start = tuner.prompts.context
    assert (small.context - start).abs().mean() < 0.3 * (usual.context - start).abs().mean()
    assert torch.equal(usual.probabilities, same.probabilities)


def test_thresholds_are_where_the_sign_turns():
    entropy = torch.tensor([1.0, -2.0, 3.0, 0.0, 5.0])
    regulariser = torch.tensor([2.0, 1.0, -1.0, 1.0, 0.0])
    found = sign_thresholds(entropy, regulariser)
    assert found[0] == 0
    assert found[1:3].tolist() == [2.0, 3.0]
    assert torch.isinf(found[4])
    for lambda_ in (0.5, 2.5, 3.5):
        signs = (entropy + lambda_ * regulariser).sign()[:4]
        won = int((signs == regulariser.sign()[:4]).sum())
        assert fraction_won(found[:4], lambda_) == won / 4


@pytest.mark.parametrize("name", ["c-tpt", "o-tpt", "d-tpt", "d-tpt:aligned", "d-tps", "c-tps"])
@pytest.mark.parametrize("quantile", [0.6, 0.9, 0.98])
def test_a_lambda_per_image_wins_its_fraction_of_signs(tuner, name, quantile):
    method = resolve_method(f"{name}@auto-each={quantile}")
    views = views_of(7)
    (outcome,) = tuner.predict(views, [method])
    pulled = tuner.regulariser_gradient(method.method)
    entropy = Episode(tuner, views).entropy_gradient(method.method)
    total = entropy + outcome.lambda_ * pulled
    counts = torch.ones_like(entropy) if "tpt" in name else entropy.abs()
    counts = counts / counts.sum()
    won = float(((total.sign() == pulled.sign()) * counts).sum())
    assert won >= quantile - 1e-9
    if outcome.lambda_ > 0:  # otherwise more signs agree by themselves
        assert won <= quantile + 2 * float(counts.max())
    (fixed,) = tuner.predict(views, [resolve_method(f"{name}@{outcome.lambda_!r}")])
    assert torch.equal(outcome.probabilities, fixed.probabilities)


def test_a_lambda_for_a_class_list_wins_its_fraction_on_average(tuner):
    images = [views_of(seed) for seed in range(8)]
    (method,) = tuner.select_lambdas([resolve_method("d-tpt@auto=0.8")], images)
    assert method.name == "d-tpt@auto=0.8"
    pulled = tuner.regulariser_gradient(method.method)
    fractions = []
    for views in images:
        gradient = Episode(tuner, views).entropy_gradient(method.method)
        total = gradient + method.lambda_ * pulled
        fractions.append(float((total.sign() == pulled.sign()).double().mean()))
    assert sum(fractions) / 8 == pytest.approx(0.8, abs=0.01)
    assert tuner.predict(images[0], [method])[0].lambda_ == method.lambda_


def test_a_lambda_that_is_not_selected_yet_is_refused_with_the_remedy(tuner):
    with pytest.raises(MethodError, match="auto-each"):
        tuner.predict(views_of(1), [resolve_method("d-tpt@auto")])
    with pytest.raises(MethodError, match="needs images"):
        tuner.select_lambdas([resolve_method("d-tpt@auto")], [])


def test_a_weighted_quantile_counts_each_sign_as_often_as_its_weight():
    thresholds, weights = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([1.0, 1.0, 2.0])
    repeated = torch.tensor([3.0, 1.0, 2.0, 2.0])
    for quantile in (0.2, 0.25, 0.26, 0.7, 0.75, 0.76, 0.99):
        expected = lambda_for_quantile(repeated, quantile)
        assert lambda_for_quantile(thresholds, quantile, weights=weights) == expected
    assert fraction_won(thresholds, 2.5, weights=weights) == 0.75


def test_no_regulariser_gradient_needs_no_lambda():
    assert lambda_for_quantile(torch.full((4,), torch.inf), 0.9) == 0.0


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 5e-6)])
@pytest.mark.parametrize("template", ["a photo of a {}.", "a {}, a type of pet."])
def test_images_that_share_a_forward_pass_get_the_same_predictions(
    make_clip, template, dtype, close
):
    model = make_clip(dtype=dtype)
    tuner = Tuner(model, PromptSet.build(model, NAMES, template=template))
    names = ["tpt", "d-tpt", "c-tpt@3", "d-tpt+sals", "zero-shot", "tps"]
    methods = [resolve_method(name) for name in names]
    images = [views_of(seed, dtype) for seed in range(4)]
    together = tuner.predict_many(images, methods)
    for views, outcomes in zip(images, together, strict=True):
        for one, other in zip(tuner.predict(views, methods), outcomes, strict=True):
            torch.testing.assert_close(one.probabilities, other.probabilities, rtol=0, atol=close)
            assert one.lambda_ == other.lambda_


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_tuner_can_be_copied_after_use(make_clip, copied):
    model = make_clip()
    tuner = Tuner(model, PromptSet.build(model, NAMES))
    methods, views = [resolve_method("d-tpt"), resolve_method("d-tps")], views_of(1, torch.float32)
    before = tuner.predict(views, methods)
    for one, other in zip(before, copied(tuner).predict(views, methods), strict=True):
        assert torch.equal(one.probabilities, other.probabilities)


def test_a_lambda_beyond_all_numbers_is_refused(tiny_clip):
    tuner = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES))
    with pytest.raises(MethodError, match="lower lambda"):
        tuner.predict(views_of(1, torch.float32), [resolve_method("d-tpt@1e308")])
