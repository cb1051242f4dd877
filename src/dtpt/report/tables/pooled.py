"""Tables of what was compared: pooled values with intervals, and differences with theirs."""

from dtpt.metrics import METRICS, Interval, calibrated_ece
from dtpt.report.comparison import COMPARED, POOLED, FamilyComparison
from dtpt.report.gathering.scored_cells import Contender
from dtpt.report.tables.means import floor_line
from dtpt.report.tables.table import Column, Entry, Row, Table


def pooled_table(comparison: FamilyComparison, *, key: str) -> Table:
    """Return the metrics of all pictures of a family together, with 95 % intervals."""
    metrics = [key for key in POOLED if key in comparison.drawn[comparison.contenders[0].label]]
    best = {metric: comparison.best(metric) for metric in metrics}
    rows = tuple(
        Row(
            contender,
            tuple(
                Entry(
                    value=comparison.value(contender, metric),
                    interval=comparison.interval(contender, metric),
                    separated=best[metric] == contender,
                    floor=_floor(comparison, contender) if metric == "ece" else None,
                )
                for metric in metrics
            ),
        )
        for contender in comparison.contenders
    )
    return Table(
        key=key,
        title=comparison.title,
        caption=(
            f"{_pictures(comparison)}, put together. In brackets: 95 % interval over pictures, for "
            f"each number by itself.{cancelling(len(comparison.sets))}"
        ),
        columns=tuple(Column(METRICS[metric], METRICS[metric].title) for metric in metrics),
        rows=rows,
        sets=comparison.sets,
        notes=_apart_note(comparison),
        foot=floor_line(rows),
    )


def cancelling(sets: int) -> str:
    """Warn, below numbers of several sets together, that gaps of opposite sign cancel.

    Example:
        >>> cancelling(1), cancelling(2)[:34]
        ('', ' Too sure on one set and not sure ')
    """
    if sets < 2:
        return ""
    return (
        " Too sure on one set and not sure enough on another cancel here; the tables of single "
        "sets show them apart."
    )


def difference_tables(comparison: FamilyComparison, *, prefix: str) -> tuple[Table, ...]:
    """Return one table for each method that the others are compared with."""
    return tuple(
        difference_table(comparison, base, key=f"{prefix}-against-{base.label}")
        for base in comparison.against
        if any(c.second == base.label for c in comparison.comparisons)
    )


def difference_table(comparison: FamilyComparison, base: Contender, *, key: str) -> Table:
    """Return the differences of all methods to one, paired by picture."""
    found = [c for c in comparison.comparisons if c.second == base.label]
    metrics = [key for key in COMPARED if any(c.metric == key for c in found)]
    rows = []
    for contender in comparison.contenders:
        mine = {c.metric: c for c in found if c.first == contender.label}
        if mine:
            entries = (
                Entry(
                    value=mine[metric].estimate,
                    interval=Interval(low=mine[metric].low, high=mine[metric].high),
                    separated=mine[metric].significant,
                )
                for metric in metrics
            )
            rows.append(Row(contender, tuple(entries)))
    return Table(
        key=key,
        title=f"{comparison.title}: difference to {base.title}",
        caption=(
            f"{_pictures(comparison)}, paired by picture: method minus {base.title}. With a "
            f"probability of {_percent(comparison.level)} all {len(comparison.comparisons)} "
            "intervals of this family are right. Bold: 0 is outside the interval."
        ),
        columns=tuple(Column(METRICS[m], METRICS[m].title, signed=True) for m in metrics),
        rows=tuple(rows),
        sets=comparison.sets,
    )


def _pictures(comparison: FamilyComparison) -> str:
    sets = f" of {len(comparison.sets)} data sets" if len(comparison.sets) > 1 else ""
    seeds = len(next(iter(comparison.pooled.values())).seeds)
    average = f", averaged over {seeds} seeds" if seeds > 1 else ""
    return f"{comparison.size}{sets}{average}"


def _apart_note(comparison: FamilyComparison) -> tuple[str, ...]:
    """Say so where no method can be told from those that all are compared with."""
    if not comparison.comparisons or any(c.significant for c in comparison.comparisons):
        return ()
    names = " or ".join(base.title for base in comparison.against)
    return (f"No method can be told from {names} in any metric at this number of pictures.",)


def _floor(comparison: FamilyComparison, contender: Contender) -> float:
    seeds = comparison.pooled[contender.label].seeds
    return sum(calibrated_ece(seed.confidence).mean for seed in seeds) / len(seeds)


def _percent(level: float) -> str:
    return f"{100 * level:g} %"
