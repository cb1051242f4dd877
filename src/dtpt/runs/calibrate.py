"""Calibrations from the rows of a run: which cell, its labelled predictions, its setup."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dtpt.calibration import (
    Calibration,
    LabelledPredictions,
    Provenance,
    SetKind,
    Setup,
    SplitCheck,
    Targets,
    check_splits,
    fit,
)
from dtpt.calibration.checking import temperature_effect
from dtpt.calibration.drift import confidence_counts
from dtpt.calibration.fitting import Scored, temperature_part
from dtpt.calibration.statements import assumption, guarantees, notes
from dtpt.errors import CalibrationError
from dtpt.methods import parse_label, resolve_method
from dtpt.methods.parse import VIEWS_AUTO

if TYPE_CHECKING:
    from dtpt.runs.reading import Run
    from dtpt.runs.spec import Cell, RunSpec


def one_cell(
    run: "Run", method: str, *, dataset: str | None = None, seed: int | None = None
) -> "Cell":
    """Return the only matching cell; raise `CalibrationError` for none or several.

    An image counts once: rows of several seeds are not independent of each other.
    """
    cells = run.select(dataset=dataset, method=method, seed=seed)
    if not cells:
        labels = ", ".join(dict.fromkeys(cell.label for cell in run.cells))
        raise CalibrationError(
            f"{run.path} has no rows of {method} on {dataset or 'any set'}; it has {labels} on "
            f"{', '.join(run.datasets)} with seeds {', '.join(map(str, run.spec.seeds))}."
        )
    if any(cell.order is not None for cell in cells):
        raise CalibrationError(
            f"{method} cannot be calibrated: its predictions depend on the images before them, so "
            "they are not exchangeable with new ones, which every guarantee needs."
        )
    for name, flag in (("dataset", "--dataset"), ("label", "--method"), ("seed", "--seed")):
        choices = list(dict.fromkeys(str(getattr(cell, name)) for cell in cells))
        if len(choices) > 1:
            raise CalibrationError(f"{run.path}: choose one with {flag}: {', '.join(choices)}.")
    return cells[0]


def select_cell(
    run: "Run", method: str, *, dataset: str | None = None, seed: int | None = None
) -> tuple["Cell", str | None]:
    """Return the matching cell, and how it was selected if it was.

    `+views=auto` selects the fraction of views by log-likelihood, on the same rows as the
    temperature; sets and threshold rest on the others.
    """
    wanted = parse_label(method)
    if VIEWS_AUTO not in wanted.modifiers:
        return one_cell(run, method, dataset=dataset, seed=seed), None
    matching = [cell for cell in run.cells if wanted.matches(cell.method, cell.lambda_)]
    names = dict.fromkeys(parse_label(cell.method).name for cell in matching)
    labels = [str(parse_label(name).with_lambda(wanted.rule)) for name in names]
    cells = [one_cell(run, label, dataset=dataset, seed=seed) for label in labels]
    if not cells:
        raise CalibrationError(f"{run.path} has no rows of {method}: run `dtpt eval` with it.")
    losses = []
    for cell in cells:
        clusters, rows = labelled_predictions(run, cell)
        early = rows.take(temperature_part(clusters))
        logs = early.log_probabilities[np.arange(len(early)), early.labels].astype(np.float64)
        losses.append(-logs.mean())
    best = cells[int(np.argmin(losses))]
    return best, (
        f"{best.method}, of {len(cells)} fractions of views, by log-likelihood on the "
        f"{len(early)} images for the temperature"
    )


def check_cells(
    run: "Run",
    methods: Sequence[str],
    *,
    splits: int,
    targets: Targets,
    dataset: str | None = None,
    seed: int | None = None,
) -> Iterator[tuple["Cell", SplitCheck]]:
    """Yield what random splits show for every data set and method."""
    for name in run.datasets if dataset is None else (dataset,):
        for method in methods:
            cell = one_cell(run, method, dataset=name, seed=seed)
            _, rows = labelled_predictions(run, cell)
            yield cell, check_splits(rows, splits=splits, targets=targets)


def labelled_predictions(
    run: "Run", cell: "Cell"
) -> tuple[npt.NDArray[np.object_], LabelledPredictions]:
    """Return the clusters (n,) and the labelled predictions of a cell, by sample id.

    Raises:
        CalibrationError: images are missing. Work goes in the order of the classes, so the images
            of an unfinished run are not a random part of the data set.
        RunError: rows were stored without all probabilities.
    """
    if text := run.unfinished(cell):
        raise CalibrationError(text)
    _, log_probabilities = run.probabilities(cell)
    rows = run.rows_of(cell)
    clusters = rows.cluster
    return clusters, LabelledPredictions.of(
        log_probabilities, rows.label, predictions=rows.prediction, clusters=clusters
    )


def setup_of(run: "Run", cell: "Cell") -> Setup:
    """Return the setup of a cell.

    A λ that was selected for it (`@auto`) counts like one that was given: selected again from other
    images it would be another one.
    """
    selected = run.lambdas().get(cell)
    value = None if selected is None else selected.value
    return cell_setup(run.spec, cell, classes=run.classes(cell.dataset), selected=value)


def cell_setup(
    spec: "RunSpec", cell: "Cell", *, classes: Sequence[str], selected: float | None = None
) -> Setup:
    """Return the setup of a cell of a run, given the classes of its data set and a selected λ."""
    entry = spec.dataset(cell.dataset)
    method = resolve_method(cell.label, protocol=entry.protocol)
    return Setup(
        model=spec.model.name,
        fingerprint=spec.model.fingerprint,
        precision=spec.precision,
        method=cell.method if selected is None else parse_label(cell.method).name,
        lambda_=cell.lambda_ if selected is None else selected,
        learning_rate=method.learning_rate,
        template=spec.template,
        context=spec.context,
        classes=tuple(name.replace("_", " ") for name in classes),
        views={**entry.views, **method.own_views},
        tuning=spec.tuning,
    )


def calibrate_cell(
    run: "Run",
    cell: "Cell",
    *,
    targets: Targets,
    sets: SetKind = "lac",
    selection: str | None = None,
) -> Calibration:
    """Fit a calibration to the rows of a cell; `selection` from `select_cell`.

    Raises:
        CalibrationError: the run is unfinished, or its rows do not allow the targets.
        RunError: rows were stored without all probabilities.
    """
    clusters, rows = labelled_predictions(run, cell)
    first, entry = temperature_part(clusters), run.spec.dataset(cell.dataset)
    early, late = rows.take(first), rows.take(~first)
    fitted = fit(early, late, targets=targets)
    at_temperature = Scored.of(rows, fitted.temperature).confidence
    noun = entry.cluster_noun if rows.cluster_count < len(rows) else "images"
    failed = entry.samples - len(rows)
    unread = [f"{failed:,} of {entry.samples:,} images could not be read."] if failed else []
    return Calibration(
        setup=setup_of(run, cell),
        provenance=Provenance(
            dataset=cell.dataset,
            fingerprint=entry.fingerprint,
            run=run.spec.hash,
            seed=cell.seed,
            images=len(rows),
            temperature_images=len(early),
            clusters=rows.cluster_count,
            temperature_clusters=early.cluster_count,
            cluster_noun=noun,
            selection=selection,
        ),
        targets=targets,
        fit=fitted,
        sets=sets,
        guarantees=guarantees(fitted, targets, sets=sets, tested=late, noun=noun),
        assumption=assumption(rows, noun=noun),
        notes=(*unread, *notes(early, late, fitted=fitted, targets=targets, noun=noun)),
        before_and_after=temperature_effect(late, fitted.temperature),
        confidences=tuple(confidence_counts(at_temperature).tolist()),
    )
