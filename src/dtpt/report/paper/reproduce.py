"""The runs behind `dtpt reproduce`, where they are stored, and how long they would take here.

A table can be done in parts and in any order, because each part has a folder of its own:

    OUTPUT/TARGET/MODEL/DATASET/all                as planned
    OUTPUT/TARGET/MODEL/DATASET/tpt_seed=0         a part of the methods and seeds
    OUTPUT/TARGET/MODEL/DATASET-partly/all         a data set that lacks images
    OUTPUT/TARGET/limit=16,views=8/MODEL/...       settings that are not the paper's
"""

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtpt.clip.loading.names import architecture, catalog
from dtpt.data import load_dataset
from dtpt.data.catalog import PAPER_SETS, catalog_entry
from dtpt.options import EvalOptions
from dtpt.report.paper.targets import PlannedRun, Target

# options that decide numbers, beside what a target decides itself
SETTINGS = (
    *("limit", "views", "steps", "learning_rate", "weight_decay", "rho", "entropy"),
    *("precision", "activation"),
)
PARTLY_HERE = "-partly"
LONGEST_NAME = 100  # of a folder
MEASURED_VIEWS = 3
MEASURED_CLASSES = 8


def part_options(
    given: Mapping[str, Any], run: PlannedRun, *, datasets: tuple[str, ...]
) -> EvalOptions:
    """Return what is evaluated: the plan, with what was given instead of what was planned."""
    own = {name: value for name, value in given.items() if name in EvalOptions.model_fields}
    decided: dict[str, Any] = {
        "model": run.model,
        "dataset": datasets,
        "template": run.template,
        "context": own.get("context") if run.needs_context else None,
    }
    if "method" in own:
        decided["method"] = run.methods  # narrowed already, with the λ of the target
    planned = {"method": run.methods, "seed": run.seeds, "views": run.views}
    return EvalOptions.parse({**planned, **own, **decided})


def plan_parts(
    given: Mapping[str, Any], ready: Target, *, whole: Target, output: Path
) -> tuple[Path, list[EvalOptions]]:
    """Return the target's folder and its runs, one per data set; no data set may be missing."""
    folder, parts = output / whole.name, []
    for run in ready.runs:
        planned_run = next(own for own in whole.runs if own.name == run.name)
        for name in run.datasets:
            planned = part_options(given, run, datasets=(name,))
            data = load_dataset(name, data_root=planned.data_root, partial=planned.partial)
            options = planned.model_copy(update={"partial": data.is_partial})
            folder = output / whole.name / _changed_settings(whole, options)
            path = folder / run.name / _part_name(planned_run, options)
            parts.append(options.model_copy(update={"output": path}))
    return folder, parts


def _changed_settings(target: Target, options: EvalOptions) -> str:
    """Name the settings that are not the target's own; empty when all are."""
    usual = {name: EvalOptions.model_fields[name].default for name in SETTINGS}
    usual["views"] = target.runs[0].views
    chosen = {name: getattr(options, name) for name in SETTINGS}
    return _folder_name(",".join(f"{n}={v}" for n, v in chosen.items() if v != usual[n]))


def _part_name(whole: PlannedRun, options: EvalOptions) -> Path:
    """Return the folder of one data set inside that of its run."""
    (dataset,) = options.dataset
    words = [] if options.method == whole.methods else [",".join(options.method)]
    if options.seed != whole.seeds:
        words.append(f"seed={','.join(map(str, options.seed))}")
    suffix = PARTLY_HERE if options.partial else ""
    return Path(f"{dataset}{suffix}", _folder_name("_".join(words) or "all"))


def stored_runs(folder: Path, target: Target) -> list[Path]:
    """Return the folders of all runs of a target that exist; a whole set hides a part of it."""
    found = []
    for run in target.runs:
        for dataset in run.datasets:
            for name in (dataset, dataset + PARTLY_HERE):
                stores = sorted((folder / run.name / name).glob("*/run.sqlite"))
                found += [store.parent for store in stores]
                if stores:
                    break
    return found


def _folder_name(words: str) -> str:
    name = re.sub(r"[^\w.,=@+-]", "-", words)
    return name if len(name) <= LONGEST_NAME else hashlib.sha256(words.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine for one architecture."""

    view: float  # to make one view with AugMix
    encode: float  # to encode one view
    text: float  # to tune and predict, per class and method


@dataclass(frozen=True)
class Cost:
    """What runs would cost: images times seeds, and the estimated seconds."""

    images: int
    seconds: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.images + other.images, self.seconds + other.seconds)


def estimate(run: PlannedRun, speed: Speed) -> Cost:
    cost = Cost(0, 0.0)
    for entry in (catalog_entry(name) for name in run.datasets if name in PAPER_SETS):
        each = run.views * (speed.view + speed.encode)
        each += len(entry.classes) * len(run.methods) * speed.text
        count = entry.images * len(run.seeds)
        cost += Cost(count, count * each)
    return cost


def measure_speed(model: str) -> Speed:
    """Measure views, encoding and tuning of an architecture with random weights, small."""
    import numpy as np
    from PIL import Image

    from dtpt.clip.loading import load_model
    from dtpt.clip.model import random_clip
    from dtpt.methods import PAPER_METHODS, resolve_method
    from dtpt.prediction.predictor import Predictor
    from dtpt.views import ViewRecipe

    classes = [f"class number {index}" for index in range(MEASURED_CLASSES)]
    known = catalog().get(model)
    clip = random_clip(architecture(known.architecture)) if known else load_model(model)
    predictor = Predictor(clip, classes, recipe=ViewRecipe(count=MEASURED_VIEWS))
    methods = [resolve_method(name) for name in PAPER_METHODS]
    pixels = np.random.default_rng(0).integers(0, 255, (375, 500, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    view, rendered = _timed(lambda: predictor.render(image, methods=methods, seed=0))
    encode, features = _timed(lambda: predictor.features(rendered))
    text, _ = _timed(lambda: predictor.answer(features, methods))
    return Speed(
        view / MEASURED_VIEWS, encode / MEASURED_VIEWS, text / (MEASURED_CLASSES * len(methods))
    )


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the shorter of two timings, of which the first one warms up, and the result."""
    times = []
    for _ in range(2):
        started = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - started)
    return min(times), result


def duration_text(seconds: float) -> str:
    """Round an estimated time to whole minutes, hours, days, months or years.

    Example:
        >>> duration_text(30), duration_text(5 * 3600), duration_text(20784.4 * 86400)
        ('less than 2 minutes', 'about 5 hours', 'about 57 years')
    """
    units = {"years": 365 * 86400, "months": 30 * 86400, "days": 86400, "hours": 3600}
    for unit, size in {**units, "minutes": 60}.items():
        if seconds >= 2 * size:
            return f"about {round(seconds / size)} {unit}"
    return "less than 2 minutes"
