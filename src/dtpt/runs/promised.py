"""Promises from the rows of a run: which cell, its labelled answers, and what they are about."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dtpt.calibration import (
    Basis,
    Labelled,
    Levels,
    Promise,
    SetKind,
    Splits,
    Subject,
    fit,
    random_splits,
    temperature_part,
)
from dtpt.calibration.words import promised, remarks
from dtpt.data.catalog import family_protocol
from dtpt.errors import PromiseError
from dtpt.methods import parse_label, resolve_method
from dtpt.methods.parse import VIEWS_AUTO

if TYPE_CHECKING:
    from dtpt.runs.reading import Run
    from dtpt.runs.spec import Cell


def one_cell(
    run: "Run", method: str, *, dataset: str | None = None, seed: int | None = None
) -> "Cell":
    """Return the one cell that is meant, or say between which to choose.

    A picture counts once: rows of several seeds are not independent of each other.

    Raises:
        PromiseError: none, or several.
    """
    found = run.select(dataset=dataset, method=method, seed=seed)
    if not found:
        known = ", ".join(dict.fromkeys(cell.label for cell in run.cells))
        raise PromiseError(
            f"{run.path} has no rows of {method} on {dataset or 'any set'}; it has {known} on "
            f"{', '.join(run.datasets)} with seeds {', '.join(map(str, run.spec.seeds))}."
        )
    for name, flag in (("dataset", "--dataset"), ("label", "--method"), ("seed", "--seed")):
        choices = list(dict.fromkeys(str(getattr(cell, name)) for cell in found))
        if len(choices) > 1:
            raise PromiseError(f"{run.path}: choose one with {flag}: {', '.join(choices)}.")
    return found[0]


def chosen_cell(
    run: "Run", method: str, *, dataset: str | None = None, seed: int | None = None
) -> tuple["Cell", str | None]:
    """Return the cell that is meant; of `+views=auto` the share that labelled rows choose.

    The choice is by log-likelihood, on the same rows as the temperature. Sets and threshold rest on
    the others.

    Returns:
        The cell, and in words what was chosen from what; None where nothing was.

    Raises:
        PromiseError: none, or several.
    """
    if VIEWS_AUTO not in parse_label(method).modifiers:
        return one_cell(run, method, dataset=dataset, seed=seed), None
    cells = [one_cell(run, name, dataset=dataset, seed=seed) for name in _shares_in(run, method)]
    if not cells:
        raise PromiseError(f"{run.path} has no rows of {method}: run `dtpt eval` with it.")
    losses = []
    for cell in cells:
        ids, rows = labelled(run, cell)
        early = rows.take(temperature_part(ids))
        logs = early.log_probabilities[np.arange(len(early)), early.labels].astype(np.float64)
        losses.append(-logs.mean())
    best = cells[int(np.argmin(losses))]
    return best, (
        f"{best.method}, of {len(cells)} shares, by log-likelihood on the {len(early)} pictures "
        "for the temperature"
    )


def _shares_in(run: "Run", method: str) -> list[str]:
    """Return the names of a method with `+views=auto` for which a run has cells."""
    wanted = parse_label(method)
    cells = [cell for cell in run.cells if wanted.matches(cell.method, cell.lambda_)]
    names = dict.fromkeys(parse_label(cell.method).name for cell in cells)
    return [str(parse_label(name).with_lambda(wanted.rule)) for name in names]


def checked_cells(
    run: "Run",
    methods: Sequence[str],
    *,
    splits: int,
    levels: Levels,
    dataset: str | None = None,
    seed: int | None = None,
) -> Iterator[tuple["Cell", Splits]]:
    """Yield, for every set and method, what random splits show; sets without rows are left out.

    Raises:
        PromiseError: half of the rows cannot carry a promise.
        RunError: rows were stored without all probabilities.
    """
    counts = run.counts()
    for name in run.datasets if dataset is None else (dataset,):
        for method in methods:
            cell = one_cell(run, method, dataset=name, seed=seed)
            if counts[cell][0]:
                _, rows = labelled(run, cell)
                yield cell, random_splits(rows, splits=splits, levels=levels)


def labelled(run: "Run", cell: "Cell") -> tuple[npt.NDArray[np.object_], Labelled]:
    """Return the ids (n,) and the labelled answers of a cell, by id.

    Raises:
        RunError: rows were stored without all probabilities.
    """
    ids, log_probabilities = run.probabilities(cell)
    rows = run.rows_of(cell)
    return ids, Labelled.of(log_probabilities, rows.labels, predictions=rows.predictions)


def subject_of(run: "Run", cell: "Cell") -> Subject:
    """Return what the rows of a cell are about.

    A λ that was found for them (`@auto`) counts like one that was given: found again from other
    pictures it would be another one.
    """
    spec, entry = run.spec, run.spec.dataset(cell.dataset)
    method = resolve_method(cell.label, protocol=family_protocol(entry.family))
    found = run.weights().get(cell)
    return Subject(
        model=spec.model.name,
        fingerprint=spec.model.fingerprint,
        precision=spec.precision,
        method=cell.method if found is None else parse_label(cell.method).name,
        lambda_=cell.lambda_ if found is None else found.value,
        learning_rate=method.learning_rate,
        template=spec.template,
        context=spec.context,
        classes=tuple(name.replace("_", " ") for name in run.classes(cell.dataset)),
        views=entry.views,
        tuning=spec.tuning,
    )


def promise_of(
    run: "Run",
    cell: "Cell",
    *,
    levels: Levels,
    sets: SetKind = "lac",
    choice: str | None = None,
) -> Promise:
    """Fit a promise to the rows of a cell; `choice` says how the cell was chosen, if it was.

    Raises:
        PromiseError: the rows cannot carry it; the message says why.
        RunError: rows were stored without all probabilities.
    """
    ids, rows = labelled(run, cell)
    first = temperature_part(ids)
    early, late = rows.take(first), rows.take(~first)
    found = fit(early, late, levels=levels)
    return Promise(
        subject=subject_of(run, cell),
        basis=Basis(
            dataset=cell.dataset,
            fingerprint=run.spec.dataset(cell.dataset).fingerprint,
            run=run.spec.hash,
            seed=cell.seed,
            pictures=len(rows),
            temperature_pictures=len(early),
            choice=choice,
        ),
        levels=levels,
        fit=found,
        sets=sets,
        promised=promised(found, levels, sets=sets, pictures=len(late)),
        remarks=remarks(early, late),
    )
