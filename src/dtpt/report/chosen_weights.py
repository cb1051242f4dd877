"""Which weight of a method is shown where several were run: the one that other data sets choose.

A weight that is picked on the pictures it is then shown on looks better than it is. So the λ for a
data set is the one with the lowest negative log-likelihood on the *other* sets of its family. A set
without others takes the default of the method's authors where that was run, else the middle of the
weights.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from dtpt.data.catalog import family_protocol
from dtpt.errors import DtptError
from dtpt.methods import find_method, parse_label
from dtpt.report.gathering.scored_cells import Condition, Contender

CHOICE_WORDS = "λ chosen on the other sets"


def shown_contenders(condition: Condition, dataset: str) -> tuple[Contender, ...]:
    """Return the finished contenders of a data set, each method at one weight, in the order met."""
    found = [c for c in condition.stored_contenders([dataset]) if condition.finished(dataset, c)]
    methods = dict.fromkeys(contender.method for contender in found)
    return tuple(chosen_contender(condition, dataset, method=name) for name in methods)


def chosen_contender(condition: Condition, dataset: str, *, method: str) -> Contender:
    """Return a method at the weight that is shown for a data set; finished ones come first."""
    family = condition.datasets[dataset].family
    run = [c for c in condition.stored_contenders([dataset]) if c.method == method]
    mine = [c for c in run if condition.finished(dataset, c)] or run
    if len(mine) == 1:
        return mine[0]
    others = [name for name in condition.sets_of(family) if name != dataset]
    losses = {c: mean_loss(condition, others, contender=c) for c in mine}
    known = {contender: loss for contender, loss in losses.items() if loss is not None}
    if len(known) == len(mine):
        return min(known, key=lambda contender: known[contender])
    return _usual(mine, family)


def mean_loss(
    condition: Condition, datasets: Iterable[str], *, contender: Contender
) -> float | None:
    """Return the negative log-likelihood over all pictures and seeds of some sets.

    None where there is no set, or one of them is not finished.
    """
    cells = [condition.finished(name, contender) for name in datasets]
    if not cells or not all(cells):
        return None
    flat = [cell for row in cells for cell in row]
    return float(
        np.average([cell.metric("nll") for cell in flat], weights=[c.effective for c in flat])
    )


def _usual(contenders: Sequence[Contender], family: str) -> Contender:
    """Return the contender with its authors' weight, else the one in the middle."""
    ordered = sorted(contenders, key=lambda contender: contender.lambda_ or 0.0)
    try:
        base = parse_label(ordered[0].method).base
        default = find_method(base).lambdas[family_protocol(family)]
    except (DtptError, KeyError):
        default = None
    usual = [contender for contender in ordered if contender.lambda_ == default]
    return usual[0] if usual else ordered[len(ordered) // 2]
