"""Crops: torchvision's pixels for the same rectangle, torchvision's distribution of rectangles."""

import math

import numpy as np
import pytest
from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.views import ViewRecipe, make_views
from dtpt.views.crops import Crop, cut, draw_crop
from dtpt.views.recipe import view_numbers

RECIPE = ViewRecipe()


def noise(width, height, seed=0):
    random = np.random.default_rng([seed, width, height])
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


def drawn(count, size, recipe=RECIPE):
    return [
        draw_crop(view_numbers(0, "x", view=k).tolist(), size, recipe=recipe) for k in range(count)
    ]


def random_rectangles(count):
    random = np.random.default_rng(3)
    for _ in range(count):
        width, height = (int(n) for n in random.integers(1, 300, 2))
        across, down = int(random.integers(1, width + 1)), int(random.integers(1, height + 1))
        left, top = (
            int(random.integers(width - across + 1)),
            int(random.integers(height - down + 1)),
        )
        yield (width, height), Crop(left, top, across, down, bool(random.integers(2)))


@pytest.mark.oracle
def test_pixels_equal_torchvisions_for_hundreds_of_rectangles(torchvision):
    functional = torchvision.transforms.functional
    bilinear = torchvision.transforms.InterpolationMode.BILINEAR
    for number, (size, crop) in enumerate(random_rectangles(400)):
        side = (32, 64, 224)[number % 3] if number % 8 == 0 else 48
        image = noise(*size)
        expected = functional.resized_crop(
            image, crop.top, crop.left, crop.height, crop.width, [side, side], bilinear
        )
        expected = functional.hflip(expected) if crop.flip else expected
        assert np.array_equal(np.asarray(cut(image, crop, size=side)), np.asarray(expected)), crop


@pytest.mark.oracle
def test_a_crop_view_without_augmix_is_torchvisions_tensor(torchvision):
    functional = torchvision.transforms.functional
    setting, recipe, image = (
        Preprocess.openai(64),
        ViewRecipe(count=12, augmix=False),
        noise(90, 70),
    )
    views = make_views(image, recipe=recipe, seed=5, image_id="a", preprocessing=setting)
    for k in range(1, 12):
        crop = draw_crop(view_numbers(5, "a", view=k).tolist(), image.size, recipe=recipe)
        tensor = functional.to_tensor(cut(image, crop, size=64))
        expected = functional.normalize(tensor, setting.mean, setting.std).numpy()
        assert np.array_equal(views[k], expected)


@pytest.mark.parametrize(
    "size", [(500, 375), (64, 64), (1, 1), (1, 50), (50, 1), (3, 1000), (2, 2)]
)
def test_every_crop_lies_inside_the_image(size):
    for crop in drawn(300, size):
        assert crop.width >= 1
        assert crop.height >= 1
        assert 0 <= crop.left <= size[0] - crop.width
        assert 0 <= crop.top <= size[1] - crop.height


def test_area_is_uniform_and_aspect_log_uniform_where_everything_fits():
    """Kolmogorov–Smirnov distance; 1.95/√n is exceeded by chance once in a thousand."""
    recipe = ViewRecipe(area=(0.08, 0.5))  # small enough that no draw is refused
    crops = drawn(4000, (1000, 1000), recipe)
    areas = np.sort([c.width * c.height / 1e6 for c in crops])
    aspects = np.sort([math.log(c.width / c.height) for c in crops])
    for values, low, high in ((areas, 0.08, 0.5), (aspects, math.log(3 / 4), math.log(4 / 3))):
        expected = (values - low) / (high - low)
        distance = abs(expected - (np.arange(4000) + 0.5) / 4000).max()
        assert distance < 1.95 / math.sqrt(4000)


def test_places_are_uniform_over_all_that_fit():
    crops = [c for c in drawn(4000, (1000, 1000)) if c.width < 900 and c.height < 900]
    for positions in (
        np.sort([c.left / (1000 - c.width) for c in crops]),
        np.sort([c.top / (1000 - c.height) for c in crops]),
    ):
        n = len(positions)
        assert abs(positions - (np.arange(n) + 0.5) / n).max() < 1.95 / math.sqrt(n) + 0.005


def test_half_of_the_crops_are_flipped_or_as_many_as_asked():
    assert abs(np.mean([c.flip for c in drawn(4000, (50, 50))]) - 0.5) < 0.03
    assert not any(c.flip for c in drawn(50, (50, 50), ViewRecipe(flip=0)))
    assert all(c.flip for c in drawn(50, (50, 50), ViewRecipe(flip=1)))


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("size", [(500, 375), (300, 120)])
def test_rectangles_are_distributed_as_torchvisions(torchvision, size):
    """Also where draws are refused and repeated: means of width and height agree."""
    import torch

    torch.manual_seed(0)
    image = Image.new("RGB", size)
    draw = torchvision.transforms.RandomResizedCrop.get_params
    theirs = np.array([draw(image, [0.08, 1.0], [3 / 4, 4 / 3])[2:] for _ in range(3000)])
    ours = np.array([(c.height, c.width) for c in drawn(3000, size)])
    error = np.sqrt(theirs.var(axis=0) / 3000 + ours.var(axis=0) / 3000)
    assert (abs(theirs.mean(axis=0) - ours.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize(
    ("size", "expected"),
    [((10, 1000), (10, 13)), ((1000, 10), (13, 10)), ((100, 100), (100, 100)), ((1, 50), (1, 1))],
)
def test_after_ten_refusals_the_largest_centred_rectangle_is_taken(size, expected):
    hopeless = [0.3, 0.3, 0.9, *[0.999, 0.0 if size[0] > size[1] else 0.999] * 10]
    crop = draw_crop(hopeless, size, recipe=ViewRecipe(area=(0.99, 1.0)))
    assert (crop.width, crop.height) == expected
    assert (crop.left, crop.top) == ((size[0] - expected[0]) // 2, (size[1] - expected[1]) // 2)
