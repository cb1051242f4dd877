"""`dtpt bench rows`: how many bytes of a run's file a stored row takes.

Random answers (logits of spread 2.5, about CLIP's) of the paper's five methods go into stores as a
run writes them, for several numbers of classes, with all probabilities and with the five largest
alone. What is stored once per picture is part of its five rows.
"""

import json as json_format
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from dtpt.bench.options import Json, whole_numbers
from dtpt.runs.answers import log_softmax

from dtpt.methods import PAPER_METHODS
from dtpt.runs.rows import pack
from dtpt.runs.spec import DatasetSpec, MethodSpec, ModelSpec, RunSpec
from dtpt.runs.store import Answer, SampleInfo, Store

SPREAD = 2.5


@dataclass(frozen=True)
class RowSize:
    """Bytes of one row.

    Attributes:
        classes: Number of classes.
        probabilities: All log-probabilities, as packed.
        row: By which the file grows with each row (`--keep all`).
        row_top5: The same without them (`--keep top5`).
    """

    classes: int
    probabilities: float
    row: float
    row_top5: float


def bench_rows(
    *,
    classes: Annotated[str, Parameter(help="Numbers of classes, comma-separated.")] = "10,100,1000",
    pictures: Annotated[int, Parameter(help="Pictures of each store, five rows each.")] = 400,
    json: Json = False,
) -> None:
    """Measure the bytes of a stored row, which are the same on every machine."""
    found = [measure(count, pictures=pictures) for count in whole_numbers(classes, "--classes")]
    if json:
        print(json_format.dumps({"rows": [asdict(size) for size in found]}, indent=1))
        return
    for size in found:
        print(
            f"{size.classes:5d} classes: {size.row:5.0f} bytes, {size.probabilities:5.0f} of them "
            f"for all probabilities; {size.row_top5:.0f} with --keep top5"
        )


def measure(classes: int, *, pictures: int = 400) -> RowSize:
    """Write the same answers into two stores and look at the files.

    Example:
        >>> size = measure(100, pictures=20)
        >>> size.row_top5 < size.row
        True
    """
    generator = np.random.default_rng(0)
    logits = SPREAD * generator.standard_normal((pictures * len(PAPER_METHODS), classes))
    answers = [_answer(row) for row in logits]
    few = [replace(answer, log_probabilities=None) for answer in answers]
    packed = [len(answer.log_probabilities or b"") for answer in answers]
    return RowSize(classes, float(np.mean(packed)), _growth(answers), _growth(few))


def _answer(logits: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Answer:
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


def _growth(answers: list[Answer]) -> float:
    """Return by how many bytes a store grows with each row."""
    with tempfile.TemporaryDirectory(prefix="dtpt-bench-") as folder:
        empty = _size(Path(folder) / "empty.sqlite", [])
        return (_size(Path(folder) / "full.sqlite", answers) - empty) / len(answers)


def _size(path: Path, answers: list[Answer]) -> int:
    """Write answers, picture after picture, and return the bytes of the file."""
    spec = _spec()
    cells = spec.cells()
    with Store(path, spec) as store:
        for start in range(0, len(answers), len(cells)):
            key = f"{start:064x}"  # as long as a picture's hash
            info = SampleInfo("rows", f"class/{start:06d}.jpg", 0, image_key=key, stamp=key[:32])
            store.write(info, dict(zip(cells, answers[start : start + len(cells)], strict=True)))
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
