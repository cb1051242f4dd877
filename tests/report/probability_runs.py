"""A run written by hand whose rows hold all their probabilities."""

from pathlib import Path

import numpy as np
from handmade import dataset, write_run

from dtpt.runs import open_run
from dtpt.runs.rows import Row, pack
from dtpt.runs.store import SampleRecord, Store

METHODS = (("zero-shot", None), ("d-tpt", 1e5), ("d-tpt", 1e6))
CLASSES = ("cat", "dog", "bird", "sea_lion")


def write_probabilities(
    folder: Path,
    *,
    samples=400,
    keep=True,
    seed=0,
    methods=METHODS,
    overconfidence=None,
    name="zoo",
    written=None,
    clusters=(),
    keys=(),
):
    """A run whose rows hold all probabilities, right about as often as they say.

    `overconfidence` has factors on the logits by method, where they are not 1; `written` is how
    many samples have rows, where not all; `clusters` and `keys` (of the content) are by sample.
    """
    factors = overconfidence or {}
    rng = np.random.default_rng(seed)
    logits = 5 * rng.normal(size=(samples, 4))
    labels = (logits + rng.gumbel(size=(samples, 4))).argmax(axis=1).tolist()
    run = write_run(
        folder,
        [dataset(name, samples=samples, methods=methods, classes=4)],
        lambda cell, index: (True, 0.5),
        done=lambda cell, index: "",
        classes=CLASSES,
        labels=labels,
    )
    with open_run(run) as empty:
        spec = empty.spec
    with Store(run / "run.sqlite", spec) as store:
        store.begin_session({"environment": {"threads": 1}})
        for index in range(samples if written is None else written):
            sample = SampleRecord(
                f"image-{index:05d}",
                label=labels[index],
                cluster=clusters[index] if clusters else "",
                image_key=keys[index] if keys else None,
            )
            said = {
                cell: answer(
                    factors.get(cell.method, 1.0) * logits[index],
                    label=labels[index],
                    keep=keep,
                    lambda_=cell.lambda_,
                )
                for cell in spec.cells()
            }
            store.write(name, sample, rows=said)
    return run


def answer(logits, *, label, keep, lambda_=None):
    log_p = logits - np.logaddexp.reduce(logits)
    p = np.exp(log_p)
    best = int(p.argmax())
    return Row(
        prediction=best,
        confidence=float(p[best]),
        entropy=float(-(p * log_p).sum()),
        p_label=float(p[label]),
        sum_squares=float((p * p).sum()),
        top5=f"[[{best},{float(p[best])}]]",
        zero_shot_prediction=best,
        zero_shot_confidence=float(p[best]),
        lambda_used=lambda_,
        log_probabilities=pack(log_p) if keep else None,
    )
