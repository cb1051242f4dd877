"""The engine equals the reference implementation, and behaves as an episodic method must."""

import pytest
import torch
import torch.nn.functional as F

from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods import METHODS, resolve_method
from dtpt.methods.algorithm_1 import algorithm_1, text_features
from dtpt.methods.c_tpt import dispersion
from dtpt.methods.d_tpt import dimensional_entropy
from dtpt.methods.o_tpt import gram_row_excess
from dtpt.methods.tpt import marginal_entropy, select_confident
from dtpt.tuning import PromptEncoder, Tuner, TuningSettings

NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "a very long name of a thing", "cat"]
TEMPLATES = ["a photo of a {}.", "a {}, a type of pet.", "{} in a photo", "the-{} of my friend"]
STATELESS = [name for name, method in METHODS.items() if not method.is_stateful]
SINGLE = [name for name in STATELESS if METHODS[name].read_out is None]
OF_ALGORITHM_1 = [name for name in SINGLE if METHODS[name].parameter != "shift"]
PRECISIONS = {torch.float64: 1e-10, torch.float32: 1e-5}


def views_of(seed: int, dtype: torch.dtype = torch.float32, count: int = 64):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, 32, generator=generator, dtype=dtype), dim=-1)


@pytest.fixture(scope="module")
def clips(make_clip):
    return {dtype: make_clip(dtype=dtype) for dtype in PRECISIONS}


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("entropy", ["of-mean", "mean-of"])
def test_engine_equals_the_plain_implementation(clips, dtype, template, steps, entropy):
    model, views = clips[dtype], views_of(1, dtype)
    prompts = PromptSet.build(model, NAMES, template=template)
    settings = TuningSettings(steps=steps, entropy=entropy)
    tuner = Tuner(model, prompts, settings=settings)
    for outcome in tuner.predict(views, [resolve_method(name) for name in OF_ALGORITHM_1]):
        plain = algorithm_1(
            model, prompts, views=views, method=outcome.method, steps=steps, entropy=entropy
        )
        worst = float((outcome.probabilities - plain).abs().max())
        allowed = PRECISIONS[dtype]
        if dtype == torch.float32 and steps > 1:
            # Signed steps amplify rounding: a coordinate whose gradient is nearly zero may turn
            # either way. The reference itself is then up to 1e-4 away from its float64 self.
            allowed = 2e-4
        assert worst <= allowed, outcome.method.name


@pytest.mark.parametrize("budget", [0, 200_000, 10**9])
def test_memory_budget_changes_nothing_but_memory(clips, budget, monkeypatch):
    monkeypatch.setattr("dtpt.tuning.encoder.CHUNK_TOKENS", 8)
    model, views = clips[torch.float64], views_of(2, torch.float64)
    prompts = PromptSet.build(model, [f"thing {i}" for i in range(20)])
    whole = Tuner(model, prompts, budget_bytes=10**9)
    tight = Tuner(model, prompts, budget_bytes=budget)
    methods = [resolve_method("tpt"), resolve_method("d-tpt")]
    for a, b in zip(whole.predict(views, methods), tight.predict(views, methods), strict=True):
        torch.testing.assert_close(a.probabilities, b.probabilities, rtol=0, atol=1e-12)


def test_cut_and_shared_prefix_give_the_features_of_the_padded_prompts(clips):
    model = clips[torch.float64]
    for template in TEMPLATES:
        prompts = PromptSet.build(model, NAMES, template=template)
        encoder = PromptEncoder(model, prompts)
        padded = text_features(model, prompts, context=prompts.context)
        torch.testing.assert_close(encoder.encode(prompts.context), padded, rtol=0, atol=1e-12)
        whole = model.encode_text([template.replace("{}", name) for name in NAMES])
        torch.testing.assert_close(whole, padded, rtol=0, atol=1e-12)


def test_lambda_zero_is_bit_equal_to_tpt(tiny_clip):
    tuner = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES))
    for first, *rest in (
        ["tpt", "c-tpt@0", "o-tpt@0", "d-tpt@0", "a-tpt@0", "d-tpt:aligned@0"],
        ["tps", "c-tps@0", "o-tps@0", "d-tps@0"],
    ):
        names = [resolve_method(name) for name in (first, *rest)]
        plain, *others = tuner.predict(views_of(3), names)
        for other in others:
            assert torch.equal(plain.probabilities, other.probabilities)


def test_zero_steps_are_bit_equal_to_zero_shot(tiny_clip):
    prompts = PromptSet.build(tiny_clip, NAMES)
    tuner = Tuner(tiny_clip, prompts, settings=TuningSettings(steps=0))
    zero_shot, *others = tuner.predict(views_of(4), [resolve_method(name) for name in SINGLE])
    for other in others:
        assert torch.equal(zero_shot.probabilities, other.probabilities)


def test_predictions_do_not_depend_on_what_came_before_or_runs_beside(tiny_clip):
    tuner = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES))
    d_tpt = resolve_method("d-tpt")
    (first,) = tuner.predict(views_of(5), [d_tpt])
    for seed in range(6, 12):
        tuner.predict(views_of(seed), [resolve_method(name) for name in STATELESS])
    again = tuner.predict(views_of(5), [resolve_method("tpt"), d_tpt])[1]
    fresh = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES)).predict(views_of(5), [d_tpt])[0]
    assert torch.equal(first.probabilities, again.probabilities)
    assert torch.equal(first.probabilities, fresh.probabilities)


def loss_after(tuner, views, name, lambda_):
    (outcome,) = tuner.predict(views, [resolve_method(name, lambda_=lambda_)])
    return outcome.text_features


@pytest.mark.parametrize("seed", range(10))
def test_one_small_step_moves_every_loss_the_right_way(clips, seed):
    model, views = clips[torch.float64], views_of(seed, torch.float64)
    settings = TuningSettings(learning_rate=1e-5)
    tuner = Tuner(model, PromptSet.build(model, NAMES[:5]), settings=settings)
    before = tuner.initial_text_features
    selected = views[select_confident(model.logit_scale * views @ before.T, 0.1)]

    def confidence_loss(text):
        return marginal_entropy(model.logit_scale * selected @ text.T)

    assert confidence_loss(loss_after(tuner, views, "tpt", None)) < confidence_loss(before)
    assert dispersion(loss_after(tuner, views, "c-tpt", 1e9)) > dispersion(before)
    assert gram_row_excess(loss_after(tuner, views, "o-tpt", 1e9)) < gram_row_excess(before)
    assert dimensional_entropy(loss_after(tuner, views, "d-tpt", 1e12)) < dimensional_entropy(
        before
    )


def test_first_step_is_signed_and_of_the_learning_rates_size(clips):
    model = clips[torch.float64]
    prompts = PromptSet.build(model, NAMES)
    (outcome,) = Tuner(model, prompts).predict(
        views_of(1, torch.float64), [resolve_method("d-tpt")]
    )
    moved = outcome.context - prompts.context * (1 - 5e-3 * 0.01)
    assert float((moved.abs() - 5e-3).abs().median()) < 1e-6


def test_a_static_method_ignores_the_image(tiny_clip):
    tuner = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES))
    static = resolve_method("d-tpt-static")
    (one,), (other,) = (tuner.predict(views_of(seed), [static]) for seed in (1, 2))
    assert torch.equal(one.text_features, other.text_features)
    assert not torch.equal(one.text_features, tuner.initial_text_features)


def test_a_static_method_is_the_limit_of_a_large_lambda(clips):
    model, views = clips[torch.float64], views_of(1, torch.float64)
    tuner = Tuner(model, PromptSet.build(model, NAMES))
    static, heavy = tuner.predict(
        views, [resolve_method("d-tpt-static"), resolve_method("d-tpt@1e15")]
    )
    torch.testing.assert_close(static.probabilities, heavy.probabilities, rtol=0, atol=1e-6)


def test_modifiers_change_the_readout_only(tiny_clip):
    tuner = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES))
    specs = ["tpt", "tpt+sals", "tpt+ts=2", "tpt+no-tdd", "tpt+no-idd"]
    plain, sals, cooled, no_tdd, no_idd = tuner.predict(
        views_of(1), [resolve_method(spec) for spec in specs]
    )
    zero_shot = plain.zero_shot_logits
    torch.testing.assert_close(sals.logits.max(), zero_shot.max())
    torch.testing.assert_close(cooled.logits * 2, plain.logits)
    for outcome in (no_tdd, no_idd):
        assert torch.equal(outcome.text_features, plain.text_features)
        assert not torch.allclose(outcome.logits, plain.logits)


@pytest.mark.parametrize(
    "bad",
    [torch.zeros(64, 31), torch.zeros(0, 32), torch.zeros(32), torch.full((4, 32), torch.nan)],
)
def test_bad_view_features_are_refused(tiny_clip, bad):
    tuner = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES))
    with pytest.raises(MethodError):
        tuner.predict(bad, [resolve_method("tpt")])


def test_weights_get_no_gradient_and_state_does_not_grow(tiny_clip):
    tuner = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES))
    methods = [resolve_method(name) for name in STATELESS]
    tuner.predict(views_of(0), methods)
    held = len(tuner._made)
    for seed in range(5):
        tuner.predict(views_of(seed), methods)
    assert len(tuner._made) == held
    assert all(parameter.grad is None for parameter in tiny_clip.parameters())
