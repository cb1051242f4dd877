"""Digests of several hundred views, kept in `golden_views.json`.

    python tests/views/golden_views.py tests/views/golden_views.json

writes the file anew. That is right only together with a new `ViewRecipe.version`: other digests
mean that the same seed gives other views than in every run before.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from dtpt.clip.preprocess import Preprocess
from dtpt.views import ViewRecipe, make_views

# name: (kind of image, width, height, side of a view, number of views, AugMix, seed)
CASES = {
    "photograph-224": ("smooth", 500, 375, 224, 64, True, 0),
    "portrait-224": ("patches", 333, 500, 224, 24, True, 1),
    "noise-224": ("noise", 260, 240, 224, 16, True, 2),
    "crops-224": ("smooth", 500, 375, 224, 16, False, 3),
    "drawing-64": ("drawing", 128, 128, 64, 96, True, 0),
    "drawing-64-other-seed": ("drawing", 128, 128, 64, 64, True, 12345678901234567890),
    "noise-64": ("noise", 128, 128, 64, 64, True, 1),
    "crops-64": ("noise", 90, 70, 64, 16, False, 5),
    "odd-33": ("patches", 50, 40, 33, 48, True, 4),
    "few-colours-32": ("dull", 64, 48, 32, 48, True, 6),
    "one-colour-32": ("single", 40, 30, 32, 16, True, 7),
    "narrow-16": ("noise", 3, 200, 16, 32, True, 8),
    "large-to-48": ("smooth", 900, 700, 48, 16, True, 9),
    "tiny-7": ("noise", 2, 3, 7, 32, True, 10),
    "one-pixel-1": ("noise", 1, 1, 1, 16, True, 11),
}


def example_image(kind: str, width: int, height: int) -> Image.Image:
    """An image without any file: the same bytes everywhere."""
    random = np.random.default_rng([width, height])
    noise = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if kind == "smooth":
        coarse, fine = (
            np.asarray(Image.fromarray(noise[:n, :n]).resize((width, height)), dtype=np.int64)
            for n in (5, 60)
        )
        return Image.fromarray(((3 * coarse + fine) // 4).astype(np.uint8))
    if kind == "patches":
        small = Image.fromarray(noise[: height // 9 + 1, : width // 9 + 1])
        return small.resize((width, height), Image.Resampling.NEAREST)
    if kind == "drawing":  # a few flat colours on white, with soft edges
        small = noise[:6, :6].copy()
        small[random.random((6, 6)) < 0.5] = 255
        large = Image.fromarray(small).resize((width * 4, height * 4), Image.Resampling.NEAREST)
        return large.resize((width, height), Image.Resampling.BILINEAR)
    if kind == "dull":
        return Image.fromarray((noise // 64 + 100).astype(np.uint8))
    if kind == "single":
        return Image.new("RGB", (width, height), (255, 0, 17))
    return Image.fromarray(noise)


def digests(name: str) -> list[str]:
    """The first 16 hexadecimal digits of the sha256 of each view of one case."""
    kind, width, height, side, count, augmix, seed = CASES[name]
    views = make_views(
        example_image(kind, width, height),
        recipe=ViewRecipe(count=count, augmix=augmix),
        seed=seed,
        image_id=name,
        preprocessing=Preprocess.openai(side),
    )
    return [hashlib.sha256(view.astype("<f4").tobytes()).hexdigest()[:16] for view in views]


if __name__ == "__main__":
    found = {name: digests(name) for name in CASES}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
