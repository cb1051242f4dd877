"""How busy a whole run keeps the machine.

The embedded model on embedded images with the settings of `dtpt demo`, from rendering an image to
its stored rows, without the feature cache; the time counts from the call to the end, starting the
workers included. Beside it what one core does when the same stages run one after the other. A
machine that is kept busy does nearly as many times more as it has cores.
"""

import tempfile
import time
from pathlib import Path

import torch

from benchmarks import measuring
from benchmarks.measuring import Row, Stopwatch
from dtpt.clip.loading import load_model
from dtpt.clip.prompts import PromptSet
from dtpt.data import load_dataset
from dtpt.methods import resolve_method
from dtpt.options import EvalOptions
from dtpt.runs import run_options
from dtpt.tuning import Tuner
from dtpt.views import ViewRecipe, make_views

DATASETS = ("openmoji/food-drink", "openmoji-line/food-drink")
METHODS = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt@1e5", "d-tpt@1e6")
VIEWS = 64
SERIAL_IMAGES = 8


def pipeline(*, images: int = 128, workers: str = "auto", view_workers: str = "auto") -> Row:
    """Measure images per second of a whole run, and how busy it keeps the cores.

    Args:
        images: Of each of two data sets.
        workers: As for `dtpt eval`.
        view_workers: As for `dtpt eval`.
    """
    fixed = {"dataset": DATASETS, "method": METHODS, "views": VIEWS, "cache": False, "quiet": True}
    machine = measuring.machine()
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder:
        given = {"limit": images, "workers": workers, "view_workers": view_workers}
        options = EvalOptions.parse({**fixed, **given, "output": Path(folder) / "run"})
        before, began = measuring.processor_seconds(), time.perf_counter()
        with run_options(options) as run:
            seconds = time.perf_counter() - began
            busy = measuring.processor_seconds() - before
            session = run.sessions()[-1]
            done = sum(entry.samples for entry in run.spec.datasets)
    stages = stage_seconds()
    return {
        "pictures": done,
        "seconds": seconds,
        "pictures_per_second": done / seconds,
        "serial_pictures_per_second": 1 / sum(stages.values()),
        "stage_seconds": stages,
        "busy_share": busy / (seconds * machine["cores"]),
        "replicas": session["workers"],
        "workers": session["view_workers"],
        "machine": machine,
    }


def stage_seconds() -> dict[str, float]:
    """Return the processor time of each stage for one image, with one thread; best of each."""
    model, dataset = load_model("pocket", device="cpu"), load_dataset(DATASETS[0])
    recipe = ViewRecipe(count=VIEWS, augmix=dataset.augmix)
    draw: Row = {"recipe": recipe, "seed": 0, "preprocessing": model.preprocessing}
    methods = [resolve_method(name) for name in METHODS]
    laps = []
    with measuring.torch_threads(1):
        tuner = Tuner(model, PromptSet.build(model, dataset.classes))
        for sample in dataset.limited(SERIAL_IMAGES).samples:
            watch = Stopwatch(time.thread_time)
            pixels = make_views(sample.image.open(), image_id=sample.id, **draw)
            watch.lap("views")
            features = model.encode_views(torch.from_numpy(pixels))
            watch.lap("tower")
            tuner.predict(features, methods)
            watch.lap("text")
            laps.append(watch.seconds)
    return {stage: min(lap[stage] for lap in laps) for stage in laps[0]}
