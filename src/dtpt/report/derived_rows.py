"""Rows that are computed from stored ones: a temperature, and a weight chosen on other data sets.

A temperature or a λ that is picked on the pictures it is then shown on looks better than it is. So
both are fitted for each data set on the *other* sets of its family, by negative log-likelihood; a
set that stands alone gets neither.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dtpt.errors import RunError
from dtpt.metrics import fit_shared_temperature, tempered
from dtpt.report.chosen_weights import chosen_contender, mean_loss
from dtpt.report.gathering.scored_cells import Condition, Contender, Gathered, ScoredCell
from dtpt.runs.spec import Cell

TEMPERED = "tpt"
"""The method that gets a temperature: the one whose confidence is to be repaired."""

Cells = dict[tuple[str, Contender, int], ScoredCell]


@dataclass(frozen=True)
class FittedElsewhere:
    """What was fitted for each data set on others than itself.

    Attributes:
        temperatures: Temperature by data set.
        weights: λ by (method, data set).
    """

    temperatures: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[tuple[str, str], float] = field(default_factory=dict)


def with_derived_rows(gathered: Gathered, fitted: FittedElsewhere | None = None) -> Gathered:
    """Add the derived rows to all conditions.

    Args:
        gathered: Its stores must be open: temperatures need the stored probabilities.
        fitted: From another run on the same sets; fitted on the runs themselves when not given.
    """
    conditions = tuple(
        replace(c, cells={**c.cells, **_derived_cells(c, fitted or fit_elsewhere(c))})
        for c in gathered.conditions
    )
    return replace(gathered, conditions=conditions)


def fit_elsewhere(condition: Condition) -> FittedElsewhere:
    """Fit temperature and weights for every data set on the other sets of its family."""
    temperatures: dict[str, float] = {}
    weights: dict[tuple[str, str], float] = {}
    for family in condition.families:
        sets = condition.sets_of(family)
        if len(sets) > 1:
            temperatures |= _temperatures(condition, sets)
            weights |= _weights(condition, sets)
    return FittedElsewhere(temperatures, weights)


def _temperatures(condition: Condition, sets: Sequence[str]) -> dict[str, float]:
    """Return the temperature for each set; none where probabilities are not stored."""
    parts = {name: _labelled_log_probabilities(condition, name) for name in sets}
    if not all(parts.values()):
        return {}
    return {
        name: fit_shared_temperature([p for other in sets if other != name for p in parts[other]])
        for name in sets
    }


def _weights(condition: Condition, sets: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the λ for each set of every method that was run with several."""
    stored = condition.stored_contenders(sets)
    found = {}
    for method in dict.fromkeys(c.method for c in stored if c.lambda_ is not None):
        variants = [c for c in stored if c.method == method]
        known = [mean_loss(condition, sets, contender=variant) for variant in variants]
        if len(variants) > 1 and None not in known:
            for name in sets:
                weight = chosen_contender(condition, name, method=method).lambda_
                found[method, name] = weight or 0.0
    return found


def _derived_cells(condition: Condition, fitted: FittedElsewhere) -> Cells:
    cells: Cells = {}
    for (method, name), weight in fitted.weights.items():
        if name in condition.datasets:
            new = Contender(method, derived="chosen")
            for cell in condition.finished(name, Contender(method, weight)):
                cells[name, new, cell.seed] = replace(cell, contender=new)
    new = Contender(TEMPERED, derived="temperature")
    for name, temperature in fitted.temperatures.items():
        if name in condition.datasets:
            for cell in condition.finished(name, Contender(TEMPERED)):
                made = _tempered_cell(condition, cell, temperature=temperature)
                cells |= {(name, new, cell.seed): replace(made, contender=new)} if made else {}
    return cells


def _tempered_cell(
    condition: Condition, cell: ScoredCell, *, temperature: float
) -> ScoredCell | None:
    """Return a cell whose answers stay and whose confidence is that of a temperature."""
    numbers = log_probabilities(condition, cell)
    if numbers is None:
        return None
    made = tempered(numbers, cell.records["label"], temperature=temperature)
    records = cell.records.copy()
    for name in ("confidence", "p_label", "sum_squares"):
        records[name] = getattr(made, name)
    return replace(cell, records=records)


def _labelled_log_probabilities(
    condition: Condition, name: str
) -> list[tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    """Return log-probabilities and labels of the tempered method under each seed, or nothing."""
    found = []
    for cell in condition.finished(name, Contender(TEMPERED)):
        numbers = log_probabilities(condition, cell)
        if numbers is None:
            return []
        found.append((numbers, cell.records["label"]))
    return found


def log_probabilities(condition: Condition, cell: ScoredCell) -> npt.NDArray[np.float32] | None:
    """Return (n, C) log-probabilities in the order of a cell's rows; None where not stored."""
    contender = cell.contender
    key = Cell(
        cell.dataset, contender.method, contender.lambda_, cell.seed, template=condition.template
    )
    runs = [source.run for source in condition.sources if key in source.run.cells]
    try:
        parts = [run.probabilities(key) for run in runs]
    except RunError:  # stored without all probabilities
        return None
    if not parts:
        return None
    ids = np.concatenate([names for names, _ in parts])
    unique, first = np.unique(ids.astype(np.str_), return_index=True)
    if not np.array_equal(unique, cell.records["sample"].astype(np.str_)):
        return None
    return np.asarray(np.concatenate([numbers for _, numbers in parts])[first])
