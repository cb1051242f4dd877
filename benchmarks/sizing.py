"""What the paper's tables cost, on machines of given speed.

Costs are counted, not timed: views that pass the image tower, class prompts that pass the text
tower for each tuned method, and the multiplications and additions of one of each, counted on the
model's architecture with random weights. Divided by the speed of a machine's matrix products this
is a lower bound; `end-to-end` measures which fraction of that speed the towers reach.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from benchmarks import measuring
from benchmarks.measuring import Listed, Row
from dtpt.clip.loading.names import catalog
from dtpt.clip.prompts import PromptSet
from dtpt.data.catalog import catalog_entry
from dtpt.methods import resolve_method
from dtpt.report.paper.targets import find_target
from dtpt.runs.rows import log_softmax, pack
from dtpt.tuning import Tuner

TABLES = tuple(f"table{number}" for number in range(1, 8))
COUNTED_CLASSES = 8
OTHER_COLUMNS = 120  # bytes of a stored row beside its probabilities, about


def sizing(*, gflops: Listed = "50,1000,20000") -> list[Row]:
    """Count what the paper's tables 1 to 7 cost, and hours at given speeds of matrix products."""
    speeds = measuring.whole_numbers(gflops, "--gflops")
    return [table_cost(name, speeds) for name in TABLES]


def table_cost(table: str, speeds: Sequence[int]) -> Row:
    """Add up the runs of a table; images count under each seed and for each run."""
    images = views = prompts = rows = 0
    teraflop = size = 0.0
    for run in find_target(table).runs:
        view, text = tower_gflop(run.model, run.methods)
        tuned = sum(method != "zero-shot" for method in run.methods)
        for name in run.datasets:
            entry = catalog_entry(name)
            count, classes = entry.images * len(run.seeds), len(entry.classes)
            images += count
            views += count * run.views
            prompts += count * classes * tuned
            rows += count * len(run.methods)
            size += count * len(run.methods) * row_bytes(classes)
            teraflop += count * (run.views * view + classes * text) / 1000
    return {
        "table": table,
        "pictures": images,
        "image_passes": views,
        "text_passes": prompts,
        "teraflop": teraflop,
        "rows": rows,
        "gigabytes": size / 1e9,
        "hours": {speed: 1000 * teraflop / speed / 3600 for speed in speeds},
    }


@lru_cache
def tower_gflop(model: str, methods: tuple[str, ...]) -> tuple[float, float]:
    """Return GFLOP of one view in the image tower, and of one class with all methods of a run."""
    clip = measuring.random_model(catalog()[model].architecture)
    pixels = torch.zeros(1, 3, *[clip.preprocessing.size] * 2)
    view = measuring.count_gflop(lambda: clip.encode_image(pixels))
    tuner = Tuner(clip, PromptSet.build(clip, measuring.class_names(COUNTED_CLASSES)))
    features = measuring.view_features(64, clip.config.embed_dim)
    resolved = [resolve_method(name) for name in methods]
    tuner.predict(features, resolved)  # what is made once for a data set is not counted
    text = measuring.count_gflop(lambda: tuner.predict(features, resolved))
    return view, text / COUNTED_CLASSES


@lru_cache
def row_bytes(classes: int) -> float:
    """Return the bytes of a stored row with all probabilities, of random logits."""
    logits = np.random.default_rng(0).normal(0, 3, classes)
    return OTHER_COLUMNS + len(pack(log_softmax(logits)))
