"""`dtpt bench views`: views per second of `make_views` and of the peers' recipe, on one core."""

import json as json_format
from dataclasses import asdict, dataclass

from dtpt.bench.machine import Machine, describe_machine, torch_threads
from dtpt.bench.options import Json, Repeat
from dtpt.bench.timing import in_turns

PHOTOGRAPH = (500, 375)
DRAWING = (128, 128)  # of the embedded benchmark, whose model looks at 64 pixels
SMALL = 128
DRAWS = ("a", "b", "c", "d")  # what an AugMix view costs depends on its draws: four pictures' worth


@dataclass(frozen=True)
class Measurement:
    """How many views one core makes per second of processor time, and in which setting.

    Attributes:
        plain_views_per_second: The peers' way.
        views_per_second: Ours.
        ratio: Ours divided by the peers'.
        views: Per picture, the original included.
        size: Side of a view in pixels.
        picture: Width and height of the picture in pixels.
        repeat: How often each way was measured.
        machine: On which.
    """

    plain_views_per_second: float
    views_per_second: float
    ratio: float
    views: int
    size: int
    picture: tuple[int, int]
    repeat: int
    machine: Machine


def bench_views(
    *, size: int = 224, views: int = 64, repeat: Repeat = 5, json: Json = False
) -> None:
    """Measure how many AugMix views per second one core makes, the peers' way and ours.

    Both make the same views (same random draws, four sets of them), in turns, on one thread.
    Processor time is counted; the best of the repetitions counts. Ours writes into one array that
    is kept from image to image, the peers' stacks fresh tensors, as each does in use.

    Args:
        size: Side of a view in pixels; 64 is that of the embedded model.
        views: Number of views per picture, the original included.
        repeat: Repetitions of each way, in turns; the best counts.
        json: Print JSON.
    """
    found = measure(size, views, repeat=repeat)
    if json:
        print(json_format.dumps(asdict(found), indent=1))
        return
    print(
        f"{found.views_per_second:.0f} views/s at {size} pixels on one core; the peers' recipe "
        f"{found.plain_views_per_second:.0f}; ratio {found.ratio:.2f}"
    )


def measure(size: int, views: int, *, repeat: int) -> Measurement:
    """Measure both ways on one thread."""
    import numpy as np

    from dtpt.bench.inputs import photograph
    from dtpt.clip.preprocess import Preprocess
    from dtpt.views import ViewRecipe, make_views
    from dtpt.views.plain import plain_views

    picture = DRAWING if size <= SMALL else PHOTOGRAPH
    image, recipe, setting = photograph(*picture), ViewRecipe(count=views), Preprocess.openai(size)
    kept = np.empty((views, 3, size, size), dtype=np.float32)

    def plain() -> None:
        for name in DRAWS:
            plain_views(image, recipe=recipe, seed=0, image_id=name, preprocessing=setting)

    def ours() -> None:
        for name in DRAWS:
            make_views(image, recipe=recipe, seed=0, image_id=name, preprocessing=setting, out=kept)

    with torch_threads(1):
        machine = describe_machine()
        times = in_turns({"plain": plain, "ours": ours}, repeat)
    seconds = {name: own.best_processor / len(DRAWS) for name, own in times.items()}
    return Measurement(
        plain_views_per_second=views / seconds["plain"],
        views_per_second=views / seconds["ours"],
        ratio=seconds["plain"] / seconds["ours"],
        views=views,
        size=size,
        picture=picture,
        repeat=repeat,
        machine=machine,
    )
