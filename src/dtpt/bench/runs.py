"""`dtpt bench runs`: what several methods cost together, and what the feature cache saves.

Whole runs, from picture files to stored rows, with an empty cache: one method, then the paper's
five, then other λ on the same images, for which the image tower must not be touched. By default
random weights and drawn pictures, so that nothing has to be downloaded; ViT-B/32, because a small
image tower makes the comparison harder than the paper's ViT-B/16.
"""

import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from dtpt.clip.model import Clip
    from dtpt.data import Dataset
    from dtpt.runs import EvalOptions

ONE = ("d-tpt",)
FIVE = ("zero-shot", "tpt", "c-tpt", "o-tpt", "d-tpt")
PICTURE_SIDE = 320


@dataclass(frozen=True)
class Measurement:
    """Seconds per image, and how many images the tower encoded."""

    one_method_seconds: float
    five_methods_seconds: float
    ratio: float
    other_lambda_seconds: float
    images: int
    encoded_images_first_run: int
    encoded_images_other_lambda: int


def bench_runs(
    *,
    images: int = 3,
    classes: int = 47,
    views: int = 64,
    model: str | None = None,
    architecture: str = "ViT-B-32",
    threads: int | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Compare one method with five on whole runs, and a second run from the cache.

    Args:
        images: Number of pictures.
        classes: Number of classes.
        views: Views per image.
        model: Model name; random weights when not given.
        architecture: Shape of the model with random weights.
        threads: torch threads; torch's own choice when not given.
        json_: Print JSON.
    """
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder:
        clip = _load(model, architecture)
        found = measure(Path(folder), images, classes, views=views, clip=clip, threads=threads)
    if json_:
        print(json.dumps(asdict(found), indent=1))
        return
    print(f"one method     {found.one_method_seconds:7.2f} s per image")
    print(f"five methods   {found.five_methods_seconds:7.2f} s per image, {found.ratio:.2f} times")
    print(f"other lambdas  {found.other_lambda_seconds:7.2f} s per image, from the cache")
    print(
        f"images encoded: {found.encoded_images_first_run} in the first run, "
        f"{found.encoded_images_other_lambda} with other lambdas"
    )


def measure(
    folder: Path,
    images: int,
    classes: int,
    *,
    views: int,
    clip: "Clip",
    threads: int | None,
) -> Measurement:
    """Run the three evaluations in a folder of their own."""
    from dtpt.runs import EvalOptions

    dataset = _draw(folder / "pictures", images, classes)
    base = EvalOptions(
        model="benchmark",
        dataset=(dataset.name,),
        views=views,
        threads=threads,
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
        seconds[name], encoded[name] = _timed(options, clip, dataset, cache=cache)
    return Measurement(
        one_method_seconds=seconds["one"] / images,
        five_methods_seconds=seconds["five"] / images,
        ratio=seconds["five"] / seconds["one"],
        other_lambda_seconds=seconds["other"] / images,
        images=images,
        encoded_images_first_run=encoded["five"],
        encoded_images_other_lambda=encoded["other"],
    )


def _timed(
    options: "EvalOptions", clip: "Clip", dataset: "Dataset", *, cache: Path
) -> tuple[float, int]:
    """Evaluate with a cache of its own; return seconds and encoded images."""
    from dtpt.runs import evaluate
    from dtpt.runs.features import FOLDER_VARIABLE

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
    import torch

    from dtpt.clip.loading import load_model
    from dtpt.clip.loading.catalog import architecture
    from dtpt.clip.model import Clip, initialise
    from dtpt.clip.preprocess import Preprocess
    from dtpt.clip.tokenizer import Tokenizer

    if name is not None:
        return load_model(name)
    clip = Clip(
        architecture(shape),
        tokenizer=Tokenizer.clip_default(),
        preprocessing=Preprocess.openai(224),
        fingerprint="random weights of the benchmark",
    )
    initialise(clip, torch.Generator().manual_seed(0))
    return clip.requires_grad_(False).eval()


def _draw(folder: Path, images: int, classes: int) -> "Dataset":
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
