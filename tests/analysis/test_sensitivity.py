"""Equation (2) against its definition, one image and one dimension at a time."""

import numpy as np
import pytest
import torch

from dtpt.analysis.features import MASKED, sensitivity


def softmax(logits):
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def unit(vector):
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector


def by_definition(text, images, dimension, *, scale, masked):
    total = 0.0
    for image in images:
        words, vector = text.copy(), image.copy()
        if masked in ("text", "product"):
            words[:, dimension] = 0
        if masked == "text":
            words = np.stack([unit(word) for word in words])
        if masked == "image":
            vector[dimension] = 0
            vector = unit(vector)
        p, q = softmax(scale * words @ vector), softmax(scale * text @ image)
        total += (p * np.log(p / q)).sum()
    return total / len(images)


@pytest.mark.parametrize("masked", MASKED)
@pytest.mark.parametrize("budget", [1, 3000, 2**24])
def test_agrees_with_the_definition_in_blocks_of_any_size(features, masked, budget):
    text, images = features(7, 12, seed=1), features(9, 12, seed=2)
    found = sensitivity(
        torch.from_numpy(text),
        torch.from_numpy(images),
        logit_scale=20.0,
        masked=masked,
        budget_bytes=budget,
    )
    expected = [by_definition(text, images, m, scale=20.0, masked=masked) for m in range(12)]
    np.testing.assert_allclose(found.values, expected, rtol=1e-8)
    assert [dimension for dimension, _ in found.top] == list(np.argsort(expected)[::-1][:10])


def test_masking_either_side_is_the_same_without_normalising(features):
    text, images = features(5, 8, seed=1), features(4, 8, seed=2)
    found = sensitivity(torch.from_numpy(text), torch.from_numpy(images), logit_scale=9.0)
    masked_image = []
    for m in range(8):
        changed = images.copy()
        changed[:, m] = 0
        pairs = [
            (softmax(9 * text @ a), softmax(9 * text @ b))
            for a, b in zip(changed, images, strict=True)
        ]
        masked_image.append(np.mean([(p * np.log(p / q)).sum() for p, q in pairs]))
    np.testing.assert_allclose(found.values, masked_image, rtol=1e-8)


def test_a_dimension_shared_by_all_classes_matters_only_after_normalising():
    text = torch.tensor([[0.8, 0.6, 0.0], [0.8, 0.0, 0.6]])
    images = torch.tensor([[0.8, 0.5, 0.3]])
    plain = sensitivity(text, images, logit_scale=10.0, masked="product").values
    again = sensitivity(text, images, logit_scale=10.0, masked="text").values
    assert plain[0] == pytest.approx(0, abs=1e-12)  # adds the same to every class
    assert again[0] > 1e-3  # the other coordinates grow


def test_one_hot_features_have_a_finite_sensitivity():
    text = torch.eye(3)
    for masked in MASKED:
        values = sensitivity(text, text[:1], logit_scale=100.0, masked=masked).values
        assert np.isfinite(values).all()
        assert values[0] > 1
