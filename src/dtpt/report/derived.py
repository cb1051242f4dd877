"""Rows derived from stored ones: what was selected or fitted, leave-one-dataset-out.

A temperature, a λ or a fraction of views that is selected on the images it is then shown on looks
better than it is. So each is selected for a data set on the *other* sets of its family, by negative
log-likelihood (leave-one-dataset-out). A set alone in its family gets no temperature and no
fraction, and its λ is the default of the method's authors where that was run, else the middle one.
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
FRACTION = Variant("mean-views", derived="fraction")

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
    selected: dict[str, dict[str, Variant]] = {}
    for family in condition.families:
        sets = condition.sets_of(family)
        tpt = {name: _labelled_tpt(condition, name) for name in sets}
        known = fitted or LeaveOneOut(_temperatures(tpt), _selected(condition, sets))
        derived = {variant.label: variant for variant in _candidates(condition, sets)}
        for name in sets:
            for label, stored in known.variants.get(name, {}).items():
                finished = condition.finished(name, stored) if label in derived else ()
                for seed, rows in zip(condition.seeds, finished, strict=False):
                    cells[name, derived[label], seed] = rows
                    selected.setdefault(name, {})[label] = stored
            if name in known.temperatures and tpt[name]:
                temperatures[name] = known.temperatures[name]
                for seed, (numbers, _) in zip(condition.seeds, tpt[name], strict=True):
                    rows = condition.cells[name, TPT, seed]
                    cells[name, TEMPERED, seed] = _tempered(rows, numbers, at=temperatures[name])
    return replace(condition, cells=cells, fitted=LeaveOneOut(temperatures, selected))


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


def _candidates(condition: Condition, sets: Sequence[str]) -> dict[Variant, list[Variant]]:
    """Return every row that is selected among stored ones, with those."""
    stored, candidates = condition.stored_variants(sets), dict[Variant, list[Variant]]()
    for variant in stored:
        if variant.lambda_ is not None:
            row = Variant(variant.method, derived="chosen")
            candidates.setdefault(row, []).append(variant)
    candidates[FRACTION] = [variant for variant in stored if variant.is_mean_of_views]
    return candidates


def _selected(condition: Condition, sets: Sequence[str]) -> dict[str, dict[str, Variant]]:
    """Select for each set among the variants that were run on the whole family."""
    selected: dict[str, dict[str, Variant]] = {name: {} for name in sets}
    for row, variants in _candidates(condition, sets).items():
        losses = [mean_loss(condition, sets, variant=variant) for variant in variants]
        if len(sets) > 1 and len(variants) > 1 and None not in losses:
            for name in sets:
                best = _best_elsewhere(condition, name, variants)
                selected[name] |= {} if best is None else {row.label: best}
    return selected


def _best_elsewhere(
    condition: Condition, dataset: str, variants: Sequence[Variant]
) -> Variant | None:
    """Return the variant with the lowest loss on the other sets of the family, if all have one."""
    family = condition.datasets[dataset].family
    others = [name for name in condition.sets_of(family) if name != dataset]
    losses = {variant: mean_loss(condition, others, variant=variant) for variant in variants}
    known = {variant: loss for variant, loss in losses.items() if loss is not None}
    if len(known) < len(variants):
        return None
    return min(known, key=lambda variant: known[variant])


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
    return _best_elsewhere(condition, dataset, own) or _usual(own, family)


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
