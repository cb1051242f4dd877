"""The whole path of one image, from its pixels to probabilities.

A model with random weights; "one" setting is D-TPT, "five" are the paper's methods, "twenty" is a
sweep of λ. The baseline repeats everything for each setting, as the released code of the peers
does: the views, the image tower over all of them and once more over the original, and Algorithm 1
as printed, both towers as published. Zero-shot needs one view only. Ours makes the views once,
encodes them once, and the engine runs all settings. What does not depend on the image is made
before. Of twenty settings, which are independent repetitions of the same work, the baseline runs
one, and its time is multiplied; `plain_measured` counts those that ran.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from PIL.Image import Image

from benchmarks import measuring
from benchmarks.measuring import METHOD_SETS, Repeat, Row, Stopwatch, Threads, Times
from benchmarks.memory import BenchmarkError
from benchmarks.reference_towers import ReferenceClip
from benchmarks.reference_views import reference_views
from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.errors import UnknownName
from dtpt.methods import ResolvedMethod, resolve_method
from dtpt.methods.algorithm_1 import algorithm_1
from dtpt.tuning import Tuner
from dtpt.views import ViewRecipe, make_views

SETTINGS: dict[str, tuple[str, ...]] = {
    **METHOD_SETS,
    "twenty": tuple(f"d-tpt@{10 ** (3 + number / 5):.4g}" for number in range(20)),
}
BASELINE_MEASURED = {"one": 1, "five": 5, "twenty": 1}  # settings that the baseline runs

Stages = dict[str, float]  # seconds of "views", "tower" and "text"


@dataclass(frozen=True)
class Fixture:
    """What both variants work with."""

    clip: Clip
    reference: Clip
    tuner: Tuner
    recipe: ViewRecipe
    image: Image

    @classmethod
    def build(cls, architecture: str, classes: int, *, views: int) -> "Fixture":
        if min(classes, views) < 1:
            text = f"--classes {classes} and --views {views} must be 1 or more."
            raise BenchmarkError(text)
        clip = measuring.random_model(architecture)
        tuner = Tuner(clip, PromptSet.build(clip, measuring.class_names(classes)))
        recipe, image = ViewRecipe(count=views), measuring.photograph()
        return cls(clip, ReferenceClip(clip), tuner, recipe, image)


def end_to_end(
    *,
    architecture: str = "ViT-B-16",
    classes: int = 47,
    settings: str = "one,five,twenty",
    views: int = 64,
    threads: Threads = None,
    repeat: Repeat = 1,
) -> Row:
    """Compare the whole path of one image with the baseline, for several settings.

    Args:
        settings: Of one, five, twenty; comma-separated.
    """
    names = [name.strip() for name in settings.split(",")]
    for name in names:
        if name not in SETTINGS:
            raise UnknownName("settings", name, SETTINGS, f"Known are {', '.join(SETTINGS)}.")
    with measuring.torch_threads(threads):
        machine = measuring.machine()
        fixture = Fixture.build(architecture, classes, views=views)
        before = measuring.matmul_peak_gflops()
        measured = {name: measure(fixture, name, repeat=repeat) for name in names}
        peaks = (before, measuring.matmul_peak_gflops())
        pixels = torch.zeros(1, 3, *[fixture.clip.preprocessing.size] * 2)
        gflop = measuring.count_gflop(lambda: fixture.clip.encode_image(pixels))
        possible = max(peaks) / (views * gflop)  # image towers over all views, per second
        rows = [_row(name, times, possible=possible) for name, times in measured.items()]
    options = {"architecture": architecture, "classes": classes, "views": views, "repeat": repeat}
    return {"rows": rows, **options, "peak_gflops": peaks, "machine": machine}


def measure(fixture: Fixture, name: str, *, repeat: int) -> dict[str, Times[Stages]]:
    """Time both variants; each runs before with two views, so that what is kept is made."""
    methods = [resolve_method(setting) for setting in SETTINGS[name]]
    few_methods = methods[: BASELINE_MEASURED[name]]
    few = replace(fixture, recipe=fixture.recipe.model_copy(update={"count": 2}))
    baseline(few, few_methods[-1:])
    optimised(few, methods)
    variants = {
        "baseline": partial(baseline, fixture, few_methods),
        "ours": partial(optimised, fixture, methods),
    }
    return measuring.in_turns(variants, repeat, warm_up=False)


def optimised(fixture: Fixture, methods: Sequence[ResolvedMethod]) -> Stages:
    """Run all methods: views once, image tower once, the engine."""
    watch, clip = Stopwatch(), fixture.clip
    draw: Row = {"seed": 0, "image_id": "bench", "preprocessing": clip.preprocessing}
    views = make_views(fixture.image, recipe=fixture.recipe, **draw)
    watch.lap("views")
    features = clip.encode_views(torch.from_numpy(views))
    watch.lap("tower")
    fixture.tuner.predict(features, methods)
    watch.lap("text")
    return watch.seconds


def baseline(fixture: Fixture, methods: Sequence[ResolvedMethod]) -> Stages:
    """Run each method by itself, everything anew."""
    watch, clip = Stopwatch(), fixture.reference
    draw: Row = {"seed": 0, "image_id": "bench", "preprocessing": clip.preprocessing}
    for method in methods:
        recipe = fixture.recipe.model_copy(update={} if method.uses_views else {"count": 1})
        pixels = reference_views(fixture.image, recipe=recipe, **draw)
        watch.lap("views")
        features = clip.encode_image(pixels)
        if method.uses_views:
            features = torch.cat([clip.encode_image(pixels[:1]), features[1:]])
        watch.lap("tower")
        algorithm_1(clip, fixture.tuner.prompts, views=features, method=method)
        watch.lap("text")
    return watch.seconds


def _row(name: str, times: dict[str, Times[Stages]], *, possible: float) -> Row:
    reference, ours, measured = times["baseline"], times["ours"], BASELINE_MEASURED[name]
    factor = len(SETTINGS[name]) / measured
    return {
        "settings": name,
        "plain_seconds": factor * reference.best,
        "plain_measured": measured,
        "seconds": ours.best,
        "ratio": factor * reference.best / ours.best,
        "shares": _fractions(ours.result),
        "plain_shares": _fractions(reference.result),
        "stages": ours.result,
        "plain_stages": {stage: factor * seconds for stage, seconds in reference.result.items()},
        "tower_share_of_peak": 1 / (ours.result["tower"] * possible),
    }


def _fractions(stages: Stages) -> Stages:
    return {stage: seconds / sum(stages.values()) for stage, seconds in stages.items()}
