"""Tables in the paper's layout: means over data sets, and one table per metric over the sets.

A mean over sets exists only when every one of its cells is finished under every seed; otherwise the
entry says what is missing. All values here are fractions; `layout` turns them into printed units.

Two readings of "±" are computed, both as *sample* standard deviations (n - 1) over seeds, because
the paper does not say which it prints (E14): the deviation of the mean over sets, and the mean over
sets of the deviations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dtpt.data import family_title
from dtpt.metrics import Interval, Metric
from dtpt.report.cells import Block, CellScore
from dtpt.report.columns import COLUMNS, method_title
from dtpt.report.compare import Comparison, compare_mean, compare_set
from dtpt.report.names import set_title
from dtpt.runs.spec import method_label

FloatArray = npt.NDArray[np.float64]
IntervalOf = Callable[[Sequence[Sequence[CellScore]], str], Interval | None]
"""Confidence interval of a mean over (sets × seeds) cells, by metric; None when not asked for."""

INTERVAL_NOTE = (
    "In brackets: 95 % of bootstrap draws over pictures, centred on the value. Calibration errors "
    "of few pictures are biased upward, drawn again more so; the interval shows their spread."
)


@dataclass(frozen=True)
class Entry:
    """One cell of a table, in fractions.

    Attributes:
        value: Mean over sets and seeds; None when something is missing.
        spread: Standard deviation over seeds of the mean over sets; None for one seed.
        spread_within: Mean over sets of the standard deviation over seeds; None for one seed.
        interval: Bootstrap interval over pictures; None when not asked for.
        missing: Why there is no value.
        remark: What is special about the value (failed pictures).
        rank: 1 for the best of its column, 2 for the second best, else 0.
        paper: The paper's number and the difference, where it is comparable.
    """

    value: float | None = None
    spread: float | None = None
    spread_within: float | None = None
    interval: Interval | None = None
    missing: str = ""
    remark: str = ""
    rank: int = 0
    paper: Comparison | None = None


@dataclass(frozen=True)
class Row:
    """One method (or setting) of a table."""

    method: str
    lambda_: float | None
    title: str
    entries: tuple[Entry, ...]
    group: str = ""


@dataclass(frozen=True)
class Column:
    """One column: a metric, or a metric on one set."""

    metric: Metric
    title: str


@dataclass(frozen=True)
class Table:
    """A table as data.

    Attributes:
        key: Name for files.
        title: Headline.
        caption: What the numbers are, in a sentence or two.
        columns: Headings.
        rows: Methods.
        sets: Data sets behind it.
        notes: Remarks that belong to this table.
    """

    key: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sets: tuple[str, ...]
    notes: tuple[str, ...] = ()


def family_table(
    block: Block, family: str, *, key: str, interval: IntervalOf | None = None
) -> Table:
    """Return the table of means over the sets of a family: methods × five metrics."""
    sets = block.sets_of(family)
    rows = [
        Row(
            method,
            lambda_,
            method_title(method, lambda_),
            tuple(
                _entry(block, sets, method, lambda_, metric, interval=interval)
                for metric in COLUMNS
            ),
        )
        for method, lambda_ in block.labels_of(sets)
    ]
    return Table(
        key=key,
        title=f"{family_title(family)}, {block.model}",
        caption=_mean_caption(block, sets),
        columns=tuple(Column(metric, metric.title) for metric in COLUMNS),
        rows=ranked(rows, [metric.higher_is_better for metric in COLUMNS]),
        sets=sets,
        notes=_notes(rows, block, sets),
    )


def set_table(
    block: Block, family: str, metric: Metric, *, key: str, interval: IntervalOf | None = None
) -> Table:
    """Return one metric of a family over its sets: methods × (sets and their mean)."""
    sets = block.sets_of(family)
    groups = [(name,) for name in sets] + ([sets] if len(sets) > 1 else [])
    rows = [
        Row(
            method,
            lambda_,
            method_title(method, lambda_),
            tuple(
                _entry(block, group, method, lambda_, metric, interval=interval) for group in groups
            ),
        )
        for method, lambda_ in block.labels_of(sets)
    ]
    titles = [set_title(name) for name in sets] + (["Mean"] if len(sets) > 1 else [])
    return Table(
        key=key,
        title=f"{metric.title} per set, {block.model}",
        caption=metric.meaning,
        columns=tuple(Column(metric, title) for title in titles),
        rows=ranked(rows, [metric.higher_is_better] * len(titles)),
        sets=sets,
        notes=_notes(rows, block, sets),
    )


def prompt_table(blocks: Sequence[Block], family: str, *, key: str) -> Table | None:
    """Return the prompt-initialisation table of one model: methods grouped by initial prompt.

    None unless the blocks differ in their prompt and share model, tuning settings and sets.
    """
    useful = [block for block in blocks if block.sets_of(family)]
    prompts = {(block.template, block.context) for block in useful}
    if len(prompts) < 2 or len({block.sets_of(family) for block in useful}) > 1:
        return None
    higher = [metric.higher_is_better for metric in COLUMNS]
    rows: list[Row] = []
    for block in useful:
        table = family_table(block, family, key=key)
        group = "trained context" if block.context else f"“{block.template}”"
        rows += ranked([replace(row, group=group) for row in table.rows], higher)
    sets = useful[0].sets_of(family)
    family_name = family_title(family)
    return Table(
        key=key,
        title=f"Prompt initialisation, {useful[0].model}, {family_name.lower()}",
        caption=f"{_mean_caption(useful[0], sets)} Best and second best within each prompt.",
        columns=tuple(Column(metric, metric.title) for metric in COLUMNS),
        rows=tuple(rows),
        sets=sets,
    )


def _entry(
    block: Block,
    sets: Sequence[str],
    method: str,
    lambda_: float | None,
    metric: Metric,
    *,
    interval: IntervalOf | None,
) -> Entry:
    """Average one method and metric over sets and seeds, or say why that is not possible."""
    label = method_label(method, lambda_)
    found = {name: block.over_seeds(name, label) for name in sets}
    missing = _missing(found, block.seeds)
    if missing:
        return Entry(missing=missing)
    cells = [[cell for cell in row if cell is not None] for row in found.values()]
    values = np.array([[cell.metric(metric.key) for cell in row] for row in cells])
    mean, spread, within = mean_and_spreads(values)
    failed = max(cell.failed for row in cells for cell in row)
    entry = Entry(
        value=mean,
        spread=spread,
        spread_within=within,
        interval=interval(cells, metric.key) if interval else None,
        remark=f"up to {failed} pictures of a set could not be read" if failed else "",
    )
    if len(sets) == 1:
        paper = compare_set(block, sets[0], method, lambda_, metric=metric, value=mean)
    else:
        paper = compare_mean(block, sets, method, lambda_, metric=metric, value=mean)
    return replace(entry, paper=paper)


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


def _missing(found: dict[str, list[CellScore | None]], seeds: Sequence[int]) -> str:
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


def _mean_caption(block: Block, sets: Sequence[str]) -> str:
    images = sum(block.datasets[name].samples for name in sets)
    what = f"Mean over {len(sets)} data sets" if len(sets) > 1 else set_title(sets[0])
    text = f"{what}, {images:,} pictures, prompt “{block.template}”"
    text += " with a trained context" if block.context else ""
    if len(block.seeds) < 2:
        return f"{text}, seed {block.seeds[0]}."
    seeds = ", ".join(str(seed) for seed in block.seeds)
    return (
        f"{text}, seeds {seeds}. After ±: standard deviation over seeds of the mean over sets; in "
        "parentheses: mean over sets of the standard deviation over seeds (both with n − 1)."
    )


def _notes(rows: Sequence[Row], block: Block, sets: Sequence[str]) -> tuple[str, ...]:
    notes = []
    if len(rows) == 1:
        notes.append("Only one method was run: there is nothing to compare it with.")
    missing = [f"{row.title}: {e.missing}" for row in rows for e in row.entries[:1] if e.missing]
    notes += [f"{text}." for text in missing]
    if any(entry.interval is not None for row in rows for entry in row.entries):
        notes.append(INTERVAL_NOTE)
    errata = {e.paper.erratum for row in rows for e in row.entries if e.paper and e.paper.erratum}
    notes += [f"Erratum of the paper, not a target: {text}" for text in sorted(errata)]
    partial = [n for n in sets if block.datasets[n].limit is not None]
    if partial:
        notes.append(f"Part of the set only: {', '.join(set_title(name) for name in partial)}.")
    return tuple(notes)
