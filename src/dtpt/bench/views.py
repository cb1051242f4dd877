"""`dtpt bench views`: how fast `make_views` and the peers' recipe make views, on one core."""

import json as json_format
from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from dtpt.bench.machine import describe_machine, torch_threads
from dtpt.bench.options import Json, Repeat, whole_numbers
from dtpt.bench.timing import in_turns

PHOTOGRAPH = (500, 375)
DRAWING = (128, 128)  # of the embedded benchmark, whose model looks at 64 pixels
SMALL = 128
DRAWS = ("a", "b", "c", "d")  # what an AugMix view costs depends on its draws: four pictures' worth


@dataclass(frozen=True)
class Row:
    """What the views of one picture take one core, in processor time.

    Attributes:
        size: Side of a view in pixels.
        picture: Width and height of the picture in pixels.
        views: Per picture, the original included.
        plain_seconds: The peers' way, one picture.
        seconds: Ours.
        plain_views_per_second: The peers' way.
        views_per_second: Ours.
        ratio: How many times as fast ours is.
    """

    size: int
    picture: tuple[int, int]
    views: int
    plain_seconds: float
    seconds: float
    plain_views_per_second: float
    views_per_second: float
    ratio: float


def bench_views(
    *,
    size: Annotated[str, Parameter(help="Sides of a view in pixels, comma-separated.")] = "224,64",
    views: int = 64,
    repeat: Repeat = 5,
    json: Json = False,
) -> None:
    """Measure how many AugMix views per second one core makes, the peers' way and ours.

    Both make the same views (same random draws, four sets of them), in turns, on one thread.
    Processor time is counted; the best of the repetitions counts. Ours writes into one array that
    is kept from image to image, the peers' stacks fresh tensors, as each does in use. The picture
    has 500×375 pixels, or 128×128 for views of up to 128 pixels: the embedded model looks at 64.

    Args:
        size: Sides of a view in pixels, comma-separated; one row each.
        views: Number of views per picture, the original included.
        repeat: Repetitions of each way, in turns; the best counts.
        json: Print JSON.
    """
    sides, rows = whole_numbers(size, "--size"), []
    with torch_threads(1):
        machine = describe_machine()
        for side in sides:
            rows.append(measure(side, views, repeat=repeat))
            if not json:
                _print(rows[-1])
    if json:
        result = {"rows": [asdict(row) for row in rows], "repeat": repeat}
        print(json_format.dumps(result | {"machine": asdict(machine)}, indent=1))


def measure(size: int, views: int, *, repeat: int) -> Row:
    """Measure both ways at one size."""
    import numpy as np

    from benchmarks.reference_views import reference_views
    from dtpt.bench.inputs import photograph
    from dtpt.clip.preprocess import Preprocess
    from dtpt.views import ViewRecipe, make_views

    picture = DRAWING if size <= SMALL else PHOTOGRAPH
    image, recipe, setting = photograph(*picture), ViewRecipe(count=views), Preprocess.openai(size)
    kept = np.empty((views, 3, size, size), dtype=np.float32)

    def plain() -> None:
        for name in DRAWS:
            reference_views(image, recipe=recipe, seed=0, image_id=name, preprocessing=setting)

    def ours() -> None:
        for name in DRAWS:
            make_views(image, recipe=recipe, seed=0, image_id=name, preprocessing=setting, out=kept)

    times = in_turns({"plain": plain, "ours": ours}, repeat)
    seconds = {name: own.best_processor / len(DRAWS) for name, own in times.items()}
    return Row(
        size=size,
        picture=picture,
        views=views,
        plain_seconds=seconds["plain"],
        seconds=seconds["ours"],
        plain_views_per_second=views / seconds["plain"],
        views_per_second=views / seconds["ours"],
        ratio=seconds["plain"] / seconds["ours"],
    )


def _print(row: Row) -> None:
    width, height = row.picture
    print(
        f"{row.views} views at {row.size} pixels of a {width}×{height} picture: "
        f"plain {1e3 * row.plain_seconds:.1f} ms ({row.plain_views_per_second:.0f} views/s)  "
        f"ours {1e3 * row.seconds:.1f} ms ({row.views_per_second:.0f} views/s)  {row.ratio:.2f}x"
    )
