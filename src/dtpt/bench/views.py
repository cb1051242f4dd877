"""`dtpt bench views`: views per second of `make_views` and of the peers' recipe, on one core."""

import json as json_format
import time
from collections.abc import Callable
from typing import Any


def bench_views(
    *, json: bool = False, views: int = 64, repeats: int = 5, size: int = 224
) -> dict[str, Any]:
    """Measures how many AugMix views per second one core makes, the peers' way and ours.

    Both make the same views (same random draws) of the same 500×375 picture, in turns, on one
    thread. Processor time is counted, not the time on the clock, so that other programs disturb
    little; the best of the repeats counts. Ours writes into one array that is kept from image to
    image, the peers' stacks fresh tensors, as each does in use.

    Args:
        json: Print one JSON object instead of a sentence.
        views: Number of views per image, the original included.
        repeats: How often each way is measured.
        size: Side of a view in pixels.
    """
    import numpy as np
    import torch

    from dtpt.clip.preprocess import Preprocess
    from dtpt.views import ViewRecipe, make_views
    from dtpt.views.plain import plain_views

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    image, recipe, setting = _picture(), ViewRecipe(count=views), Preprocess.openai(size)
    kept = np.empty((views, 3, size, size), dtype=np.float32)

    def plain_way() -> object:
        return plain_views(image, recipe=recipe, seed=0, image_id="b", preprocessing=setting)

    def our_way() -> object:
        return make_views(
            image, recipe=recipe, seed=0, image_id="b", preprocessing=setting, out=kept
        )

    plain, ours = _best_seconds([plain_way, our_way], repeats)
    torch.set_num_threads(threads)
    result = {
        "plain_views_per_second": views / plain,
        "views_per_second": views / ours,
        "ratio": plain / ours,
        "views": views,
        "size": size,
    }
    _show(result, json)
    return result


def _best_seconds(ways: list[Callable[[], object]], repeats: int) -> list[float]:
    """Returns the shortest processor time of each way in seconds, measured in turns."""
    best = [float("inf")] * len(ways)
    for _ in range(repeats):
        for number, way in enumerate(ways):
            start = time.thread_time()
            way()
            best[number] = min(best[number], time.thread_time() - start)
    return best


def _picture() -> Any:
    """Returns a 500×375 picture with structure at every scale and a full range of colours."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(0)
    picture = np.zeros((375, 500, 3))
    for cells in (3, 8, 24, 80, 250):
        noise = random.integers(0, 256, (cells * 3 // 4 + 1, cells, 3), dtype=np.uint8)
        layer = Image.fromarray(noise).resize((500, 375), Image.Resampling.BICUBIC)
        picture += (np.asarray(layer) - 127.5) / cells**0.5
    return Image.fromarray(np.clip(picture + 127.5, 0, 255).astype(np.uint8))


def _show(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json_format.dumps(result))
        return
    print(
        f"{result['views_per_second']:.0f} views/s on one core; the peers' recipe "
        f"{result['plain_views_per_second']:.0f}; ratio {result['ratio']:.2f}"
    )
