"""Text towers of other kinds, models without one, and methods that carry state."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods import METHODS, Method, resolve_method, shared_recipe
from dtpt.methods.algorithm_1 import algorithm_1
from dtpt.methods.zero_shot import class_logits
from dtpt.tuning import PromptEncoder, Tuner, TuningSettings, step_method
from dtpt.views import ViewRecipe

NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "a very long name of a thing"]
FIXED = [
    name
    for name, method in METHODS.items()
    if method.parameter != "context" and not method.is_stateful
]


def views_of(seed, count=16):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, 32, generator=generator, dtype=torch.float64), dim=-1)


# ---- text towers that are not causal


class MeanText(nn.Module):
    """A tower that shares nothing with ours: a map of the mean over all positions."""

    is_causal = False
    width, context_length, activations_per_token = 48, 77, 48

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(49408, self.width), nn.Linear(self.width, 32)

    def embed(self, tokens):
        return self.table(tokens)

    def forward(self, embeddings, end):
        assert embeddings.shape[1] == self.context_length
        state = embeddings.tanh().mean(dim=1) + embeddings[torch.arange(len(end)), end]
        return self.out(state)


def with_tower(make_clip, tower):
    model = make_clip(dtype=torch.float64)
    if tower == "bidirectional":
        model.text.is_causal = False
    else:
        generator = torch.Generator().manual_seed(1)
        model.text = MeanText()
        with torch.no_grad():
            for weight in model.text.parameters():
                weight.normal_(0.0, 0.3, generator=generator)
    return model.double().eval().requires_grad_(False)


@pytest.mark.parametrize("tower", ["bidirectional", "foreign"])
@pytest.mark.parametrize("template", ["a photo of a {}.", "a {}, a type of pet.", "{} in a photo"])
@pytest.mark.parametrize("steps", [1, 2])
def test_engine_equals_algorithm_1_for_towers_that_are_not_causal(
    make_clip, monkeypatch, tower, template, steps
):
    monkeypatch.setattr("dtpt.tuning.encoder.CHUNK_TOKENS", 160)  # two classes in a chunk
    model, views = with_tower(make_clip, tower), views_of(1)
    prompts = PromptSet.build(model, NAMES, template=template)
    tuner = Tuner(model, prompts, settings=TuningSettings(steps=steps), budget_bytes=300_000)
    methods = [resolve_method(name) for name in ("zero-shot", "tpt", "c-tpt", "d-tpt")]
    for outcome in tuner.predict(views, methods):
        plain = algorithm_1(model, prompts, views=views, method=outcome.method, steps=steps)
        torch.testing.assert_close(outcome.probabilities, plain, rtol=0, atol=1e-10)
        if outcome.method.method.tunes:
            assert not torch.equal(outcome.context, prompts.context)


@pytest.mark.parametrize("tower", ["bidirectional", "foreign"])
def test_features_of_such_towers_are_those_of_the_texts(make_clip, tower):
    model = with_tower(make_clip, tower)
    prompts = PromptSet.build(model, NAMES)
    encoder = PromptEncoder(model, prompts)
    texts = model.encode_text([f"a photo of a {name}." for name in NAMES])
    torch.testing.assert_close(encoder.encode(prompts.context), texts, rtol=0, atol=1e-12)
    contexts = torch.stack([prompts.context, 2 * prompts.context])
    together = encoder.encode_many(contexts)
    for context, features in zip(contexts, together, strict=True):
        torch.testing.assert_close(features, encoder.encode(context), rtol=0, atol=1e-12)


def test_a_bidirectional_tower_is_another_model(make_clip):
    causal, other = make_clip(dtype=torch.float64), with_tower(make_clip, "bidirectional")
    features = [
        PromptEncoder(m, prompts).encode(prompts.context)
        for m in (causal, other)
        for prompts in [PromptSet.build(m, NAMES)]
    ]
    assert float((features[0] - features[1]).abs().max()) > 1e-3


# ---- models without a text tower


@pytest.fixture
def fixed(make_clip):
    model = make_clip(dtype=torch.float64)
    whole = Tuner(model, PromptSet.build(model, NAMES))
    without = copy.copy(model)
    without.text = None
    return whole, Tuner(without, None, text_features=whole.initial_text_features)


def test_methods_that_leave_the_prompt_alone_run_on_fixed_text_features(fixed):
    whole, tuner = fixed
    methods = [resolve_method(name) for name in (*FIXED, "zero-shot+no-tdd", "tps+views=0.5")]
    expected = whole.predict(views_of(2), methods)
    for other in (
        tuner.predict(views_of(2), methods),
        tuner.predict_many([views_of(2)], methods)[0],
    ):
        for one, two in zip(expected, other, strict=True):
            assert torch.equal(one.probabilities, two.probabilities), one.method.name
            assert two.context.shape == (0, 0)
    assert shared_recipe(methods, ViewRecipe(count=16, augmix=False)).count == 16


@pytest.mark.parametrize("name", ["tpt", "d-tpt", "c-tpt-static", "d-tpt@auto-each=0.9"])
def test_methods_that_tune_the_prompt_are_refused_with_those_that_run(fixed, name):
    with pytest.raises(MethodError, match="tps") as caught:
        fixed[1].predict(views_of(1), [resolve_method(name)])
    assert "\n" not in str(caught.value)
    assert all(runs in str(caught.value) for runs in FIXED)


def test_fixed_text_features_must_be_given(make_clip):
    with pytest.raises(MethodError, match="text_features"):
        Tuner(make_clip(), None)


# ---- methods that carry state


def start(text, *, logit_scale):
    """An empty cache of image features: (0, D) and their classes."""
    return text.new_zeros(0, text.shape[1]), ()


def remember(state, views, *, text, logit_scale):
    """Predict by zero-shot and by earlier images of each class, as TDA does; keep this one."""
    features, classes = state
    logits = class_logits(views[0], text, logit_scale=logit_scale)  # (C,)
    label = int(logits.argmax())
    support = (features @ views[0]).exp()  # (n,)
    index = torch.tensor(classes, dtype=torch.long)
    logits = logits.index_add(0, index, support)
    return logits, (torch.cat([features, views[:1]]), (*classes, label))


CACHE = Method("cache", "", parameter="nothing", initial=start, step=remember)


@pytest.fixture
def tuner(make_clip):
    model = make_clip(dtype=torch.float64)
    return Tuner(model, PromptSet.build(model, NAMES))


def run(tuner, method, seeds, state=None):
    outcomes = []
    for seed in seeds:
        outcome, state = step_method(tuner, method, views=views_of(seed), state=state)
        outcomes.append(outcome)
    return outcomes, state


def test_a_stateful_method_depends_on_the_images_before(tuner):
    method = resolve_method(CACHE)
    assert method.method.is_stateful
    assert method.uses_views
    (first, second), state = run(tuner, method, [1, 2])
    (alone,), _ = run(tuner, method, [2])
    assert torch.equal(first.logits, first.zero_shot_logits)
    assert not torch.equal(second.logits, alone.logits)
    assert len(state[0]) == len(state[1]) == 2


def test_a_state_can_be_stored_and_taken_up_again(tuner):
    method = resolve_method(CACHE)
    whole, _ = run(tuner, method, [1, 2, 3, 4])
    _, state = run(tuner, method, [1, 2])
    kept = pickle.loads(pickle.dumps(state))
    rest, _ = run(tuner, method, [3, 4], state=kept)
    again, _ = run(tuner, method, [3, 4], state=kept)  # a step does not change what it was given
    for one, two, three in zip(whole[2:], rest, again, strict=True):
        assert torch.equal(one.probabilities, two.probabilities)
        assert torch.equal(one.probabilities, three.probabilities)


def test_a_stateful_method_takes_a_tuned_prompt_and_modifiers(tuner, monkeypatch):
    monkeypatch.setitem(METHODS, "cache-tpt", Method("cache-tpt", "", initial=start, step=remember))
    method = resolve_method("cache-tpt+ts=2")
    (outcome,), _ = run(tuner, method, [1])
    (tpt,) = tuner.predict(views_of(1), [resolve_method("tpt+ts=2")])
    assert torch.equal(outcome.probabilities, tpt.probabilities)
    with pytest.raises(MethodError, match="views"):
        resolve_method("cache-tpt+views=0.3")


def test_each_kind_of_method_has_its_own_way_to_run(tuner):
    with pytest.raises(MethodError, match="step_method"):
        tuner.predict(views_of(1), [resolve_method(CACHE)])
    with pytest.raises(MethodError, match="predict"):
        step_method(tuner, resolve_method("tpt"), views=views_of(1))
