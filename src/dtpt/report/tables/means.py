"""Tables in the paper's layout: means over data sets, and one table per metric over the sets.

A mean over sets exists only when every one of its cells is finished under every seed; otherwise the
entry says what is missing. All values here are fractions; how they are printed is decided later.

Two readings of "±" are computed, both as *sample* standard deviations (n - 1) over seeds, because
the paper does not say which it prints: the deviation of the mean over sets, and the mean over sets
of the deviations.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dtpt.data import family_title
from dtpt.metrics import Interval, Metric
from dtpt.report.gathering.scored_cells import Condition, Contender, ScoredCell
from dtpt.report.paper.comparable import beside_paper
from dtpt.report.set_titles import set_title
from dtpt.report.tables.table import COLUMNS, Column, Entry, Row, Table

FloatArray = npt.NDArray[np.float64]
IntervalOf = Callable[[Sequence[Sequence[ScoredCell]], str], Interval | None]
"""Confidence interval of a mean over (sets × seeds) cells, by metric; None when not asked for."""

INTERVAL_NOTE = (
    "In brackets: 95 % of bootstrap draws over pictures, centred on the value. Calibration errors "
    "of few pictures are biased upward, drawn again more so; the interval shows their spread."
)


def family_table(
    condition: Condition, family: str, *, key: str, interval: IntervalOf | None = None
) -> Table:
    """Return the table of means over the sets of a family: contenders × five metrics."""
    sets = condition.sets_of(family)
    rows = [
        Row(
            contender,
            tuple(
                _entry(condition, sets, contender=contender, metric=metric, interval=interval)
                for metric in COLUMNS
            ),
        )
        for contender in condition.contenders(sets)
    ]
    return Table(
        key=key,
        title=f"{family_title(family)}, {condition.model}",
        caption=_mean_caption(condition, sets),
        columns=tuple(Column(metric, metric.title) for metric in COLUMNS),
        rows=ranked(rows, [metric.higher_is_better for metric in COLUMNS]),
        sets=sets,
        notes=_notes(rows, condition, sets=sets),
    )


def set_table(
    condition: Condition,
    family: str,
    *,
    metric: Metric,
    key: str,
    interval: IntervalOf | None = None,
) -> Table:
    """Return one metric of a family over its sets: contenders × (sets and their mean)."""
    sets = condition.sets_of(family)
    groups = [(name,) for name in sets] + ([sets] if len(sets) > 1 else [])
    rows = [
        Row(
            contender,
            tuple(
                _entry(condition, group, contender=contender, metric=metric, interval=interval)
                for group in groups
            ),
        )
        for contender in condition.contenders(sets)
    ]
    titles = [set_title(name) for name in sets] + (["Mean"] if len(sets) > 1 else [])
    return Table(
        key=key,
        title=f"{metric.title} per set, {condition.model}",
        caption=f"{metric.meaning} {condition.size_text(sets)}.",
        columns=tuple(Column(metric, title) for title in titles),
        rows=ranked(rows, [metric.higher_is_better] * len(titles)),
        sets=sets,
        notes=_notes(rows, condition, sets=sets),
    )


def prompt_table(conditions: Sequence[Condition], family: str, *, key: str) -> Table | None:
    """Return the prompt-initialisation table of one model: contenders grouped by initial prompt.

    None unless the conditions differ in their prompt and share model, tuning settings and sets.
    """
    useful = [condition for condition in conditions if condition.sets_of(family)]
    prompts = {(condition.template, condition.context) for condition in useful}
    if len(prompts) < 2 or len({condition.sets_of(family) for condition in useful}) > 1:
        return None
    rows: list[Row] = []
    for condition in useful:
        table = family_table(condition, family, key=key)
        group = "trained context" if condition.context else f"“{condition.template}”"
        rows += [replace(row, group=group) for row in table.rows]
    sets = useful[0].sets_of(family)
    return Table(
        key=key,
        title=f"Prompt initialisation, {useful[0].model}, {family_title(family).lower()}",
        caption=f"{_mean_caption(useful[0], sets)} Best and second best within each prompt.",
        columns=tuple(Column(metric, metric.title) for metric in COLUMNS),
        rows=tuple(rows),
        sets=sets,
    )


def _entry(
    condition: Condition,
    sets: Sequence[str],
    *,
    contender: Contender,
    metric: Metric,
    interval: IntervalOf | None,
) -> Entry:
    """Average one contender and metric over sets and seeds, or say why that is not possible."""
    found = {name: condition.over_seeds(name, contender) for name in sets}
    missing = _missing(found, condition.seeds)
    if missing:
        return Entry(missing=missing)
    cells = [[cell for cell in row if cell is not None] for row in found.values()]
    values = np.array([[cell.metric(metric.key) for cell in row] for row in cells])
    mean, spread, within = mean_and_spreads(values)
    failed = max(cell.failed for row in cells for cell in row)
    return Entry(
        value=mean,
        spread=spread,
        spread_within=within,
        interval=interval(cells, metric.key) if interval else None,
        remark=f"up to {failed} pictures of a set could not be read" if failed else "",
        paper=beside_paper(condition, sets, contender=contender, metric=metric, value=mean),
    )


def mean_and_spreads(values: FloatArray) -> tuple[float, float | None, float | None]:
    """Return the mean and the two readings of ± of (sets, seeds) values.

    Both are sample standard deviations over seeds: of the mean over sets, and averaged over sets.

    Example:
        >>> mean, spread, within = mean_and_spreads(np.array([[0.25, 0.75], [0.75, 0.25]]))
        >>> mean, spread, round(within, 4)
        (0.5, 0.0, 0.3536)
    """
    if values.shape[1] < 2:
        return float(values.mean()), None, None
    of_mean = values.mean(axis=0).std(ddof=1)
    within = values.std(axis=1, ddof=1).mean()
    return float(values.mean()), float(of_mean), float(within)


def _missing(found: dict[str, list[ScoredCell | None]], seeds: Sequence[int]) -> str:
    """Say in a few words which cells of a mean are absent; empty when all are there."""
    problems = []
    for name, cells in found.items():
        for seed, cell in zip(seeds, cells, strict=True):
            if cell is None or not cell.is_finished:
                done = "not run" if cell is None else f"{cell.effective:,} of {cell.expected:,}"
                problems.append(f"{set_title(name)} seed {seed}: {done}")
    if not problems:
        return ""
    more = f" and {len(problems) - 2} more" if len(problems) > 2 else ""
    return f"incomplete: {'; '.join(problems[:2])}{more}"


def ranked(rows: Sequence[Row], higher: Sequence[bool | None]) -> tuple[Row, ...]:
    """Mark best and second best of every column; a single row is compared with nothing."""
    if len(rows) < 2:
        return tuple(rows)
    columns = [_ranks([row.entries[i].value for row in rows], up) for i, up in enumerate(higher)]
    return tuple(
        replace(
            row,
            entries=tuple(
                replace(entry, rank=columns[i][number]) for i, entry in enumerate(row.entries)
            ),
        )
        for number, row in enumerate(rows)
    )


def _ranks(values: Sequence[float | None], higher: bool | None) -> list[int]:
    """Return 1 for the best value and those equal to it as printed, 2 for the next, else 0."""
    if higher is None:
        return [0] * len(values)
    shown = [None if value is None else round(value, 6) for value in values]
    distinct = sorted({value for value in shown if value is not None}, reverse=higher)
    if len([value for value in shown if value is not None]) < 2:
        return [0] * len(values)
    places = {value: place for place, value in enumerate(distinct[:2], start=1)}
    return [0 if value is None else places.get(value, 0) for value in shown]


def _mean_caption(condition: Condition, sets: Sequence[str]) -> str:
    what = f"Mean over {len(sets)} data sets" if len(sets) > 1 else set_title(sets[0])
    text = f"{what}, {condition.size_text(sets)}, prompt “{condition.template}”"
    text += " with a trained context" if condition.context else ""
    if len(condition.seeds) < 2:
        return f"{text}, seed {condition.seeds[0]}."
    seeds = ", ".join(str(seed) for seed in condition.seeds)
    return (
        f"{text}, seeds {seeds}. After ±: standard deviation over seeds of the mean over sets; in "
        "parentheses: mean over sets of the standard deviation over seeds (both with n − 1)."
    )


def _notes(rows: Sequence[Row], condition: Condition, *, sets: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if len(rows) == 1:
        notes.append("Only one method was run: there is nothing to compare it with.")
    missing = [f"{row.title}: {e.missing}" for row in rows for e in row.entries[:1] if e.missing]
    notes += [f"{text}." for text in missing]
    if any(entry.interval is not None for row in rows for entry in row.entries):
        notes.append(INTERVAL_NOTE)
    errata = {e.paper.erratum for row in rows for e in row.entries if e.paper and e.paper.erratum}
    notes += [f"Erratum of the paper, not a target: {text}" for text in sorted(errata)]
    partial = [name for name in sets if condition.datasets[name].is_partial]
    if partial:
        sizes = (f"{set_title(n)} {condition.datasets[n].size_text}" for n in partial)
        notes.append(f"Part of the set only: {', '.join(sizes)}.")
    return tuple(notes)
