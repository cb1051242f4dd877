"""`dtpt bench runs`: what several methods cost together, and what the feature cache saves.

Whole runs, from picture files to stored rows, with an empty cache: one method, then the paper's
five, then other λ on the same images, for which the image tower must not be touched. By default
random weights and drawn pictures, so that nothing has to be downloaded; ViT-B/32, because a small
image tower makes the comparison harder than the paper's ViT-B/16.
"""

import json as json_format
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from dtpt.bench.machine import Machine, describe_machine, torch_threads
from dtpt.bench.options import METHOD_SETS, Json, Threads

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset
    from dtpt.runs import EvalOptions

ONE, FIVE = METHOD_SETS["one"], METHOD_SETS["five"]
PICTURE_SIDE = 320


@dataclass(frozen=True)
class Measurement:
    """Seconds per image on the clock, and how many images the tower encoded."""

    one_method_seconds: float
    five_methods_seconds: float
    ratio: float
    other_lambda_seconds: float
    images: int
    encoded_images_first_run: int
    encoded_images_other_lambda: int
    machine: Machine


def bench_runs(
    *,
    images: Annotated[int, Parameter(help="Number of pictures.")] = 3,
    classes: Annotated[int, Parameter(help="Number of classes.")] = 47,
    views: Annotated[int, Parameter(help="Views per image.")] = 64,
    model: Annotated[str | None, Parameter(help="Name; random weights when not given.")] = None,
    architecture: Annotated[str, Parameter(help="Shape of those weights.")] = "ViT-B-32",
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compare one method with five on whole runs, and a second run from the cache."""
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as name, torch_threads(threads):
        folder, clip = Path(name), _load(model, architecture)
        dataset = _draw(folder / "pictures", images, classes=classes)
        found = measure(folder, dataset, clip=clip, views=views)
    if json:
        print(json_format.dumps(asdict(found), indent=1))
        return
    print(f"one method     {found.one_method_seconds:7.2f} s per image")
    print(f"five methods   {found.five_methods_seconds:7.2f} s per image, {found.ratio:.2f} times")
    print(f"other lambdas  {found.other_lambda_seconds:7.2f} s per image, from the cache")
    print(
        f"images encoded: {found.encoded_images_first_run} in the first run, "
        f"{found.encoded_images_other_lambda} with other lambdas"
    )


def measure(folder: Path, dataset: "Dataset", *, clip: "Clip", views: int) -> Measurement:
    """Run the three evaluations in a folder of their own."""
    import torch

    from dtpt.runs import EvalOptions

    images = len(dataset.samples)
    base = EvalOptions(
        model="benchmark",
        dataset=(dataset.name,),
        views=views,
        threads=torch.get_num_threads(),
        quiet=True,
    )
    others = tuple(f"{name}@3" for name in FIVE[2:])
    plans = {"warm-up": ONE, "one": ONE, "five": FIVE, "other": (*FIVE[:2], *others)}
    seconds, encoded = {}, {}
    for name, methods in plans.items():
        cache = folder / ("cache-five" if name == "other" else f"cache-{name}")
        changes = {"method": methods, "output": folder / name}
        options = base.model_copy(
            update=changes | ({"limit": 1, "views": 2} if name == "warm-up" else {})
        )
        seconds[name], encoded[name] = _timed(options, clip, dataset=dataset, cache=cache)
    return Measurement(
        one_method_seconds=seconds["one"] / images,
        five_methods_seconds=seconds["five"] / images,
        ratio=seconds["five"] / seconds["one"],
        other_lambda_seconds=seconds["other"] / images,
        images=images,
        encoded_images_first_run=encoded["five"],
        encoded_images_other_lambda=encoded["other"],
        machine=describe_machine(),
    )


def _timed(
    options: "EvalOptions", clip: "Clip", *, dataset: "Dataset", cache: Path
) -> tuple[float, int]:
    """Evaluate with a cache of its own; return seconds and encoded images."""
    from dtpt.prediction.cache import FOLDER_VARIABLE
    from dtpt.runs import evaluate

    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = str(cache)
    began = time.perf_counter()
    try:
        with evaluate(options, model=clip, datasets=[dataset]) as run:
            return time.perf_counter() - began, run.sessions()[-1]["encoded_images"]
    finally:
        if before is None:
            del os.environ[FOLDER_VARIABLE]
        else:
            os.environ[FOLDER_VARIABLE] = before


def _load(name: str | None, shape: str) -> "Clip":
    from dtpt.clip.loading import load_model
    from dtpt.clip.loading.names import architecture
    from dtpt.clip.model import random_clip

    return random_clip(architecture(shape)) if name is None else load_model(name)


def _draw(folder: Path, images: int, *, classes: int) -> "Dataset":
    """Write noisy pictures of photographic size and give them labels in turn."""
    import numpy as np
    from PIL import Image

    from dtpt.data import Dataset, FileRef, Sample

    folder.mkdir()
    generator = np.random.default_rng(0)
    samples = []
    for index in range(images):
        values = generator.integers(0, 256, (PICTURE_SIDE, PICTURE_SIDE, 3), dtype=np.uint8)
        path = folder / f"{index}.png"
        Image.fromarray(values).save(path)
        samples.append(Sample(path.name, index % classes, FileRef(path)))
    names = tuple(f"texture number {index}" for index in range(classes))
    return Dataset("benchmark", names, tuple(samples))
