"""Chains: every operation is Pillow's bit for bit, alone, in chains and side by side."""

import numpy as np
import pytest
from PIL import Image
from pillow_operations import amounts, by_pillow, example_images

from dtpt.views import warps
from dtpt.views.augmix import BATCHED, OPERATIONS, SINGLE, Operation, run_chains
from dtpt.views.colour import planes_of
from dtpt.views.warps import Scratch


def expected(image, chain):
    for name, amount in chain:
        image = by_pillow(image, name, amount)
    return planes_of(image)


def draw_chain(random, length):
    names = [str(name) for name in random.choice(OPERATIONS, length)]
    return tuple(Operation(n, list(amounts(n))[random.integers(len(amounts(n)))]) for n in names)


def test_every_operation_is_done_in_one_place():
    assert sorted([*SINGLE, *BATCHED]) == sorted(OPERATIONS)


@pytest.mark.parametrize("size", [1, 2, 7, 33, 224])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_equal_pillows_bit_for_bit(name, size):
    scratch = Scratch(size)
    for image in example_images(size):
        before = planes_of(image).copy()
        for amount in list(amounts(name))[:: 3 if size == 224 else 1]:
            chain = (Operation(name, amount),)
            (ours,) = run_chains([before], [chain], scratch=scratch)
            assert np.array_equal(ours, expected(image, chain)), (name, amount)
        assert np.array_equal(before, planes_of(image)), "the source was changed"


def test_long_chains_equal_pillows():
    random = np.random.default_rng(8)
    image = example_images(48)[4]
    for _ in range(60):
        chain = draw_chain(random, 3)
        (ours,) = run_chains([planes_of(image)], [chain], scratch=Scratch(48))
        assert np.array_equal(ours, expected(image, chain)), chain


@pytest.mark.parametrize("size", [5, 40, 64])
def test_many_chains_side_by_side_are_what_each_is_alone(size):
    """More of them than the scratch memory takes at once, and of all lengths."""
    random = np.random.default_rng(size)
    images = [example_images(size)[number % 5] for number in range(150)]
    chains = [draw_chain(random, number % 4) for number in range(150)]
    scratch = Scratch(size)
    for words in scratch.words:
        words.fill(0xDEADBEEF)  # what is left in it must not matter
    ours = run_chains([planes_of(image) for image in images], chains, scratch=scratch)
    for image, chain, planes in zip(images, chains, ours, strict=True):
        assert np.array_equal(planes, expected(image, chain)), chain


def test_scratch_memory_of_one_image_is_enough():
    scratch = Scratch(600)
    assert scratch.images == 1
    image = Image.effect_noise((600, 600), 90).convert("RGB")
    chains = [(Operation("rotate", 2),), (Operation("rotate", 2),), (Operation("shear_y", 0.021),)]
    for chain, ours in zip(
        chains, run_chains([planes_of(image)] * 3, chains, scratch=scratch), strict=True
    ):
        assert np.array_equal(ours, expected(image, chain))


def test_shears_by_simple_fractions_are_noticed_as_doubtful():
    """Whole products d·f with a neighbouring difference d: here rounding f would be wrong."""
    doubtful = [0.0, 0.5, 1 / 3, 254 / 255, 1 / 255, 100 / 201, 1 - 1e-9, 1 / 2 + 1e-9]
    safe = [2**0.5 - 1, 0.5 + 1e-6, 1 / 257, 1 / 3 + 2e-7]
    assert warps._is_doubtful(np.array(doubtful)).all()
    assert not warps._is_doubtful(np.array(safe)).any()


def test_rounding_a_safe_fraction_changes_no_step():
    """All differences of two pixels, for many fractions that are not called doubtful."""
    random = np.random.default_rng(1)
    near = warps._fractions()[random.integers(0, 19821, 4000)] + random.normal(0, 1e-6, 4000)
    fractions = np.concatenate([random.random(4000), near % 1])
    fractions = fractions[~warps._is_doubtful(fractions)]
    assert len(fractions) > 6000
    differences = np.arange(-255, 256)
    exact = np.floor(differences * fractions[:, None]).astype(np.int64)
    fixed = np.rint(fractions * 2**24).astype(np.int64)
    assert np.array_equal((differences * fixed[:, None]) >> 24, exact)


@pytest.mark.parametrize("degrees", [-2, -1, 1, 2])
def test_rotations_in_doubt_are_computed_as_pillow_does(degrees, monkeypatch):
    """With a hundred times the doubt, and so many more repairs, the result is the same."""
    image = example_images(64)[0]
    want = expected(image, [Operation("rotate", degrees)])
    for doubt in (512, 51_200, 1 << 22):
        monkeypatch.setattr(warps, "_DOUBT", doubt)
        ours = warps.rotate([planes_of(image)], degrees, scratch=Scratch(64))
        assert np.array_equal(ours[0], want)


def test_rounded_weights_of_a_rotation_stay_within_the_doubt():
    turn = warps._turn(64, 2)
    factors = turn.factors.astype(np.int64)
    weights = [factors[0]]
    for factor in factors[1:]:
        weights.append((factor + (weights[-1] << 8)) % 2**32)
    signed = [np.where(w >= 2**31, w - 2**32, w) for w in weights]
    exact = [
        (1 - turn.across) * (1 - turn.down),
        turn.across * (1 - turn.down),
        (1 - turn.across) * turn.down,
        turn.across * turn.down,
    ]
    assert (sum(signed) == 2**24).all()
    errors = [abs(w - e * 2**24) for w, e in zip(signed[1:], exact[1:], strict=True)]
    assert 255 * sum(errors).max() < warps._DOUBT
