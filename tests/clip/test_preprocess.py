"""Preprocessing: torchvision's numbers bit for bit, and configs that are read or refused."""

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from dtpt.clip.preprocess import Preprocess
from dtpt.errors import CheckpointError
from dtpt.images import open_image

HF = {
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "size": {"shortest_edge": 224},
}


def noise(width, height, mode="RGB", seed=0):
    channels = {"L": (), "RGB": (3,), "RGBA": (4,)}[mode]
    random = np.random.default_rng([seed, width, height])
    return Image.fromarray(random.integers(0, 256, (height, width, *channels), dtype=np.uint8))


def sizes(count):
    random = np.random.default_rng(5)
    edges = [(1, 1), (1, 7), (7, 1), (2, 300), (224, 224), (225, 224), (224, 227), (32, 32)]
    return edges + [tuple(int(n) for n in random.integers(1, 400, 2)) for _ in range(count)]


def by_torchvision(torchvision, preprocess, image):
    t = torchvision.transforms
    resize = preprocess.short_side or preprocess.size
    if preprocess.resize_mode == "squash":
        resize = (preprocess.size, preprocess.size)
    return t.Compose(
        [
            t.Resize(resize, t.InterpolationMode(preprocess.interpolation)),
            t.CenterCrop(preprocess.size),
            t.ToTensor(),
            t.Normalize(preprocess.mean, preprocess.std),
        ]
    )(image).numpy()


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("preprocess", "count"),
    [
        (Preprocess.openai(224), 120),
        (Preprocess.openai(32), 120),
        (Preprocess(size=31, short_side=40), 60),
        (Preprocess(size=48, resize_mode="squash", interpolation="bilinear"), 60),
        (Preprocess(size=33, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)), 60),
    ],
)
def test_pixels_equal_torchvisions_bit_for_bit(torchvision, preprocess, count):
    for width, height in sizes(count):
        if max(width, height) > 200 * min(width, height):
            continue  # the whole strip would need gigabytes
        image = noise(width, height)
        ours = preprocess.pixels(image)
        assert ours.dtype == np.float32
        assert np.array_equal(ours, by_torchvision(torchvision, preprocess, image)), (width, height)


@pytest.mark.oracle
@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGBA", "P", "CMYK", "YCbCr"])
def test_pixels_of_every_mode_equal_torchvisions_of_the_converted_image(torchvision, mode):
    preprocess = Preprocess.openai(64)
    for width, height in sizes(20)[2:]:
        image = noise(width, height, "RGBA").convert(mode if mode != "CMYK" else "RGB")
        image = image.convert(mode)
        expected = by_torchvision(torchvision, preprocess, image.convert("RGB"))
        assert np.array_equal(preprocess.pixels(open_image(image)), expected)


def test_a_normalised_constant_is_the_formula():
    preprocess = Preprocess(size=4, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    pixels = preprocess.pixels(Image.new("RGB", (9, 5), (255, 51, 0)))
    expected = [(1 - 0.1) / 0.5, (0.2 - 0.2) / 0.25, (0 - 0.3) / 2]
    assert pixels.shape == (3, 4, 4)
    for channel in range(3):
        np.testing.assert_allclose(pixels[channel], expected[channel], atol=1e-6)


def test_long_strips_are_cut_out_without_making_the_whole(monkeypatch):
    preprocess = Preprocess.openai(32)
    strips = [(3, 701), (640, 7), (2, 555), (129, 5), (1, 90), (100, 90)]
    images = [noise(5, 5).resize(size, Image.Resampling.BICUBIC) for size in strips]
    whole = [np.asarray(preprocess.cropped(image)).astype(int) for image in images]
    monkeypatch.setattr("dtpt.clip.preprocess._STRIP_PIXELS", 0)
    for image, expected in zip(images, whole, strict=True):
        assert abs(np.asarray(preprocess.cropped(image)) - expected).max() <= 2  # of 255


def test_a_very_long_strip_needs_little_memory():
    import tracemalloc

    tracemalloc.start()
    assert Preprocess.openai(224).pixels(noise(1, 100_000)).shape == (3, 224, 224)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_hf_config_of_openais_checkpoint_is_openais_preprocessing():
    assert Preprocess.from_hf(HF) == Preprocess.openai(224)
    assert Preprocess.from_hf({}) == Preprocess.openai(224)
    older = {**HF, "size": 336, "crop_size": 336}
    assert Preprocess.from_hf(older) == Preprocess.openai(336)


def test_hf_variants_are_read():
    bigger = Preprocess.from_hf({**HF, "size": {"shortest_edge": 256}, "resample": 2})
    assert (bigger.size, bigger.short_side, bigger.interpolation) == (224, 256, "bilinear")
    squashed = Preprocess.from_hf(
        {**HF, "size": {"height": 384, "width": 384}, "do_center_crop": False}
    )
    assert (squashed.size, squashed.resize_mode) == (384, "squash")
    assert Preprocess.from_hf({**HF, "do_normalize": False}).std == (1, 1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"do_resize": False},
        {"do_rescale": False},
        {"do_center_crop": False},
        {"rescale_factor": 1 / 127.5},
        {"rescale_factor": "x"},
        {"resample": 0},
        {"resample": [3]},
        {"size": {"height": 224, "width": 112}},
        {"size": {"shortest_edge": 100}},
        {"size": {"shortest_edge": "big"}},
        {"crop_size": {"height": 10}},
        {"crop_size": "224"},
        {"image_std": [0.0, 1.0, 1.0]},
        {"image_mean": [0.5]},
        {"image_mean": [float("nan"), 0.5, 0.5]},
        {"crop_size": 10**9, "size": 10**9},
    ],
)
def test_hf_settings_that_we_do_not_do_are_refused(change):
    with pytest.raises(CheckpointError, match="Preprocessing"):
        Preprocess.from_hf({**HF, **change})


def test_open_clip_config_is_read_and_the_models_size_wins():
    config = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "size": [224, 224]}
    assert Preprocess.from_open_clip(config).size == 224
    assert Preprocess.from_open_clip(config, size=336).size == 336
    assert Preprocess.from_open_clip(config).mean == (0.5, 0.5, 0.5)
    assert Preprocess.from_open_clip({}) == Preprocess.openai(224)
    assert Preprocess.from_open_clip({"resize_mode": "squash"}).resize_mode == "squash"


@pytest.mark.parametrize(
    "config",
    [
        {"resize_mode": "longest"},
        {"interpolation": "random"},
        {"size": [224, 112]},
        {"mode": "L"},
        {"std": [1, 1, -1]},
    ],
)
def test_open_clip_settings_that_we_do_not_do_are_refused(config):
    with pytest.raises(CheckpointError, match="Preprocessing"):
        Preprocess.from_open_clip(config)


def test_settings_are_frozen_and_survive_a_round_trip():
    preprocess = Preprocess(size=32, short_side=36)
    assert Preprocess.model_validate(preprocess.model_dump()) == preprocess
    assert Preprocess.model_validate_json(preprocess.model_dump_json()) == preprocess
    with pytest.raises(ValidationError):
        preprocess.size = 3
