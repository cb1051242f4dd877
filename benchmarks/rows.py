"""How many bytes of a run's file a stored row takes, and how long it takes to check it.

Random logits (of spread 2.5, about CLIP's) of the paper's five methods go into stores as a run
writes them, for several numbers of classes, with all probabilities and with the five largest alone.
What is stored once per image is part of its five rows.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks import measuring
from benchmarks.measuring import Listed
from dtpt.methods import PAPER_METHODS, resolve_method
from dtpt.runs.integrity import problems_of_cell
from dtpt.runs.reading import Run
from dtpt.runs.rows import Row
from dtpt.runs.spec import DatasetSpec, MethodSpec, ModelSpec, RunSpec
from dtpt.runs.store import SampleRecord, Store
from dtpt.tuning import Outcome

SPREAD = 2.5
SPEC = RunSpec(
    model=ModelSpec(name="rows", fingerprint=""),
    datasets=(
        DatasetSpec(
            name="rows",
            fingerprint="",
            classes=0,
            samples=0,
            whole=0,
            methods=tuple(MethodSpec(name=name) for name in PAPER_METHODS),
            views={},
        ),
    ),
    seeds=(0,),
    template="{}",
    tuning={},
    code_version="",
)


def rows(*, classes: Listed = "10,100,1000", images: int = 400) -> measuring.Row:
    """Measure the bytes of a stored row, the same on every machine, and the time of its check."""
    counts = measuring.whole_numbers(classes, "--classes")
    return {"rows": [measure(count, images=images) for count in counts]}


def measure(classes: int, *, images: int) -> measuring.Row:
    """Write the same predictions into two stores and compare the files."""
    generator = np.random.default_rng(0)
    logits = SPREAD * generator.standard_normal((images * len(PAPER_METHODS), classes))
    stored = [_row(each) for each in torch.from_numpy(logits)]
    return {
        "classes": classes,
        "probabilities": float(np.mean([len(row.log_probabilities or b"") for row in stored])),
        "row": _growth(stored),
        "row_top5": _growth([replace(row, log_probabilities=None) for row in stored]),
        "check_us": 1e6 * _check_seconds(stored, classes) / len(stored),
    }


def _check_seconds(stored: list[Row], classes: int) -> float:
    """Return the processor time of checking every row, the best of three."""
    images = len(stored) // len(PAPER_METHODS)
    entry = SPEC.datasets[0].model_copy(update={"classes": classes, "samples": images})
    spec = SPEC.model_copy(update={"datasets": (entry,)})
    times = []
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder:
        path = Path(folder) / "run.sqlite"
        _size(path, stored, spec=spec)
        with Run(path, is_trusted=True) as run:
            for _ in range(3):
                started = time.process_time()
                problems = [text for cell in run.cells for text in problems_of_cell(run, cell)]
                times.append(time.process_time() - started)
                assert not problems, problems[0]
    return min(times)


def _row(logits: Tensor) -> Row:
    p, method = logits.softmax(dim=-1), resolve_method("d-tpt")
    return Row.from_outcome(Outcome(method, 1e5, logits, p, logits, logits, logits), 0)


def _growth(stored: list[Row]) -> float:
    """Return by how many bytes a store grows with each row."""
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder:
        empty = _size(Path(folder) / "empty.sqlite", [])
        return (_size(Path(folder) / "full.sqlite", stored) - empty) / len(stored)


def _size(path: Path, stored: list[Row], *, spec: RunSpec = SPEC) -> int:
    """Write rows, image after image, and return the bytes of the file."""
    cells = spec.cells()
    with Store(path, spec) as store, store.together():
        for start in range(0, len(stored), len(cells)):
            name, key = f"class/{start:06d}.jpg", f"{start:064x}"  # as long as an image's hash
            sample = SampleRecord(name, 0, cluster=name, image_key=key, stamp=key[:32])
            rows = zip(cells, stored[start : start + len(cells)], strict=True)
            store.write("rows", sample, rows=dict(rows))
    return path.stat().st_size
