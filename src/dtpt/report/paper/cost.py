"""How long a reproduction would take here: a short measurement with random weights.

Three things cost time per picture: making its views, encoding them, and tuning on the text side,
which grows with the number of classes. Each is measured once, small, and scaled.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from dtpt.clip.loading.names import architecture, catalog
from dtpt.data.catalog import PAPER_SETS, catalog_entry
from dtpt.report.paper.targets import PlannedRun

MEASURED_VIEWS = 2
MEASURED_CLASSES = 8


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine for one architecture.

    Attributes:
        view: Making one view with AugMix.
        encode: Encoding one view.
        text: Tuning and answering, per class and method.
    """

    view: float
    encode: float
    text: float

    def picture(self, *, views: int, classes: int, methods: int) -> float:
        """Seconds for one picture under one seed."""
        return views * (self.view + self.encode) + classes * methods * self.text


@dataclass(frozen=True)
class Cost:
    """What a run would cost: pictures times seeds, and the estimated seconds."""

    pictures: int
    seconds: float


def estimate(run: PlannedRun, speed: Speed) -> Cost:
    """Estimate one run of paper sets from a measured speed."""
    pictures, seconds = 0, 0.0
    for name in run.datasets:
        if name not in PAPER_SETS:
            continue
        entry = catalog_entry(name)
        count = entry.images * len(run.seeds)
        pictures += count
        seconds += count * speed.picture(
            views=run.views, classes=len(entry.classes), methods=len(run.methods)
        )
    return Cost(pictures, seconds)


def measure_speed(model: str) -> Speed:
    """Measure views, encoding and tuning of an architecture with random weights, in seconds."""
    import numpy as np
    import torch
    from PIL import Image

    from dtpt.clip.model import random_clip
    from dtpt.clip.prompts import PromptSet
    from dtpt.methods import PAPER_METHODS, resolve_method
    from dtpt.tuning import Tuner
    from dtpt.views import ViewRecipe, make_views

    clip = random_clip(architecture(catalog()[model].architecture))
    generator = np.random.default_rng(0)
    picture = Image.fromarray(generator.integers(0, 255, (375, 500, 3), dtype=np.uint8))
    recipe = ViewRecipe(count=MEASURED_VIEWS + 1)
    started = time.perf_counter()
    views = make_views(
        picture, recipe=recipe, seed=0, image_id="cost", preprocessing=clip.preprocessing
    )
    view = (time.perf_counter() - started) / len(views)
    pixels = torch.from_numpy(views[:MEASURED_VIEWS])
    with torch.inference_mode():
        encode = _best(lambda: clip.encode_image(pixels)) / MEASURED_VIEWS
    prompts = PromptSet.build(clip, [f"class number {i}" for i in range(MEASURED_CLASSES)])
    tuner = Tuner(clip, prompts)
    features = torch.nn.functional.normalize(torch.randn(64, clip.config.embed_dim), dim=-1)
    methods = [resolve_method(name) for name in PAPER_METHODS]
    text = _best(lambda: tuner.predict(features, methods)) / (MEASURED_CLASSES * len(methods))
    return Speed(view, encode, text)


def _best(work: object, repeat: int = 2) -> float:
    """Return the shortest of a few timings; the first one warms up."""
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        work()  # type: ignore[operator]
        times.append(time.perf_counter() - started)
    return min(times)


def duration_text(seconds: float) -> str:
    """Write a duration for people.

    Example:
        >>> duration_text(95), duration_text(7300), duration_text(200_000)
        ('2 minutes', '2.0 hours', '2.3 days')
    """
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} minutes"
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"


def total(costs: Sequence[Cost]) -> Cost:
    """Add costs up."""
    return Cost(sum(cost.pictures for cost in costs), sum(cost.seconds for cost in costs))
