"""Single images: what each method does to one, and the most confident mistakes."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dtpt.data import Sample, load_dataset
from dtpt.errors import DtptError
from dtpt.methods import method_title
from dtpt.report.derived import chosen_variant
from dtpt.report.load import Condition, Variant
from dtpt.tables import Table, text_table

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
    classes = {n: names for source in condition.sources for n, names in source.classes.items()}
    mistakes: list[Mistake] = []
    for name, variant in mistaken_variants(condition).items():
        cell = condition.cells.get((name, variant, condition.seeds[0]))
        if cell is not None:
            wrong = cell.records[~cell.records["correct"]]
            worst = wrong[np.argsort(-wrong["confidence"], kind="stable")[:SHOWN]]
            mistakes += [_mistake(name, row, classes[name]) for row in worst]
    worst_first = sorted(mistakes, key=lambda m: (-m.confidence, m.dataset, m.sample))[:SHOWN]
    samples = {
        name: _samples(condition, name, data_root=data_root)
        for name in {mistake.dataset for mistake in worst_first}
    }
    return tuple(replace(m, image=_image(samples[m.dataset].get(m.sample))) for m in worst_first)


def example_table(condition: Condition, dataset: str, *, sample: str) -> Table | None:
    """Return what each method answers on one image; None where no method has a row of it."""
    seed, rows, truth = condition.seeds[0], [], ""
    classes = {n: names for source in condition.sources for n, names in source.classes.items()}
    for variant in condition.stored_variants([dataset]):
        cell = condition.cells.get((dataset, variant, seed))
        for row in cell.records[cell.records["sample"] == sample] if cell is not None else ():
            truth = classes[dataset][row["label"]]
            numbers = (f"{100 * row[name]:.1f}" for name in ("confidence", "p_label"))
            rows.append((variant.title, classes[dataset][row["prediction"]], *numbers))
    heads = ("Method", "Prediction", "Confidence (%)", f"Probability of “{truth}” (%)")
    return text_table("", heads, rows=rows) if rows else None


def _mistake(dataset: str, row: np.void, classes: Sequence[str]) -> Mistake:
    truth, predicted, untuned = (
        classes[row[name]] if 0 <= row[name] < len(classes) else ""  # below 0: not stored
        for name in ("label", "prediction", "zero_shot_prediction")
    )
    return Mistake(
        dataset,
        str(row["sample"]),
        truth,
        predicted,
        float(row["confidence"]),
        untuned,
        max(float(row["zero_shot_confidence"]), 0.0),
    )


def _samples(condition: Condition, name: str, *, data_root: Path | None) -> dict[str, Sample]:
    """Load the samples of a data set by id; none when it is not on this machine."""
    presentation = condition.datasets[name].presentation
    try:
        data = load_dataset(name, data_root=data_root, presentation=presentation, partial=True)
    except DtptError:
        return {}
    return {sample.id: sample for sample in data.samples}


def _image(sample: Sample | None) -> str:
    """Return a small JPEG as `data:` URI; nothing where there is no image to open."""
    try:
        small = sample.image.open().convert("RGB") if sample else None
    except DtptError:
        small = None
    if small is None:
        return ""
    small.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    small.save(stream, format="JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
