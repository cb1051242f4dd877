"""`dtpt bench sizing`: what the paper's tables cost, on machines of given speed.

Costs are counted, not timed: views that pass the image tower, class prompts that pass the text
tower for each tuned method, and the multiplications and additions of one of each, counted on the
model's architecture with random weights. Divided by the speed of a machine's matrix products
(`matmul_peak_gflops`) this is a lower bound; `dtpt bench end-to-end` prints which share of that
speed the towers reach.
"""

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Annotated

from cyclopts import Parameter
from dtpt.bench.machine import count_gflop
from dtpt.bench.options import Json, whole_numbers

from dtpt.data.catalog import catalog_entry
from dtpt.report.paper.targets import find_target

TABLES = tuple(f"table{number}" for number in range(1, 8))
COUNTED_CLASSES = 8
OTHER_COLUMNS = 120  # bytes of a stored row beside its probabilities, about


@dataclass(frozen=True)
class TableCost:
    """What one table costs.

    Attributes:
        table: Its name.
        pictures: Counted under each seed and for each run of the table.
        image_passes: Views through the image tower; all methods of a run share them.
        text_passes: Class prompts through the text tower, once for each method that tunes.
        teraflop: Multiplications and additions of all, in 10¹².
        rows: In the store.
        gigabytes: Of the store.
        hours: At each speed in GFLOP/s.
    """

    table: str
    pictures: int
    image_passes: int
    text_passes: int
    teraflop: float
    rows: int
    gigabytes: float
    hours: dict[int, float]


def bench_sizing(
    *,
    gflops: Annotated[
        str, Parameter(help="Speeds of matrix products in GFLOP/s, comma-separated.")
    ] = "50,1000,20000",
    json: Json = False,
) -> None:
    """Count what the paper's tables 1 to 7 cost, and hours on machines of given speed."""
    found = [table_cost(name, whole_numbers(gflops, "--gflops")) for name in TABLES]
    if json:
        print(json_format.dumps([asdict(one) for one in found], indent=1))
        return
    for one in found:
        hours = ", ".join(f"{value:,.1f} h at {speed:,}" for speed, value in one.hours.items())
        print(
            f"{one.table}: {one.pictures:,} pictures, {one.image_passes:,} image passes, "
            f"{one.text_passes:,} text passes, {one.teraflop:,.0f} TFLOP, {one.rows:,} rows, "
            f"{one.gigabytes:.2f} GB; {hours} GFLOP/s"
        )


def table_cost(table: str, speeds: Sequence[int]) -> TableCost:
    """Add up the runs of a table."""
    pictures = views = prompts = rows = 0
    teraflop = bytes_ = 0.0
    for run in find_target(table).runs:
        view, text = tower_gflop(run.model, run.methods)
        tuned = sum(method != "zero-shot" for method in run.methods)
        for name in run.datasets:
            entry = catalog_entry(name)
            count, classes = entry.images * len(run.seeds), len(entry.classes)
            pictures += count
            views += count * run.views
            prompts += count * classes * tuned
            rows += count * len(run.methods)
            bytes_ += count * len(run.methods) * row_bytes(classes)
            teraflop += count * (run.views * view + classes * text) / 1000
    hours = {speed: 1000 * teraflop / speed / 3600 for speed in speeds}
    return TableCost(table, pictures, views, prompts, teraflop, rows, bytes_ / 1e9, hours)


@lru_cache
def tower_gflop(model: str, methods: tuple[str, ...]) -> tuple[float, float]:
    """Return GFLOP of one view in the image tower, and of one class with all methods of a run."""
    import torch
    from dtpt.bench.inputs import class_names, view_features

    from dtpt.clip.loading.names import architecture, catalog
    from dtpt.clip.model import random_clip
    from dtpt.clip.prompts import PromptSet
    from dtpt.methods import resolve_method
    from dtpt.tuning import Tuner

    clip = random_clip(architecture(catalog()[model].architecture))
    pixels = torch.zeros(1, 3, clip.preprocessing.size, clip.preprocessing.size)
    with torch.inference_mode():
        view = count_gflop(lambda: clip.encode_image(pixels))
    tuner = Tuner(clip, PromptSet.build(clip, class_names(COUNTED_CLASSES)))
    features = view_features(64, clip.config.embed_dim)
    resolved = [resolve_method(name) for name in methods]
    tuner.predict(features, resolved)  # what is made once for a data set is not counted
    text = count_gflop(lambda: tuner.predict(features, resolved))
    return view, text / COUNTED_CLASSES


@lru_cache
def row_bytes(classes: int) -> float:
    """Return the bytes of a stored row with all probabilities, for answers as unsure as noise.

    Example:
        >>> row_bytes(1000) > row_bytes(10) > OTHER_COLUMNS
        True
    """
    import numpy as np
    from dtpt.runs.answers import log_softmax

    from dtpt.runs.rows import pack

    logits = np.random.default_rng(0).normal(0, 3, classes)
    return OTHER_COLUMNS + len(pack(log_softmax(logits)))
