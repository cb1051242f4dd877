"""The most confident mistakes, with their pictures where the data can still be opened."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from dtpt.data import Dataset, load_dataset
from dtpt.errors import DtptError
from dtpt.report.chosen_weights import chosen_contender
from dtpt.report.gathering.scored_cells import Condition, Contender, Source
from dtpt.runs.spec import Cell

SIDE = 264  # pixels of the longer side: twice the size on the page, for sharp screens


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that the model was sure of.

    Attributes:
        dataset: Name of the set.
        sample: Id of the picture.
        truth: Name of the true class.
        answer: Name of the predicted class.
        confidence: Fraction.
        untuned: What the untuned prompt says.
        untuned_confidence: Fraction.
        lambda_: Weight with which the answer was given, None without one.
        picture: `data:` URI of a small picture; empty when it cannot be opened.
    """

    dataset: str
    sample: str
    truth: str
    answer: str
    confidence: float
    untuned: str
    untuned_confidence: float
    lambda_: float | None = None
    picture: str = ""


def shown_method(condition: Condition) -> str:
    """Return the method whose mistakes are shown: D-TPT where it was run, else the last one."""
    methods = [contender.method for contender in condition.stored_contenders()]
    return "d-tpt" if "d-tpt" in methods else methods[-1]


def mistaken_contenders(condition: Condition) -> dict[str, Contender]:
    """Return, by data set, the method and the weight whose mistakes are shown."""
    method = shown_method(condition)
    return {
        name: chosen_contender(condition, name, method=method)
        for name in condition.datasets
        if any(c.method == method for c in condition.stored_contenders([name]))
    }


def worst_mistakes(
    condition: Condition, *, count: int = 12, data_root: Path | None = None
) -> list[Mistake]:
    """Return the most confident mistakes of a condition's shown method under its first seed.

    Pictures are opened through the data set; where that fails the mistake is listed without one.
    """
    wanted = {
        (name, contender.method, contender.lambda_)
        for name, contender in mistaken_contenders(condition).items()
    }
    found: list[Mistake] = []
    for source in condition.sources:
        for cell in source.run.select(seed=condition.seeds[0]):
            if (cell.dataset, cell.method, cell.lambda_) in wanted:
                found += _of_cell(source, cell, count=count)
    unique = {(m.dataset, m.sample): m for m in found}
    ranked = sorted(unique.values(), key=lambda m: (-m.confidence, m.dataset, m.sample))[:count]
    return _with_pictures(ranked, condition, data_root=data_root)


def _of_cell(source: Source, cell: Cell, *, count: int) -> list[Mistake]:
    names = source.classes[cell.dataset]
    rows = source.run.mistakes(cell, count)
    found = []
    for i, sample in enumerate(rows.ids):
        truth, answer, untuned = (
            _name(names, int(column[i]))
            for column in (rows.labels, rows.predictions, rows.zero_shot_predictions)
        )
        before = max(float(rows.zero_shot_confidence[i]), 0.0)
        sure = float(rows.confidence[i])
        found.append(
            Mistake(cell.dataset, sample, truth, answer, sure, untuned, before, cell.lambda_)
        )
    return found


def _name(names: Sequence[str], index: int) -> str:
    if index < 0:
        return ""
    return names[index] if 0 <= index < len(names) else f"class {index}"


def _with_pictures(
    mistakes: Sequence[Mistake], condition: Condition, *, data_root: Path | None
) -> list[Mistake]:
    opened: dict[str, Dataset | None] = {}
    result = []
    for mistake in mistakes:
        if mistake.dataset not in opened:
            entry = condition.datasets[mistake.dataset]
            opened[mistake.dataset] = _open(entry.name, entry.presentation, data_root=data_root)
        picture = _picture(opened[mistake.dataset], mistake.sample)
        result.append(replace(mistake, picture=picture))
    return result


def _open(name: str, presentation: str | None, *, data_root: Path | None) -> Dataset | None:
    """Load a data set, or None when it is not on this machine."""
    try:
        return load_dataset(name, data_root=data_root, presentation=presentation, partial=True)
    except DtptError:
        return None


def _picture(dataset: Dataset | None, sample_id: str) -> str:
    """Return one picture, made small, as a data URI; empty when it cannot be opened."""
    if dataset is None:
        return ""
    sample = next((s for s in dataset.samples if s.id == sample_id), None)
    if sample is None:
        return ""
    try:
        return data_uri(sample.image.open())
    except DtptError:
        return ""


def data_uri(image: Image.Image) -> str:
    """Return a picture, at most 264 pixels wide and high, as a JPEG in a data URI."""
    small = image.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    stream = io.BytesIO()
    small.save(stream, format="JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()
