"""Signs of the first step over images, and agreement of the regularisers' first steps."""

import pytest
import torch

from dtpt.analysis.geometry import SignTally
from dtpt.analysis.regularisers import gradient_agreement
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods import METHODS, regularised, resolve_method
from dtpt.tuning import Episode, Tuner

NAMES = ["cat", "dog", "big red bus", "kite (bird of prey)", "tropical drink"]


def gradients(images, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, 4, 50, generator=generator, dtype=torch.float64)


def signs(entropy, regulariser=None, *, lambda_=0.0):
    tally = SignTally(regulariser, lambda_)
    for gradient in entropy:
        tally.add(gradient)
    return tally.result("x")


def test_a_huge_lambda_gives_every_image_the_regularisers_step():
    found = signs(gradients(40), gradients(1, seed=1)[0], lambda_=1e9)
    assert found.same_sign_all == found.same_sign_most == found.regulariser_agreement == 1.0


def test_lambda_zero_steps_as_tpt():
    entropy, regulariser = gradients(40), gradients(1, seed=1)[0]
    found, plain = signs(entropy, regulariser), signs(entropy)
    assert found.same_sign_all == plain.same_sign_all == 0.0  # 40 coin flips
    agreement = (entropy.sign() == regulariser.sign()).double().mean()
    assert found.regulariser_agreement == pytest.approx(float(agreement))
    assert plain.regulariser_agreement is None


def test_agreement_grows_with_lambda():
    entropy, regulariser = gradients(30), gradients(1, seed=1)[0]
    found = [signs(entropy, regulariser, lambda_=value) for value in (0.0, 0.3, 3.0, 30.0)]
    agreement = [each.regulariser_agreement for each in found]
    assert agreement == sorted(agreement)
    assert found[0].same_sign_most < found[2].same_sign_most < found[3].same_sign_most


def test_almost_all_means_nineteen_of_twenty():
    entropy = torch.ones(20, 1, 3, dtype=torch.float64)
    entropy[0, 0, 0] = -1  # 19 of 20
    entropy[:2, 0, 1] = -1  # 18 of 20
    found = signs(entropy)
    assert found.same_sign_all == pytest.approx(1 / 3)
    assert found.same_sign_most == pytest.approx(2 / 3)


def test_counted_signs_are_those_of_the_engines_step(tiny_clip):
    """The context that the engine returns has moved against the counted sign."""
    prompts = PromptSet.build(tiny_clip, ["cat", "dog", "bird", "fish"])
    tuner = Tuner(tiny_clip, prompts)
    generator = torch.Generator().manual_seed(0)
    views = torch.nn.functional.normalize(torch.randn(20, 32, generator=generator), dim=1)
    method = resolve_method("d-tpt", lambda_=30.0)
    regulariser = tuner.regulariser_gradient(method.method)
    entropy = Episode(tuner, views).entropy_gradient(method.method)
    found = signs(entropy[None], regulariser, lambda_=30.0)
    (outcome,) = tuner.predict(views, [method])
    step = outcome.context - prompts.context * (1 - 5e-3 * 0.01)
    same = (-step.sign() == regulariser.sign()).double().mean()
    assert float(same) == pytest.approx(found.regulariser_agreement, abs=0.02)
    assert 0.0 < found.regulariser_agreement < 1.0


@pytest.fixture(scope="module")
def tuner(make_clip):
    model = make_clip(dtype=torch.float64)
    return Tuner(model, PromptSet.build(model, NAMES))


def agreement(tuner, *names):
    return list(gradient_agreement(tuner, [resolve_method(name) for name in names]))


def test_every_pair_occurs_once(tuner):
    pairs = [(p["first"], p["second"]) for p in agreement(tuner, "c-tpt", "o-tpt", "d-tpt")]
    assert pairs == [("c-tpt", "o-tpt"), ("c-tpt", "d-tpt"), ("o-tpt", "d-tpt")]


def test_a_multiple_agrees_and_a_negative_disagrees_completely(tuner, monkeypatch):
    plain = METHODS["c-tpt"].regulariser
    double = regularised("double", lambda text: 2 * plain(text), lambda_=1.0)
    opposite = regularised("opposite", lambda text: -plain(text), lambda_=1.0)
    monkeypatch.setitem(METHODS, "double", double)
    monkeypatch.setitem(METHODS, "opposite", opposite)
    same, against, _ = agreement(tuner, "c-tpt", "double", "opposite")
    assert (same["cosine"], same["same_signs"]) == (pytest.approx(1), 1)
    assert (against["cosine"], against["same_signs"]) == (pytest.approx(-1), 0)


def test_a_method_without_regulariser_is_refused(tuner):
    with pytest.raises(MethodError, match="tpt"):
        agreement(tuner, "c-tpt", "tpt")
