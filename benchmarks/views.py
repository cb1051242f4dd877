"""How many AugMix views per second one core makes, as the peers do and as we do.

Both make the same views (same random draws, four sets of them), in turns, on one thread; the best
processor time counts. Ours writes into one array that is kept from image to image, the peers'
stacks fresh tensors, as each does in use.
"""

import numpy as np

from benchmarks import measuring
from benchmarks.measuring import Listed, Repeat, Row
from benchmarks.reference_views import reference_views
from dtpt.clip.preprocess import Preprocess
from dtpt.views import ViewRecipe, make_views

PHOTOGRAPH = (500, 375)
DRAWING = (128, 128)  # of the embedded benchmark, whose model takes 64 pixels
SMALL = 128  # pixels of a view up to which the image is a drawing
DRAWS = ("a", "b", "c", "d")  # the cost of an AugMix view depends on its draws: four images' worth


def views(*, size: Listed = "224,64", views: int = 64, repeat: Repeat = 5) -> Row:
    """Measure how many AugMix views per second one core makes, as the peers do and as we do.

    Args:
        views: Per image, the original included.
    """
    with measuring.torch_threads(1):
        machine = measuring.machine()
        sizes = measuring.whole_numbers(size, "--size")
        rows = [measure(side, views, repeat=repeat) for side in sizes]
    return {"rows": rows, "repeat": repeat, "machine": machine}


def measure(size: int, count: int, *, repeat: int) -> Row:
    """Measure both variants at one size."""
    shape = DRAWING if size <= SMALL else PHOTOGRAPH
    image, recipe = measuring.photograph(*shape), ViewRecipe(count=count)
    setting = Preprocess.openai(size)
    kept = np.empty((count, 3, size, size), dtype=np.float32)

    def baseline() -> None:
        for name in DRAWS:
            reference_views(image, recipe=recipe, seed=0, image_id=name, preprocessing=setting)

    def optimised() -> None:
        for name in DRAWS:
            make_views(image, recipe=recipe, seed=0, image_id=name, preprocessing=setting, out=kept)

    times = measuring.in_turns({"baseline": baseline, "ours": optimised}, repeat)
    reference, ours = (times[name].best_processor / len(DRAWS) for name in ("baseline", "ours"))
    return {
        "size": size,
        "picture": shape,
        "views": count,
        "plain_seconds": reference,
        "seconds": ours,
        "plain_views_per_second": count / reference,
        "views_per_second": count / ours,
        "ratio": reference / ours,
    }
