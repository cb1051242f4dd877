"""AugMix: the mixture is the formula, the draws are the protocol's."""

import collections

import numpy as np
from pillow_operations import by_pillow, example_images

from benchmarks.reference_views import reference_views
from dtpt.clip.preprocess import Preprocess
from dtpt.views import ViewRecipe, make_views
from dtpt.views.augmix import OPERATIONS, draw_mixture, mix, run_chains
from dtpt.views.colour import planes_of
from dtpt.views.recipe import AUGMIX_NUMBERS, view_numbers
from dtpt.views.warps import Scratch


def draws(count, size=224):
    numbers = (view_numbers(1, "x", view=k).tolist()[AUGMIX_NUMBERS] for k in range(count))
    return [draw_mixture(n, size=size) for n in numbers]


def exact_mixture(image, mixture, preprocessing):
    """The peers' formula on normalised images, in float64."""

    def normalised(image):
        mean, std = np.array(preprocessing.mean), np.array(preprocessing.std)
        return ((np.asarray(image) / 255 - mean) / std).transpose(2, 0, 1)

    mix = 0
    for chain, weight in zip(mixture.chains, mixture.weights, strict=True):
        chained = image
        for name, amount in chain:
            chained = by_pillow(chained, name, amount)
        mix = mix + weight * normalised(chained)
    return mixture.keep * normalised(image) + (1 - mixture.keep) * mix


def test_mixing_before_normalising_changes_nothing():
    preprocessing, scratch = Preprocess.openai(56), Scratch(56)
    mixtures = draws(60, 56)
    images = [example_images(56)[number % 5] for number in range(60)]
    crops = [planes_of(image) for image in images]
    starts = [crop for crop in crops for _ in range(3)]
    chained = run_chains(starts, [c for m in mixtures for c in m.chains], scratch=scratch)
    out = np.empty((60, 3, 56, 56), dtype=np.float32)
    mix(crops, chained, mixtures=mixtures, preprocessing=preprocessing, scratch=scratch, out=out)
    for view, image, mixture in zip(out, images, mixtures, strict=True):
        assert abs(view - exact_mixture(image, mixture, preprocessing)).max() <= 1e-6


def test_views_equal_the_peers_way_with_the_same_draws():
    image = example_images(100)[4].resize((120, 90))
    setting = Preprocess.openai(64)
    for augmix in (True, False):
        recipe = ViewRecipe(count=24, augmix=augmix)
        ours = make_views(image, recipe=recipe, seed=3, image_id="a", preprocessing=setting)
        plain = reference_views(image, recipe=recipe, seed=3, image_id="a", preprocessing=setting)
        assert abs(ours - plain.numpy()).max() <= (2e-6 if augmix else 0)


def test_operations_and_lengths_are_drawn_uniformly():
    mixtures = draws(1500)
    lengths = collections.Counter(len(chain) for m in mixtures for chain in m.chains)
    names = collections.Counter(op.name for m in mixtures for chain in m.chains for op in chain)
    assert set(lengths) == {1, 2, 3}
    assert set(names) == set(OPERATIONS)
    for counter in (lengths, names):
        expected = counter.total() / len(counter)
        chi_squared = sum((n - expected) ** 2 / expected for n in counter.values())
        assert chi_squared < 26  # one in a thousand for eight degrees of freedom


def test_amounts_are_those_of_the_protocol():
    seen = collections.defaultdict(set)
    for mixture in draws(3000):
        for chain in mixture.chains:
            for name, amount in chain:
                seen[name].add(amount)
    assert seen["posterize"] == {4}
    assert seen["rotate"] == {-2, -1, 0, 1, 2}
    assert seen["solarize"] == set(range(231, 255))
    assert seen["translate_x"] == seen["translate_y"] == set(range(-7, 8))
    for name in ("shear_x", "shear_y"):
        sizes = np.abs(list(seen[name]))
        assert 0.003 <= sizes.min() < 0.0032
        assert 0.0298 < sizes.max() <= 0.03
        assert 0.45 < np.mean(np.array(list(seen[name])) > 0) < 0.55


def test_weights_are_dirichlet_and_the_share_is_uniform():
    mixtures = draws(4000)
    weights = np.array([m.weights for m in mixtures])
    keeps = np.sort([m.keep for m in mixtures])
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)
    assert (weights >= 0).all()
    # Each weight of Dirichlet(1, 1, 1) is Beta(1, 2): its distribution function is 1 − (1 − w)².
    for column in np.sort(weights, axis=0).T:
        distance = abs(1 - (1 - column) ** 2 - (np.arange(4000) + 0.5) / 4000).max()
        assert distance < 1.95 / np.sqrt(4000)
    assert abs(keeps - (np.arange(4000) + 0.5) / 4000).max() < 1.95 / np.sqrt(4000)
    assert abs(np.corrcoef(weights.T)[0, 1] + 0.5) < 0.06
