"""Tables in the paper's layout: means over data sets, and one table per metric over the sets.

A mean over sets exists only when every one of its cells is finished under every seed; otherwise the
entry says what is missing. All values here are fractions; how they are printed is decided later.

Two readings of "±" are computed, both as *sample* standard deviations (n - 1) over seeds, because
the paper does not say which it prints: the deviation of the mean over sets, and the mean over sets
of the deviations.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dtpt.data import family_title
from dtpt.metrics import Metric
from dtpt.report.gathering.scored_cells import Condition, Contender, ScoredCell
from dtpt.report.paper.comparable import beside_paper
from dtpt.report.set_titles import set_title
from dtpt.report.tables.cell_draws import CellDraws, CellGrid, FloatArray
from dtpt.report.tables.table import COLUMNS, Column, Entry, Row, Table

INTERVAL_NOTE = (
    "In brackets: 95 % of bootstrap draws over pictures, centred on the value. Calibration errors "
    "of few pictures are biased upward, drawn again more so; the interval shows their spread."
)
FLOOR_TITLE = "Floor at this size"


def family_table(
    condition: Condition,
    family: str,
    *,
    key: str,
    draws: CellDraws | None = None,
    intervals: bool = False,
) -> Table:
    """Return the table of means over the sets of a family: contenders × five metrics.

    Args:
        condition: Its cells.
        family: Key of the family.
        key: Name for files.
        draws: Tell which best value can be told from the others; without them none is marked.
        intervals: Whether values have intervals.
    """
    sets = condition.sets_of(family)
    columns = [(Column(metric, metric.title), sets) for metric in COLUMNS]
    return _table(
        condition,
        columns,
        key=key,
        title=f"{family_title(family)}, {condition.model}",
        caption=_mean_caption(condition, sets),
        draws=draws,
        intervals=intervals,
    )


def set_table(
    condition: Condition,
    family: str,
    *,
    metric: Metric,
    key: str,
    draws: CellDraws | None = None,
    intervals: bool = False,
) -> Table:
    """Return one metric of a family over its sets: contenders × (sets and their mean)."""
    sets = condition.sets_of(family)
    groups: list[tuple[str, tuple[str, ...]]] = [(set_title(name), (name,)) for name in sets]
    groups += [("Mean", sets)] if len(sets) > 1 else []
    columns = [(Column(metric, title), group) for title, group in groups]
    return _table(
        condition,
        columns,
        key=key,
        title=f"{metric.title} per set, {condition.model}",
        caption=f"{metric.meaning} {condition.size_text(sets)}.",
        draws=draws,
        intervals=intervals,
    )


def _table(
    condition: Condition,
    columns: Sequence[tuple[Column, tuple[str, ...]]],
    *,
    key: str,
    title: str,
    caption: str,
    draws: CellDraws | None,
    intervals: bool,
) -> Table:
    """Return a table whose columns are a metric on some sets each; the last has all sets."""
    sets = columns[-1][1]
    contenders = condition.contenders(sets)
    grids = [[_finished(condition, group, contender=c) for _, group in columns] for c in contenders]
    shown = draws if intervals else None
    rows = [
        Row(
            contender,
            tuple(
                _entry(condition, group, contender=contender, metric=column.metric, draws=shown)
                for column, group in columns
            ),
        )
        for contender in contenders
    ]
    heads = tuple(column for column, _ in columns)
    return Table(
        key=key,
        title=title,
        caption=caption,
        columns=heads,
        rows=with_best(rows, grids, columns=heads, draws=draws) if draws else tuple(rows),
        sets=sets,
        notes=(
            *_notes(rows, condition, sets=sets),
            *(apart_notes(grids, columns=heads, draws=draws) if draws else ()),
        ),
        foot=floor_line(rows),
    )


def prompt_table(
    conditions: Sequence[Condition], family: str, *, key: str, draws: CellDraws | None = None
) -> Table | None:
    """Return the prompt-initialisation table of one model: contenders grouped by initial prompt.

    None unless the conditions differ in their prompt and share model, tuning settings and sets.
    """
    useful = [condition for condition in conditions if condition.sets_of(family)]
    prompts = {(condition.template, condition.context) for condition in useful}
    if len(prompts) < 2 or len({condition.sets_of(family) for condition in useful}) > 1:
        return None
    rows: list[Row] = []
    for condition in useful:
        table = family_table(condition, family, key=key, draws=draws)
        group = "trained context" if condition.context else f"“{condition.template}”"
        rows += [replace(row, group=group) for row in table.rows]
    sets = useful[0].sets_of(family)
    return Table(
        key=key,
        title=f"Prompt initialisation, {useful[0].model}, {family_title(family).lower()}",
        caption=f"{_mean_caption(useful[0], sets)}",
        columns=tuple(Column(metric, metric.title) for metric in COLUMNS),
        rows=tuple(rows),
        sets=sets,
    )


def _finished(
    condition: Condition, sets: Sequence[str], *, contender: Contender
) -> CellGrid | None:
    """Return the cells behind an entry, None when one of them is not finished."""
    cells = [condition.finished(name, contender) for name in sets]
    return cells if all(cells) else None


def _entry(
    condition: Condition,
    sets: Sequence[str],
    *,
    contender: Contender,
    metric: Metric,
    draws: CellDraws | None,
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
        interval=draws.interval(cells, metric.key) if draws else None,
        remark=f"up to {failed} pictures of a set could not be read" if failed else "",
        floor=_floor(cells) if metric.key == "ece" else None,
        paper=beside_paper(condition, sets, contender=contender, metric=metric, value=mean),
    )


def _floor(cells: CellGrid) -> float:
    """Return the mean over sets and seeds of the ECE that chance alone gives."""
    return float(np.mean([[cell.metric("floor") for cell in row] for row in cells]))


def floor_line(rows: Sequence[Row]) -> tuple[tuple[str, ...], ...]:
    """Return the line under a table that says what of an ECE is chance; nothing without ECE.

    Methods differ in their confidences, so their floors differ a little: both ends are given.
    """
    columns = zip(*(row.entries for row in rows), strict=True)
    floors = [[e.floor for e in column if e.floor is not None] for column in columns]
    ends = [(f"{100 * min(few):.2f}", f"{100 * max(few):.2f}") if few else () for few in floors]
    texts = ["–".join(dict.fromkeys(pair)) for pair in ends]
    return ((FLOOR_TITLE, *texts),) if any(texts) else ()


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


def with_best(
    rows: Sequence[Row],
    grids: Sequence[Sequence[CellGrid | None]],
    *,
    columns: Sequence[Column],
    draws: CellDraws,
) -> tuple[Row, ...]:
    """Mark the best of every column where it can be told from every other row."""
    best = [
        draws.best([cells[place] for cells in grids], column.metric.key)
        for place, column in enumerate(columns)
    ]
    return tuple(
        replace(
            row,
            entries=tuple(
                replace(entry, separated=best[place] == number)
                for place, entry in enumerate(row.entries)
            ),
        )
        for number, row in enumerate(rows)
    )


def apart_notes(
    grids: Sequence[Sequence[CellGrid | None]], *, columns: Sequence[Column], draws: CellDraws
) -> list[str]:
    """Say in which columns no two rows can be told apart."""
    if sum(all(cells) for cells in grids) < 2:
        return []
    alike = [
        column.title
        for place, column in enumerate(columns)
        if not draws.any_apart([cells[place] for cells in grids], column.metric.key)
    ]
    if len(alike) == len(columns):
        return ["No two rows can be told apart in any column at this number of pictures."]
    return [f"No two rows can be told apart in: {', '.join(alike)}."] if alike else []


def _mean_caption(condition: Condition, sets: Sequence[str]) -> str:
    what = f"Mean over {len(sets)} data sets" if len(sets) > 1 else set_title(sets[0])
    text = f"{what}, {condition.size_text(sets)}, prompt “{condition.template}”"
    text += " with a trained context" if condition.context else ""
    text = ", ".join((text, *condition.unusual))
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
