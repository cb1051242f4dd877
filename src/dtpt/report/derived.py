"""Rows derived from stored ones: a chosen λ and a fitted temperature, leave-one-dataset-out.

A temperature or a λ that is chosen on the images it is then shown on looks better than it is. So
both are chosen for each data set on the *other* sets of its family, by negative log-likelihood
(leave-one-dataset-out). A set alone in its family gets no temperature, and its λ is the default of
the method's authors where that was run, else the middle one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dtpt.data.catalog import family_protocol
from dtpt.errors import DtptError
from dtpt.methods import find_method, parse_label
from dtpt.metrics import fit_shared_temperature, tempered
from dtpt.report.load import (
    CellRows,
    Condition,
    LeaveOneOut,
    Loaded,
    LogProbabilities,
    Variant,
)

TPT = Variant("tpt")  # gets the temperature: its confidence is the one to correct
TEMPERED = Variant("tpt", derived="temperature")

Labelled = list[tuple[LogProbabilities, npt.NDArray[np.int64]]]
"""Log-probabilities (n, C) and labels (n,) under every seed."""


def with_derived_rows(loaded: Loaded, fitted: LeaveOneOut | None = None) -> Loaded:
    """Add the derived rows to all conditions, while their stores are open.

    `fitted` comes from another run on the same sets; when not given, the runs themselves are used.
    """
    conditions = tuple(_derive(condition, fitted) for condition in loaded.conditions)
    return replace(loaded, conditions=conditions)


def _derive(condition: Condition, fitted: LeaveOneOut | None) -> Condition:
    cells = dict(condition.cells)
    temperatures: dict[str, float] = {}
    lambdas: dict[str, dict[str, float]] = {}
    for family in condition.families:
        sets = condition.sets_of(family)
        tpt = {name: _labelled_tpt(condition, name) for name in sets}
        known = fitted or LeaveOneOut(_temperatures(tpt), _lambdas(condition, sets))
        for name in sets:
            for method, lambda_ in known.lambdas.get(name, {}).items():
                lambdas.setdefault(name, {})[method] = lambda_
                finished = condition.finished(name, Variant(method, lambda_))
                for seed, rows in zip(condition.seeds, finished, strict=False):
                    cells[name, Variant(method, derived="chosen"), seed] = rows
            if name in known.temperatures and tpt[name]:
                temperatures[name] = known.temperatures[name]
                for seed, (numbers, _) in zip(condition.seeds, tpt[name], strict=True):
                    rows = condition.cells[name, TPT, seed]
                    cells[name, TEMPERED, seed] = _tempered(rows, numbers, at=temperatures[name])
    return replace(condition, cells=cells, fitted=LeaveOneOut(temperatures, lambdas))


def _tempered(cell: CellRows, numbers: LogProbabilities, *, at: float) -> CellRows:
    """Return rows with the same predictions and the confidence of a temperature."""
    made = tempered(numbers, cell.records["label"], temperature=at)
    records = cell.records.copy()
    for name in ("confidence", "p_label", "sum_squares"):
        records[name] = getattr(made, name)
    return replace(cell, records=records)


def _labelled_tpt(condition: Condition, name: str) -> Labelled:
    """Read TPT's log-probabilities under every seed; nothing where some are not stored."""
    labelled: Labelled = []
    for seed, rows in zip(condition.seeds, condition.finished(name, TPT), strict=False):
        numbers = condition.log_probabilities((name, TPT, seed))
        if numbers is None:
            return []
        labelled.append((numbers, rows.records["label"]))
    return labelled


def _temperatures(tpt: Mapping[str, Labelled]) -> dict[str, float]:
    if len(tpt) < 2 or not all(tpt.values()):
        return {}
    return {
        name: fit_shared_temperature([p for other in tpt if other != name for p in tpt[other]])
        for name in tpt
    }


def _lambdas(condition: Condition, sets: Sequence[str]) -> dict[str, dict[str, float]]:
    """Choose λ for each set and every method that was run with several on the whole family."""
    lambdas: dict[str, dict[str, float]] = {}
    stored = condition.stored_variants(sets)
    for method in dict.fromkeys(v.method for v in stored if v.lambda_ is not None):
        variants = [variant for variant in stored if variant.method == method]
        losses = [mean_loss(condition, sets, variant=variant) for variant in variants]
        if len(sets) > 1 and len(variants) > 1 and None not in losses:
            for name in sets:
                lambda_ = chosen_variant(condition, name, method=method).lambda_
                lambdas.setdefault(name, {})[method] = lambda_ or 0.0
    return lambdas


def shown_variants(condition: Condition, dataset: str) -> tuple[Variant, ...]:
    """Return the finished stored variants of a data set, each method at one λ."""
    finished = [v for v in condition.stored_variants([dataset]) if condition.finished(dataset, v)]
    methods = dict.fromkeys(variant.method for variant in finished)
    return tuple(chosen_variant(condition, dataset, method=name) for name in methods)


def chosen_variant(condition: Condition, dataset: str, *, method: str) -> Variant:
    """Return a method at the λ that is shown for a data set, a finished one if there is any."""
    family = condition.datasets[dataset].family
    stored = [v for v in condition.stored_variants([dataset]) if v.method == method]
    own = [v for v in stored if condition.finished(dataset, v)] or stored
    if len(own) == 1:
        return own[0]
    others = [name for name in condition.sets_of(family) if name != dataset]
    losses = {variant: mean_loss(condition, others, variant=variant) for variant in own}
    known = {variant: loss for variant, loss in losses.items() if loss is not None}
    if len(known) == len(own):
        return min(known, key=lambda variant: known[variant])
    return _usual(own, family)


def mean_loss(condition: Condition, datasets: Iterable[str], *, variant: Variant) -> float | None:
    """Return the negative log-likelihood over all images and seeds; None unless all is finished."""
    cells = [condition.finished(name, variant) for name in datasets]
    if not cells or not all(cells):
        return None
    flat = [cell for row in cells for cell in row]
    losses = [cell.metric("nll") for cell in flat]
    return float(np.average(losses, weights=[cell.effective for cell in flat]))


def _usual(variants: Sequence[Variant], family: str) -> Variant:
    """Return the variant with its authors' λ, else the middle one."""
    ordered = sorted(variants, key=lambda variant: variant.lambda_ or 0.0)
    try:
        base = parse_label(ordered[0].method).base
        default = find_method(base).lambdas[family_protocol(family)]
    except (DtptError, KeyError):
        default = None
    usual = [variant for variant in ordered if variant.lambda_ == default]
    return usual[0] if usual else ordered[len(ordered) // 2]
