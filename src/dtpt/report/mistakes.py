"""The most confident mistakes, with their images where the data can still be opened."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from dtpt.data import Sample, load_dataset
from dtpt.errors import DtptError
from dtpt.methods import method_title
from dtpt.report.derived import chosen_variant
from dtpt.report.load import CellRows, Condition, Variant

SIDE = 264  # pixels of the longer side: twice the size on the page, for sharp screens
SHOWN = 12


@dataclass(frozen=True)
class Mistake:
    dataset: str
    sample: str
    truth: str
    predicted: str
    confidence: float
    untuned: str  # prediction of the untuned prompt
    untuned_confidence: float
    lambda_: float | None = None
    image: str = ""  # `data:` URI; empty when it cannot be opened


def mistaken_variants(condition: Condition) -> dict[str, Variant]:
    """Return, by data set, the variant whose mistakes are shown: D-TPT, else the last method."""
    methods = [variant.method for variant in condition.stored_variants()]
    method = "d-tpt" if "d-tpt" in methods else methods[-1]
    return {
        name: chosen_variant(condition, name, method=method)
        for name in condition.datasets
        if any(v.method == method for v in condition.stored_variants([name]))
    }


def mistakes_title(condition: Condition) -> str:
    """Name the method whose mistakes are shown, with its λ or how that was chosen."""
    variants = set(mistaken_variants(condition).values())
    first = variants.pop()
    return f"{method_title(first.method)} (λ leave-one-dataset-out)" if variants else first.title


def worst_mistakes(condition: Condition, *, data_root: Path | None = None) -> tuple[Mistake, ...]:
    """Return the most confident mistakes of a condition's shown method under its first seed."""
    classes: dict[str, tuple[str, ...]] = {}
    for source in condition.sources:
        classes |= source.classes
    found: list[Mistake] = []
    for name, variant in mistaken_variants(condition).items():
        cell = condition.cells.get((name, variant, condition.seeds[0]))
        if cell is not None:
            found += _of_cell(name, variant, cell=cell, classes=classes[name])
    ranked = sorted(found, key=lambda m: (-m.confidence, m.dataset, m.sample))[:SHOWN]
    return _with_images(ranked, condition, data_root=data_root)


def _of_cell(
    dataset: str, variant: Variant, *, cell: CellRows, classes: Sequence[str]
) -> list[Mistake]:
    wrong = cell.records[~cell.records["correct"]]
    worst = wrong[np.argsort(-wrong["confidence"], kind="stable")[:SHOWN]]
    return [
        Mistake(
            dataset,
            str(row["sample"]),
            _class_name(classes, int(row["label"])),
            _class_name(classes, int(row["prediction"])),
            float(row["confidence"]),
            _class_name(classes, int(row["zero_shot_prediction"])),
            max(float(row["zero_shot_confidence"]), 0.0),
            variant.lambda_,
        )
        for row in worst
    ]


def _class_name(names: Sequence[str], index: int) -> str:
    if index < 0:  # not stored
        return ""
    return names[index] if index < len(names) else f"class {index}"


def _with_images(
    mistakes: Sequence[Mistake], condition: Condition, *, data_root: Path | None
) -> tuple[Mistake, ...]:
    samples: dict[str, dict[str, Sample]] = {}
    found = []
    for mistake in mistakes:
        name = mistake.dataset
        if name not in samples:
            samples[name] = _samples(condition, name, data_root=data_root)
        sample = samples[name].get(mistake.sample)
        found.append(replace(mistake, image=_image(sample) if sample else ""))
    return tuple(found)


def _samples(condition: Condition, name: str, *, data_root: Path | None) -> dict[str, Sample]:
    """Load the samples of a data set by id; none when it is not on this machine."""
    presentation = condition.datasets[name].presentation
    try:
        data = load_dataset(name, data_root=data_root, presentation=presentation, partial=True)
    except DtptError:
        return {}
    return {sample.id: sample for sample in data.samples}


def _image(sample: Sample) -> str:
    try:
        return data_uri(sample.image.open())
    except DtptError:
        return ""


def data_uri(image: Image.Image) -> str:
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    small.save(stream, format="JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
