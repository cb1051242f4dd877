"""What AugMix's operations mean, written down a second time and in Pillow's own words."""

import numpy as np
from PIL import Image, ImageOps

BILINEAR = Image.Resampling.BILINEAR
AFFINE = Image.Transform.AFFINE


def example_images(size):
    """Noise, flat patches, few colours, one colour, a smooth image."""
    random = np.random.default_rng(size)
    noise = random.integers(0, 256, (size, size, 3), dtype=np.uint8)
    patches = np.kron(noise[: size // 4 + 1, : size // 4 + 1], np.ones((4, 4, 1)))[:size, :size]
    smooth = Image.fromarray(noise[:5, :5]).resize((size, size), Image.Resampling.BICUBIC)
    dull = (noise // 64 + 100).astype(np.uint8)
    single = np.full((size, size, 3), (255, 0, 17), dtype=np.uint8)
    return [Image.fromarray(p.astype(np.uint8)) for p in (noise, patches, dull, single)] + [smooth]


def by_pillow(image, name, amount):
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
    """Amounts of an operation, more than AugMix draws; among them shears by simple fractions."""
    random = np.random.default_rng(4)
    if name.startswith("shear"):
        levels = random.uniform(0.003, 0.03, 12)
        simple = [0.0, 1 / 64, -1 / 32, 0.02, -0.01, 2 / 255, -4 / 253, 1e-9]
        return [float(s * level) for level in levels for s in (1, -1)] + simple
    return {
        "posterize": range(1, 9),
        "solarize": range(231, 256),
        "rotate": range(-3, 4),
        "translate_x": range(-8, 9),
        "translate_y": range(-8, 9),
    }.get(name, [0])
