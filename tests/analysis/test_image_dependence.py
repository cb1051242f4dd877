"""Signs of the first step over images."""

import numpy as np
import pytest
import torch

from dtpt.analysis.image_dependence import (
    Predictions,
    SignTally,
    compare_with_static,
    sign_shares,
)
from dtpt.analysis.scores import score_method
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MetricError
from dtpt.methods import resolve_method
from dtpt.tuning import Episode, Tuner


def gradients(images, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(images, 4, 50, generator=generator, dtype=torch.float64)


def test_a_huge_lambda_gives_every_image_the_regularisers_step():
    shares = sign_shares(gradients(40), gradients(1, seed=1)[0], lambda_=1e9)
    assert shares.same_sign_all == shares.same_sign_most == 1.0
    assert shares.regulariser_agreement == shares.mean_majority == 1.0
    assert 0.4 < shares.entropy_agreement < 0.6
    assert (shares.images, shares.coordinates) == (40, 200)


def test_lambda_zero_steps_as_tpt():
    entropy, regulariser = gradients(40), gradients(1, seed=1)[0]
    shares, plain = sign_shares(entropy, regulariser), sign_shares(entropy, None)
    assert shares.entropy_agreement == plain.entropy_agreement == 1.0
    assert shares.same_sign_all == plain.same_sign_all == 0.0  # 40 coin flips
    agreement = (entropy.sign() == regulariser.sign()).double().mean()
    assert shares.regulariser_agreement == pytest.approx(float(agreement))
    assert plain.regulariser_agreement is None


def test_shares_grow_with_lambda():
    entropy, regulariser = gradients(30), gradients(1, seed=1)[0]
    found = [sign_shares(entropy, regulariser, lambda_=v) for v in (0.0, 0.3, 3.0, 30.0)]
    agreement = [shares.regulariser_agreement for shares in found]
    assert agreement == sorted(agreement)
    assert found[0].same_sign_most < found[2].same_sign_most < found[3].same_sign_most


def test_almost_all_means_nineteen_of_twenty():
    entropy = torch.ones(20, 1, 3, dtype=torch.float64)
    entropy[0, 0, 0] = -1  # 19 of 20
    entropy[:2, 0, 1] = -1  # 18 of 20
    shares = sign_shares(entropy, None)
    assert shares.same_sign_all == pytest.approx(1 / 3)
    assert shares.same_sign_most == pytest.approx(2 / 3)
    assert shares.mean_majority == pytest.approx((0.95 + 0.9 + 1) / 3)


def test_gradients_near_adams_epsilon_are_no_full_steps():
    entropy = torch.tensor([[[1e-9, -1e-7, 1e-3, 5.0]]], dtype=torch.float64)
    assert sign_shares(entropy, None).full_steps == 0.5


def test_no_images_is_an_error():
    with pytest.raises(MetricError, match="no images"):
        SignTally(None).shares()


def test_counted_signs_are_those_of_the_engines_step(tiny_clip):
    """The context that the engine returns has moved against the counted sign."""
    prompts = PromptSet.build(tiny_clip, ["cat", "dog", "bird", "fish"])
    tuner = Tuner(tiny_clip, prompts)
    generator = torch.Generator().manual_seed(0)
    views = torch.nn.functional.normalize(torch.randn(20, 32, generator=generator), dim=1)
    method = resolve_method("d-tpt", lambda_=30.0)
    regulariser = tuner.regulariser_gradient(method.method)
    entropy = Episode(tuner, views).entropy_gradient(method.method)
    shares = sign_shares(entropy[None], regulariser, lambda_=30.0)
    (outcome,) = tuner.predict(views, [method])
    shrunk = prompts.context * (1 - 5e-3 * 0.01)
    step = outcome.context - shrunk
    full = step.abs() > 0.99 * 5e-3 * 0.999
    assert float(full.double().mean()) == pytest.approx(shares.full_steps, abs=0.02)
    same = (-step.sign() == regulariser.sign()).double().mean()
    assert float(same) == pytest.approx(shares.regulariser_agreement, abs=0.02)
    assert 0.0 < shares.regulariser_agreement < 1.0


def test_static_variant_is_compared_image_by_image():
    method = Predictions(np.array([0, 1, 2, 2]), np.array([0.5, 0.6, 0.7, 0.8]))
    static = Predictions(np.array([0, 1, 1, 2]), np.array([0.4, 0.6, 0.7, 1.0]))
    score = score_method("d-tpt-static", None, confidence=static.confidence, correct=[True] * 4)
    found = compare_with_static(method, static, static_score=score)
    assert found.same_prediction == 0.75
    assert found.confidence_difference == pytest.approx(0.075)
    with pytest.raises(MetricError, match="same images"):
        compare_with_static(method, Predictions(np.array([0]), np.array([0.5])), static_score=score)
