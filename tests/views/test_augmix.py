"""AugMix: every operation is Pillow's, the mixture is the formula, the draws are the protocol's."""

import collections

import numpy as np
import pytest
from PIL import Image, ImageOps

from dtpt.clip.preprocess import Preprocess
from dtpt.views import ViewRecipe, make_views
from dtpt.views.affine import Scratch
from dtpt.views.augmix import OPERATIONS, Operation, draw_mixture, mixed, planes_of, run_chain
from dtpt.views.plain import plain_views
from dtpt.views.randomness import AUGMIX_NUMBERS, view_numbers

BILINEAR = Image.Resampling.BILINEAR
AFFINE = Image.Transform.AFFINE


def pictures(size):
    """Noise, flat patches, a smooth picture, few colours, one colour."""
    random = np.random.default_rng(size)
    noise = random.integers(0, 256, (size, size, 3), dtype=np.uint8)
    patches = np.kron(noise[: size // 4 + 1, : size // 4 + 1], np.ones((4, 4, 1)))[:size, :size]
    smooth = Image.fromarray(noise[:5, :5]).resize((size, size), Image.Resampling.BICUBIC)
    dull = (noise // 64 + 100).astype(np.uint8)
    single = np.full((size, size, 3), (255, 0, 17), dtype=np.uint8)
    return [Image.fromarray(p.astype(np.uint8)) for p in (noise, patches, dull, single)] + [smooth]


def by_pillow(image, name, amount):
    """What the operation means, written down a second time and in Pillow's own words."""
    size = image.size
    return {
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalize": lambda: ImageOps.equalize(image),
        "posterize": lambda: ImageOps.posterize(image, amount),
        "solarize": lambda: ImageOps.solarize(image, amount),
        "rotate": lambda: image.rotate(amount, resample=BILINEAR),
        "shear_x": lambda: image.transform(size, AFFINE, (1, amount, 0, 0, 1, 0), BILINEAR),
        "shear_y": lambda: image.transform(size, AFFINE, (1, 0, 0, amount, 1, 0), BILINEAR),
        "translate_x": lambda: image.transform(size, AFFINE, (1, 0, amount, 0, 1, 0), BILINEAR),
        "translate_y": lambda: image.transform(size, AFFINE, (1, 0, 0, 0, 1, amount), BILINEAR),
    }[name]()


def amounts(name):
    random = np.random.default_rng(4)
    if name.startswith("shear"):
        levels = random.uniform(0.003, 0.03, 12)
        return [float(s * level) for level in levels for s in (1, -1)] + [0.0, 1 / 64, -1 / 32]
    return {
        "posterize": range(1, 9),
        "solarize": range(231, 256),
        "rotate": range(-3, 4),
        "translate_x": range(-8, 9),
        "translate_y": range(-8, 9),
    }.get(name, [0])


@pytest.mark.parametrize("size", [1, 2, 7, 33, 224])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_equal_pillows_bit_for_bit(name, size):
    for image in pictures(size):
        before = planes_of(image).copy()
        for amount in list(amounts(name))[:: 4 if size == 224 else 1]:
            ours = run_chain(before, [Operation(name, amount)], scratch=Scratch(size))
            assert np.array_equal(ours, planes_of(by_pillow(image, name, amount))), (name, amount)
        assert np.array_equal(before, planes_of(image)), "the source was changed"


def test_long_chains_equal_pillows():
    random = np.random.default_rng(8)
    image = pictures(48)[4]
    for _ in range(60):
        names = random.choice(OPERATIONS, 3)
        chain = [
            Operation(str(n), list(amounts(n))[random.integers(len(amounts(n)))]) for n in names
        ]
        expected = image
        for name, amount in chain:
            expected = by_pillow(expected, name, amount)
        assert np.array_equal(
            run_chain(planes_of(image), chain, scratch=Scratch(48)), planes_of(expected)
        ), chain


def draws(count, size=224):
    numbers = (view_numbers(1, "x", k).tolist()[AUGMIX_NUMBERS] for k in range(count))
    return [draw_mixture(n, size=size) for n in numbers]


def exact_mixture(image, mixture, preprocessing):
    """The peers' formula on normalised pictures, in float64."""

    def normalised(picture):
        mean, std = np.array(preprocessing.mean), np.array(preprocessing.std)
        return ((np.asarray(picture) / 255 - mean) / std).transpose(2, 0, 1)

    mix = 0
    for chain, weight in zip(mixture.chains, mixture.weights, strict=True):
        picture = image
        for name, amount in chain:
            picture = by_pillow(picture, name, amount)
        mix = mix + weight * normalised(picture)
    return mixture.keep * normalised(image) + (1 - mixture.keep) * mix


def test_mixing_before_normalising_changes_nothing():
    preprocessing = Preprocess.openai(56)
    out = np.empty((3, 56, 56), dtype=np.float32)
    for number, mixture in enumerate(draws(60, 56)):
        image = pictures(56)[number % 5]
        mixed(image, mixture, preprocessing=preprocessing, scratch=Scratch(56), out=out)
        assert abs(out - exact_mixture(image, mixture, preprocessing)).max() <= 1e-6


def test_views_equal_the_peers_way_with_the_same_draws():
    image = pictures(100)[4].resize((120, 90))
    setting = Preprocess.openai(64)
    for augmix in (True, False):
        recipe = ViewRecipe(count=24, augmix=augmix)
        ours = make_views(image, recipe=recipe, seed=3, image_id="a", preprocessing=setting)
        plain = plain_views(image, recipe=recipe, seed=3, image_id="a", preprocessing=setting)
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
