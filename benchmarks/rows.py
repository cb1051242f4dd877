"""How many bytes of a run's file a stored row takes.

Random logits (of spread 2.5, about CLIP's) of the paper's five methods go into stores as a run
writes them, for several numbers of classes, with all probabilities and with the five largest alone.
What is stored once per image is part of its five rows.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.measuring import Listed, Row, whole_numbers
from dtpt.methods import PAPER_METHODS
from dtpt.runs.answers import log_softmax
from dtpt.runs.probabilities import pack
from dtpt.runs.spec import DatasetSpec, MethodSpec, ModelSpec, RunSpec
from dtpt.runs.store import Answer, SampleInfo, Store

SPREAD = 2.5


def rows(*, classes: Listed = "10,100,1000", images: int = 400) -> Row:
    """Measure the bytes of a stored row, which are the same on every machine."""
    counts = whole_numbers(classes, "--classes")
    return {"rows": [measure(count, images=images) for count in counts]}


def measure(classes: int, *, images: int) -> Row:
    """Write the same predictions into two stores and compare the files."""
    generator = np.random.default_rng(0)
    logits = SPREAD * generator.standard_normal((images * len(PAPER_METHODS), classes))
    stored = [_row(row) for row in logits]
    return {
        "classes": classes,
        "probabilities": float(np.mean([len(row.log_probabilities or b"") for row in stored])),
        "row": _growth(stored),
        "row_top5": _growth([replace(row, log_probabilities=None) for row in stored]),
    }


def _row(logits: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Answer:
    logs = log_softmax(logits)
    p = np.exp(logs)
    order = [int(label) for label in np.argsort(-p)[:5]]
    return Answer(
        prediction=order[0],
        confidence=float(p[order[0]]),
        entropy=float(-(p * logs).sum()),
        p_label=float(p[0]),
        sum_squares=float((p * p).sum()),
        top5=tuple((label, float(np.float32(p[label]))) for label in order),
        zero_shot_prediction=order[0],
        zero_shot_confidence=float(p[order[0]]),
        log_probabilities=pack(logs),
        weight=1e5,
    )


def _growth(stored: list[Answer]) -> float:
    """Return by how many bytes a store grows with each row."""
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder:
        empty = _size(Path(folder) / "empty.sqlite", [])
        return (_size(Path(folder) / "full.sqlite", stored) - empty) / len(stored)


def _size(path: Path, stored: list[Answer]) -> int:
    """Write rows, image after image, and return the bytes of the file."""
    spec = _spec()
    cells = spec.cells()
    with Store(path, spec) as store:
        for start in range(0, len(stored), len(cells)):
            key = f"{start:064x}"  # as long as an image's hash
            info = SampleInfo("rows", f"class/{start:06d}.jpg", 0, image_key=key, stamp=key[:32])
            store.write(info, dict(zip(cells, stored[start : start + len(cells)], strict=True)))
    return path.stat().st_size


def _spec() -> RunSpec:
    methods = tuple(MethodSpec(name=name) for name in PAPER_METHODS)
    dataset = DatasetSpec(
        name="rows", fingerprint="", classes=0, samples=0, methods=methods, views={}
    )
    return RunSpec(
        model=ModelSpec(name="rows", fingerprint=""),
        datasets=(dataset,),
        seeds=(0,),
        template="{}",
        tuning={},
        code_version="",
    )
