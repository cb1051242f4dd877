"""Runs written by hand through the store, so that every expected number is known."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from dtpt.data import fingerprint as fingerprint_of
from dtpt.runs.rows import Row, pack
from dtpt.runs.shards import MAIN_STORE
from dtpt.runs.spec import Cell, DatasetSpec, MethodSpec, ModelSpec, RunSpec
from dtpt.runs.store import SampleRecord, Store

TUNING = {
    "steps": 1,
    "learning_rate": 0.005,
    "weight_decay": 0.01,
    "rho": 0.1,
    "entropy": "of-mean",
}
NAME = "image-{:05d}"
SESSION = MappingProxyType({"environment": {"torch": "none", "threads": 1}})
FIVE = (("zero-shot", None), ("tpt", None), ("c-tpt", 50.0), ("o-tpt", 18.0), ("d-tpt", 1e5))

SHIFTED = (("zero-shot", None), ("tpt", None), ("c-tpt", 20.0), ("o-tpt", 2.0), ("d-tpt", 1e5))

Says = Callable[[Cell, int], tuple[bool, float]]
"""Whether the prediction of image i of a cell is right, and its confidence."""


def dataset(
    name: str = "pets",
    *,
    samples: int = 4,
    family: str = "fine-grained",
    methods: Sequence[tuple[str, float | None]] = FIVE,
    limit: int | None = None,
    whole: int | None = None,
    classes: int = 3,
) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        fingerprint="",  # see `write_run`
        classes=classes,
        samples=samples,
        whole=samples if whole is None else whole,
        family=family,
        limit=limit,
        methods=tuple(MethodSpec(name=m, lambda_=lambda_) for m, lambda_ in methods),
        views={"count": 64, "augmix": True},
    )


def write_run(
    folder: Path,
    datasets: Sequence[DatasetSpec],
    says: Says,
    *,
    model: str = "tiny",
    seeds: Sequence[int] = (0,),
    template: str = "a photo of a {}.",
    context: str | None = None,
    tuning: Mapping[str, object] = TUNING,
    done: Callable[[Cell, int], str] = lambda cell, index: "ok",
    classes: Sequence[str] = ("cat", "dog", "bird"),
    file: str = MAIN_STORE,
    session: Mapping[str, object] = SESSION,
    notes: Mapping[str, Sequence[str]] = MappingProxyType({}),
    keep: bool = True,
    precision: str = "float32",
    batch: int = 1,
    names: Sequence[str] = (),
    labels: Sequence[int] = (),
    cluster: int = 1,
) -> Path:
    """Write one store; `done` says per row whether it is "ok", "failed" or "" (not there yet).

    `cluster` images in a row are one cluster.
    """
    signed = [_with_fingerprint(entry, classes, names, labels) for entry in datasets]
    spec = RunSpec(
        model=ModelSpec(name=model, fingerprint=f"{model}-weights"),
        datasets=tuple(signed),
        seeds=tuple(seeds),
        template=template,
        context=context,
        tuning=dict(tuning),
        precision=precision,
        batch=batch,
        code_version="test",
    )
    with Store(folder / file, spec) as store:
        store.begin_session(dict(session))
        for name, texts in notes.items():
            store.write_notes(name, texts)
        for entry in datasets:
            store.write_classes(entry.name, classes)
            cells = [cell for cell in spec.cells() if cell.dataset == entry.name]
            for index in range(entry.samples):
                name = names[index] if names else NAME.format(index)
                group = f"cluster-{index // cluster}" if cluster > 1 else ""
                _write_sample(store, entry, cells, index, says, done, keep, name, group)
    return folder


def _with_fingerprint(entry, classes, names, labels) -> DatasetSpec:
    samples = [
        SampleRecord(
            names[index] if names else NAME.format(index),
            labels[index] if labels else index % entry.classes,
        )
        for index in range(entry.samples if entry.limit is None else entry.whole)
    ]
    return entry.model_copy(update={"fingerprint": fingerprint_of(classes, samples)})


def _write_sample(store, entry, cells, index, says, done, keep, name, cluster) -> None:
    sample = SampleRecord(name, label=index % entry.classes, cluster=cluster)
    states = {cell: done(cell, index) for cell in cells}
    answers = {
        cell: answer(
            sample.label, *says(cell, index), classes=entry.classes, keep=keep, lambda_=cell.lambda_
        )
        for cell, state in states.items()
        if state == "ok"
    }
    if answers:
        store.write(entry.name, sample, rows=answers)
    failed = [cell for cell, state in states.items() if state == "failed"]
    if failed:
        store.write_failure(entry.name, sample, cells=failed, reason="truncated file")


def answer(
    label: int,
    correct: bool,
    confidence: float,
    *,
    classes: int = 3,
    keep: bool = True,
    lambda_: float | None = None,
) -> Row:
    """The answer of a model that spreads what is left evenly over the other classes."""
    prediction = label if correct else (label + 1) % classes
    rest = (1 - confidence) / max(classes - 1, 1)
    squares = confidence**2 + (classes - 1) * rest**2
    probabilities = np.full(classes, max(rest, 1e-300))
    probabilities[prediction] = confidence
    return Row(
        prediction=prediction,
        confidence=confidence,
        entropy=0.5,
        p_label=confidence if correct else rest,
        sum_squares=squares,
        top5=f"[[{prediction},{confidence}]]",
        zero_shot_prediction=label,
        zero_shot_confidence=0.5,
        lambda_used=lambda_,
        log_probabilities=pack(np.log(probabilities)) if keep else None,
    )


def random_says(seed: int = 0, *, overconfidence: float = 0.15) -> Says:
    """Plausible answers: right with a probability a little below the confidence."""

    def says(cell: Cell, index: int) -> tuple[bool, float]:
        generator = np.random.default_rng([seed, cell.key % 2**32, index])
        confidence = float(np.clip(generator.beta(3, 1.5), 0.34, 0.999))
        shift = {"zero-shot": 0.02, "tpt": overconfidence, "d-tpt": 0.01}.get(cell.method, 0.05)
        return bool(generator.random() < confidence - shift), confidence

    return says


def write_five(folder: Path) -> Path:
    """Two sets of each family, five methods, two seeds, plausible answers."""
    sets = [dataset(name, samples=40, methods=FIVE) for name in ("pets", "cars")]
    sets += [
        dataset(name, samples=40, family="natural-shifts", methods=SHIFTED)
        for name in ("sketches", "renditions")
    ]
    return write_run(folder, sets, random_says(), seeds=(0, 1))
