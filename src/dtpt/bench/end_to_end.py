"""`dtpt bench end-to-end`: the whole path of one picture, from its pixels to probabilities.

A model of any shape with random weights; "one" setting is D-TPT, "five" are the paper's methods,
"twenty" is a sweep of λ.

The plain way repeats everything for each setting, as the released code of the peers does: the views
by `benchmarks.reference_views`, the image tower over all of them and once more over the original
for the answer, and Algorithm 1 as printed on the text side, both towers as published
(`benchmarks.reference_towers`).
Zero-shot needs one view only, and gets no more. Ours makes the views once, encodes them once, and
the engine answers all settings. What does not depend on the picture (the model, the tokenised
prompts, the engine's graph of the initial text features) is made before. The seconds of each stage
say how much of a ratio each of them owes.

Settings are independent repetitions of the same work, so of twenty the plain way runs one, and its
time is multiplied; `plain_measured` says so.
"""

import json as json_format
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.bench.inputs import class_names, photograph
from dtpt.bench.machine import count_gflop, describe_machine, matmul_peak_gflops, torch_threads
from dtpt.bench.options import METHOD_SETS, Json, Repeat, Threads
from dtpt.bench.timing import Times, in_turns
from dtpt.errors import BenchmarkError, UnknownName
from dtpt.methods import ResolvedMethod, resolve_method

if TYPE_CHECKING:
    from PIL.Image import Image

    from dtpt.clip.model import Clip
    from dtpt.tuning import Tuner
    from dtpt.views import ViewRecipe

SETTINGS: dict[str, tuple[str, ...]] = {
    **METHOD_SETS,
    "twenty": tuple(f"d-tpt@{10 ** (3 + number / 5):.4g}" for number in range(20)),
}
PLAIN_MEASURED = {"twenty": 1}  # settings that the plain way runs; all of them otherwise

Stages = dict[str, float]
"""Seconds of "views", "tower" and "text"."""


@dataclass(frozen=True)
class Row:
    """One number of settings; seconds per picture on the clock.

    Attributes:
        settings: "one", "five" or "twenty".
        plain_seconds: The plain way for all settings.
        plain_measured: Settings that the plain way really ran; the rest was extrapolated.
        seconds: Ours for all settings.
        ratio: Plain divided by ours.
        shares: Of views, tower and text in our time.
        plain_shares: The same of the plain way.
        stages: Seconds of views, tower and text in our time.
        plain_stages: The same of the plain way, extrapolated like its total.
        tower_share_of_peak: Rate of our image tower, divided by that of a large matrix product.
    """

    settings: str
    plain_seconds: float
    plain_measured: int
    seconds: float
    ratio: float
    shares: Stages
    plain_shares: Stages
    stages: Stages
    plain_stages: Stages
    tower_share_of_peak: float


@dataclass(frozen=True)
class Scene:
    """What both ways work with."""

    clip: "Clip"
    plain: "Clip"
    tuner: "Tuner"
    recipe: "ViewRecipe"
    image: "Image"


def bench_end_to_end(
    *,
    architecture: Annotated[str, Parameter(help="Shape of the model.")] = "ViT-B-16",
    classes: Annotated[int, Parameter(help="Number of classes.")] = 47,
    settings: Annotated[str, Parameter(help="Of one, five, twenty; comma-separated.")] = (
        "one,five,twenty"
    ),
    views: Annotated[int, Parameter(help="Views per picture.")] = 64,
    threads: Threads = None,
    repeat: Repeat = 1,
    json: Json = False,
) -> None:
    """Compare the whole path of one picture with the plain way, for several settings."""
    names = [name.strip() for name in settings.split(",")]
    for name in names:
        if name not in SETTINGS:
            raise UnknownName("settings", name, SETTINGS, f"Known are {', '.join(SETTINGS)}.")
    with torch_threads(threads):
        machine = describe_machine()
        rows, peaks = measure(_scene(architecture, classes, views=views), names, repeat=repeat)
    if json:
        result = {
            "rows": [asdict(row) for row in rows],
            "architecture": architecture,
            "classes": classes,
            "views": views,
            "repeat": repeat,
            "peak_gflops": peaks,
            "machine": asdict(machine),
        }
        print(json_format.dumps(result, indent=1))
        return
    for row in rows:
        _print(row)


def measure(
    scene: Scene, names: Sequence[str], *, repeat: int
) -> tuple[list[Row], tuple[float, float]]:
    """Measure both ways for each number of settings, in turns, and the machine's peak around it."""
    before = matmul_peak_gflops()
    found = [(name, *_both_ways(scene, name, repeat=repeat)) for name in names]
    after = matmul_peak_gflops()
    possible = max(before, after) / (scene.recipe.count * _tower_gflop(scene))  # towers per second
    rows = [_row(name, times, measured=count, possible=possible) for name, count, times in found]
    return rows, (before, after)


def _both_ways(scene: Scene, name: str, *, repeat: int) -> tuple[int, dict[str, Times[Stages]]]:
    """Return how many settings the plain way ran, and the times of both ways.

    Before that each runs with two views, so that libraries are loaded and what the engine keeps for
    all pictures is made.
    """
    methods = [resolve_method(setting) for setting in SETTINGS[name]]
    plain = methods[: PLAIN_MEASURED.get(name, len(methods))]
    few = replace(scene, recipe=scene.recipe.model_copy(update={"count": 2}))
    plain_way(few, plain[-1:])
    our_way(few, methods)
    ways = {"plain": partial(plain_way, scene, plain), "ours": partial(our_way, scene, methods)}
    return len(plain), in_turns(ways, repeat, warm_up=False)


def _tower_gflop(scene: Scene) -> float:
    """Count the work of the image tower on one view."""
    import torch

    size = scene.clip.preprocessing.size
    return count_gflop(lambda: scene.clip.encode_image(torch.zeros(1, 3, size, size)))


def our_way(scene: Scene, methods: Sequence[ResolvedMethod]) -> Stages:
    """Answer all methods: views once, image tower once, the engine."""
    import torch

    from dtpt.views import make_views

    lap, setting = _Lap(), scene.clip.preprocessing
    views = make_views(
        scene.image, recipe=scene.recipe, seed=0, image_id="bench", preprocessing=setting
    )
    lap.end("views")
    features = scene.clip.encode_views(torch.from_numpy(views))
    lap.end("tower")
    scene.tuner.predict(features, methods)
    lap.end("text")
    return lap.seconds


def plain_way(scene: Scene, methods: Sequence[ResolvedMethod]) -> Stages:
    """Answer each method by itself, everything anew."""
    import torch

    from benchmarks.reference_views import reference_views
    from dtpt.methods.algorithm_1 import algorithm_1

    lap, clip = _Lap(), scene.plain
    for method in methods:
        recipe = scene.recipe.model_copy(update={} if method.uses_views else {"count": 1})
        pixels = reference_views(
            scene.image, recipe=recipe, seed=0, image_id="bench", preprocessing=clip.preprocessing
        )
        lap.end("views")
        features = clip.encode_image(pixels)
        if method.uses_views:
            features = torch.cat([clip.encode_image(pixels[:1]), features[1:]])
        lap.end("tower")
        algorithm_1(clip, scene.tuner.prompts, views=features, method=method)
        lap.end("text")
    return lap.seconds


class _Lap:
    """Adds up the seconds of stages that follow one another."""

    def __init__(self) -> None:
        self.seconds: Stages = {"views": 0.0, "tower": 0.0, "text": 0.0}
        self._last = time.perf_counter()

    def end(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now


def _row(name: str, times: dict[str, Times[Stages]], *, measured: int, possible: float) -> Row:
    plain, ours = times["plain"], times["ours"]
    times_more = len(SETTINGS[name]) / measured
    plain_seconds = plain.best * times_more
    return Row(
        settings=name,
        plain_seconds=plain_seconds,
        plain_measured=measured,
        seconds=ours.best,
        ratio=plain_seconds / ours.best,
        shares=_shares(ours.result),
        plain_shares=_shares(plain.result),
        stages=ours.result,
        plain_stages={stage: times_more * seconds for stage, seconds in plain.result.items()},
        tower_share_of_peak=1 / (ours.result["tower"] * possible),
    )


def _shares(stages: Stages) -> Stages:
    total = sum(stages.values())
    return {stage: seconds / total for stage, seconds in stages.items()}


def _scene(architecture: str, classes: int, *, views: int) -> Scene:
    from benchmarks.reference_towers import ReferenceClip
    from dtpt.clip.loading.names import architecture as shape
    from dtpt.clip.model import random_clip
    from dtpt.clip.prompts import PromptSet
    from dtpt.tuning import Tuner
    from dtpt.views import ViewRecipe

    if min(classes, views) < 1:
        raise BenchmarkError(f"--classes {classes} and --views {views} must be 1 or more.")
    clip = random_clip(shape(architecture))
    tuner = Tuner(clip, PromptSet.build(clip, class_names(classes)))
    return Scene(clip, ReferenceClip(clip), tuner, ViewRecipe(count=views), photograph())


def _print(row: Row) -> None:
    part = "" if row.plain_measured == len(SETTINGS[row.settings]) else " (extrapolated)"
    shares = ", ".join(f"{stage} {share:.0%}" for stage, share in row.shares.items())
    print(
        f"{row.settings:>6}  plain {row.plain_seconds:.2f} s{part}  ours {row.seconds:.2f} s"
        f"  {row.ratio:.1f}x  ({shares}; tower at {row.tower_share_of_peak:.0%} of peak)"
    )
