"""What several methods cost together, and what the feature cache saves.

Whole runs, from image files to stored rows, with an empty cache: one method, then the paper's five,
then other λ on the same images, for which the image tower must not run. By default random weights
and generated images, so that nothing has to be downloaded; ViT-B/32, because a small image tower
makes the comparison harder than the paper's ViT-B/16.
"""

import os
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

from benchmarks import measuring
from benchmarks.measuring import METHOD_SETS, Row, Threads
from dtpt.clip.loading import load_model
from dtpt.clip.model import Clip
from dtpt.data import Dataset, FileRef, Sample
from dtpt.methods import parse_label
from dtpt.options import EvalOptions
from dtpt.runs import run_options

ONE, FIVE = METHOD_SETS["one"], METHOD_SETS["five"]
OTHER = (*FIVE[:2], *(str(parse_label(name).with_lambda(3)) for name in FIVE[2:]))
SIDE = 320  # pixels of an image


def runs(
    *,
    images: int = 3,
    classes: int = 47,
    views: int = 64,
    model: str | None = None,
    architecture: str = "ViT-B-32",
    threads: Threads = None,
) -> Row:
    """Compare one method with five on whole runs, and a second run from the cache.

    Args:
        model: Name; random weights when not given.
        architecture: Shape of those weights.
    """
    seconds, encoded = {}, {}
    with (
        tempfile.TemporaryDirectory(prefix="dtpt-bench-") as name,
        measuring.torch_threads(threads),
    ):
        machine, folder = measuring.machine(), Path(name)
        clip = measuring.random_model(architecture) if model is None else load_model(model)
        dataset = _dataset(folder, images, classes=classes)
        for name, methods in {"warm-up": ONE, "one": ONE, "five": FIVE, "other": OTHER}.items():
            few: Row = {"limit": 1, "views": 2} if name == "warm-up" else {"views": views}
            options = EvalOptions(
                model="benchmark",
                dataset=(dataset.name,),
                method=methods,
                output=folder / name,
                threads=torch.get_num_threads(),
                quiet=True,
                **few,
            )
            cache = folder / f"cache-{'five' if name == 'other' else name}"
            seconds[name], encoded[name] = _timed(options, clip, dataset=dataset, cache=cache)
    return {
        "one_method_seconds": seconds["one"] / images,
        "five_methods_seconds": seconds["five"] / images,
        "ratio": seconds["five"] / seconds["one"],
        "other_lambda_seconds": seconds["other"] / images,
        "images": images,
        "encoded_images_first_run": encoded["five"],
        "encoded_images_other_lambda": encoded["other"],
        "machine": machine,
    }


def _timed(options: EvalOptions, clip: Clip, *, dataset: Dataset, cache: Path) -> tuple[float, int]:
    began = time.perf_counter()
    with (
        patch.dict(os.environ, DTPT_CACHE=str(cache)),
        run_options(options, model=clip, datasets=[dataset]) as run,
    ):
        return time.perf_counter() - began, run.sessions()[-1]["encoded_images"]


def _dataset(folder: Path, images: int, *, classes: int) -> Dataset:
    """Write noisy images of photographic size and give them labels in turn."""
    generator = np.random.default_rng(0)
    samples = []
    for index in range(images):
        values = generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        path = folder / f"{index}.png"
        Image.fromarray(values).save(path)
        samples.append(Sample(path.name, index % classes, FileRef(path)))
    names = tuple(f"texture number {index}" for index in range(classes))
    return Dataset("benchmark", names, tuple(samples))
